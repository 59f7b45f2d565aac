"""The `DatasetHub` port: the homes of datasets, one module per kind of home."""
