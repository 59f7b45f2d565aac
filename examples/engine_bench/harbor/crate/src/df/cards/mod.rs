//! One module for each card; tasks add theirs.
