"""Reports: dbt models over the stored Parquet (`models/`), and pages of Markdown from them."""
