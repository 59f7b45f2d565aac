"""Stand-ins for what is outside this process: for tests, and for the `test` manifest."""
