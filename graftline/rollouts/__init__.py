"""Attempts at tasks: collected step by step, rewarded, stored as JSONL and Parquet, measured."""
