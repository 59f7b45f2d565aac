"""Dagster resources: each only vends a domain object of the library."""
