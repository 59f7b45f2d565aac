"""From the homes of datasets to clean edits that are split without leaks."""
