"""The resource that reads the DuckDB file the report models are built in: the door to duckdb.

A DuckDB file has one process at a time, so a connection lives as long as one query.
https://docs.dagster.io/guides/build/external-resources
"""

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field


class Warehouse(dg.ConfigurableResource):
    """Queries of the warehouse."""

    path: str = Field(description="The DuckDB file.")

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of `query`, a constant of ours, by column name."""
        import duckdb

        if not Path(self.path).exists():
            raise dg.Failure(f"{self.path}: no such file; materialise the models of group 'reports' first")
        with duckdb.connect(self.path, read_only=True) as connection:
            found = connection.execute(query)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
