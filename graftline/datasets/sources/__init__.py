"""The `DatasetHub` port: the sources of datasets, one module per kind of source."""
