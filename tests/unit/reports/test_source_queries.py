"""Queries over exactly the files that are given."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from graftline.core.errors import DataError
from graftline.core.parquet import Column, write_parquet
from resources.warehouse import SOURCES, create_sources, drop_sources, of_lines, of_parquet, of_rows

COLUMNS: dict[str, Column] = {"id": "text", "size": "whole"}

FOLDERS = [
    "plain",
    "[a]",  # matches `a`
    "[!x]",
    "*",
    "**",  # matches everything below
    "a?c",
    "it's",  # ends a string
    'say "x"',
    "{a,b}",
    "{{ var('data') }}",  # dbt's own
    "back\\slash",
    "run=3",  # would become a column
    "%20;--",
    "größe",
]


def rows(query: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(query).fetchall()


@pytest.fixture
def neighbors(tmp_path: Path) -> Path:
    """A folder with a file in every strange folder, each of which says where it is."""
    for folder in [*FOLDERS, "a", "abc", "b"]:
        (tmp_path / folder).mkdir()
        write_parquet(tmp_path / folder / "f.parquet", [{"id": folder, "size": 1}], COLUMNS)
        (tmp_path / folder / "f.jsonl").write_text(json.dumps({"id": folder, "size": 1, "other": 2}) + "\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_file_is_read_whatever_its_folder_is_called_and_no_other(neighbors: Path, folder: str) -> None:
    found = rows(of_parquet([neighbors / folder / "f.parquet"], COLUMNS))
    lines = rows(of_lines([neighbors / folder / "f.jsonl"], COLUMNS))
    assert (found, lines) == ([(folder, 1)], [(folder, 1)])


def test_a_folder_that_duckdb_cannot_be_told_of_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\\\[b/f.parquet: has a backslash and one of .* rename a folder"):
        of_parquet([tmp_path / "a\\[b" / "f.parquet"], COLUMNS)


def test_several_files_are_one_after_the_other_with_a_constant_beside(neighbors: Path) -> None:
    files = [neighbors / folder / "f.parquet" for folder in ("a", "[a]")]
    assert rows(of_parquet(files, {"id": "text"}, {"language": "o'caml"})) == [("a", "o'caml"), ("[a]", "o'caml")]


def test_no_file_is_no_row_with_the_same_columns(tmp_path: Path) -> None:
    columns: dict[str, Column] = {
        "a": "text", "b": "word?", "c": "whole", "d": "number?", "e": "flag", "f": "bytes", "g": "key", "h": "keys",
    }  # fmt: skip
    values = {"a": "", "b": None, "c": 1, "d": None, "e": True, "f": b"", "g": 2**64 - 1, "h": [1]}
    write_parquet(tmp_path / "one.parquet", [values], columns)
    with_rows, without = (duckdb.sql(of_parquet(files, columns)) for files in ([tmp_path / "one.parquet"], []))
    assert (without.fetchall(), without.columns, without.types) == ([], with_rows.columns, with_rows.types)
    assert rows(of_lines([], {"a": "text"})) == []


def test_rows_are_taken_as_they_are_given() -> None:
    given: list[dict[str, str | int]] = [{"id": "it's", "size": -1}, {"id": "", "size": 2**62}]
    assert rows(of_rows(given, COLUMNS)) == [("it's", -1), ("", 2**62)]
    assert rows(of_rows([], COLUMNS)) == []


def test_a_line_of_several_megabytes_is_read(tmp_path: Path) -> None:
    # DuckDB would stop at 16 MiB
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps({"id": "a", "pre": "x" * (17 << 20), "size": 1}) + "\n", "utf-8")
    assert rows(of_lines([path], COLUMNS)) == [("a", 1)]


def test_sources_are_views_that_leave_nothing_behind(neighbors: Path) -> None:
    warehouse = neighbors / "[a]" / "graftline.duckdb"
    create_sources(warehouse, {"edits": of_parquet([neighbors / "[a]" / "f.parquet"], COLUMNS)})
    with duckdb.connect(str(warehouse)) as connection:
        connection.execute(f"create table stg_edits as select * from {SOURCES}.edits")
    drop_sources(warehouse)
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        tables = connection.execute("select table_schema, table_name from information_schema.tables").fetchall()
        kept = connection.execute("select * from stg_edits").fetchall()
    assert (tables, kept) == ([("main", "stg_edits")], [("[a]", 1)])


def test_a_file_without_a_column_is_refused_by_the_name_of_its_source(neighbors: Path) -> None:
    columns: dict[str, Column] = {"id": "text", "license": "word"}
    query = of_parquet([neighbors / "a" / "f.parquet"], columns)
    with pytest.raises(DataError, match=r"the files of 'edits' cannot be read \(.*license.*\); materialize") as caught:
        create_sources(neighbors / "graftline.duckdb", {"edits": query})
    assert "\n" not in str(caught.value)
