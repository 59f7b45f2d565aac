"""Dagster assets: what exists and from what. What a stage does is in the library."""
