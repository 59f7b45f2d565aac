"""From the sources of datasets to clean edits that are split without leaks."""
