"""Dagster sensors: what happens outside that a run has to follow."""
