"""Where a row, an artifact or an adapter comes from, and under which licenses."""
