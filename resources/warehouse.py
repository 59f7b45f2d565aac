"""The DuckDB file the report models are built in: the door to duckdb.

`Warehouse` reads the finished file; `create_sources` and `drop_sources` put what the models read into an unfinished one,
and take it out. Not here: which files those are (`assets.reports.sources`).

A DuckDB file has one process at a time, so a connection lives no longer than the queries that one caller has.
https://docs.dagster.io/guides/build/external-resources
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from graftline.core.errors import DataError
from graftline.core.parquet import Column

SOURCES = "lineage"
"""The schema of what the models read."""
_MAX_LINE_BYTES = 64 << 20
_TYPES: Mapping[str, str] = {
    "text": "varchar",
    "word": "varchar",
    "whole": "bigint",
    "number": "double",
    "flag": "boolean",
    "bytes": "blob",
    "key": "ubigint",
    "keys": "ubigint[]",
}


class Warehouse(dg.ConfigurableResource):
    """Queries of the warehouse."""

    path: str = Field(description="The DuckDB file.")

    @contextmanager
    def open(self) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
        """Yield what returns the rows of a query, a constant of ours, by column name.

        For several queries: opening the file takes longer than most of them.

        Raises:
            dagster.Failure: there is no warehouse, or it holds other tables, or another process writes to it.
        """
        import duckdb

        if not Path(self.path).exists():
            raise dg.Failure(f"{self.path}: no such file; materialize the models of group 'reports' first")
        try:
            with duckdb.connect(self.path, read_only=True) as connection:

                def rows(query: str) -> list[dict[str, Any]]:
                    cursor = connection.execute(query)
                    names = [column[0] for column in cursor.description or ()]
                    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

                yield rows
        except duckdb.Error as error:
            fault = str(error).partition("\n")[0]
            raise dg.Failure(
                f"{self.path}: cannot be read ({fault}); materialize the models of group 'reports' again"
            ) from None


def create_sources(path: Path, queries: Mapping[str, str]) -> None:
    """Put a view of every query, by its name, into the DuckDB file at `path`.

    Raises:
        DataError: a file that a query reads is not what it should be.
    """
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create schema {SOURCES}")
        for name, query in queries.items():
            try:
                connection.execute(f'create view {SOURCES}."{name}" as {query}')
            except duckdb.Error as error:
                fault = str(error).partition("\n")[0]
                raise DataError(
                    f"the files of {name!r} cannot be read ({fault}); materialize their assets again"
                ) from None


def drop_sources(path: Path) -> None:
    """Take the views out again, and with them the paths of the files they read."""
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.execute(f"drop schema {SOURCES} cascade")


def of_parquet(files: Sequence[Path], columns: Mapping[str, Column], constants: Mapping[str, str] | None = None) -> str:
    """Return the query for `columns` of exactly `files`, with a column more for every one of `constants`."""
    if not files:
        return _nothing({**columns, **dict.fromkeys(constants or (), "word")})
    chosen = [f'"{name}"' for name in columns] + [
        f'{text(value)} as "{name}"' for name, value in (constants or {}).items()
    ]
    # a folder called `key=value` would become a column
    return f"select {', '.join(chosen)} from read_parquet({_list(files)}, hive_partitioning = false)"


def of_lines(files: Sequence[Path], columns: Mapping[str, Column]) -> str:
    """Return the query for `columns` of exactly `files`, which hold lines of JSON."""
    if not files:
        return _nothing(columns)
    types = ", ".join(f"{text(name)}: {text(_type(column))}" for name, column in columns.items())
    return (
        f"select {_names(columns)} from read_json({_list(files)}, format = 'newline_delimited',"
        f" columns = {{{types}}}, maximum_object_size = {_MAX_LINE_BYTES}, hive_partitioning = false)"
    )


def of_rows(rows: Sequence[Mapping[str, str | int]], columns: Mapping[str, Column]) -> str:
    """Return the query for `rows` themselves."""
    if not rows:
        return _nothing(columns)
    values = [", ".join(f"{_literal(row[name])}::{_type(column)}" for name, column in columns.items()) for row in rows]
    return f"select * from (values {', '.join(f'({value})' for value in values)}) as given({_names(columns)})"


def text(value: str) -> str:
    """Return `value` as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def _literal(value: str | int) -> str:
    return text(value) if isinstance(value, str) else str(value)


def _list(files: Sequence[Path]) -> str:
    # each of them is taken for a pattern, in which a backslash cannot be had
    if wrong := [file for file in files if "\\" in str(file) and re.search(r"[*?[]", str(file))]:
        raise DataError(
            f"{wrong[0]}: has a backslash and one of '*?[' in its path, which DuckDB cannot read; rename a folder"
        )
    plain = [re.sub(r"([*?[])", r"[\1]", str(file)) for file in files]
    return f"[{', '.join(map(text, plain))}]"


def _nothing(columns: Mapping[str, Column]) -> str:
    nulls = (f'null::{_type(column)} as "{name}"' for name, column in columns.items())
    return f"select {', '.join(nulls)} where false"


def _names(columns: Mapping[str, Column]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _type(column: Column) -> str:
    return _TYPES[column.rstrip("?")]
