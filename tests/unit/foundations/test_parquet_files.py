"""Parquet: rows come back as they went in, and equal rows are equal bytes."""

from pathlib import Path
from typing import Any

import pyarrow.lib
import pyarrow.parquet
import pytest

from graftline.parquet import Column, read_parquet, write_parquet

COLUMNS: dict[str, Column] = {
    "name": "text",
    "count": "whole",
    "share": "number",
    "is_exact": "flag",
    "note": "text?",
    "reward": "number?",
}
ROWS: list[dict[str, Any]] = [
    {"name": "b", "count": -(2**63), "share": 0.1, "is_exact": True, "note": "é\n\U0001f600", "reward": 1.0},
    {"name": "", "count": 2**63 - 1, "share": -0.0, "is_exact": False, "note": None, "reward": None},
    {"name": "a", "count": 0, "share": 1e300, "is_exact": False, "note": "", "reward": 0.0},
]


def test_rows_come_back_in_the_order_given(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ROWS, COLUMNS)

    assert read_parquet(tmp_path / "a.parquet") == ROWS


def test_equal_rows_are_equal_bytes(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ROWS, COLUMNS)
    write_parquet(tmp_path / "b.parquet", [dict(reversed(row.items())) for row in ROWS], COLUMNS)

    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_other_rows_are_other_bytes(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ROWS, COLUMNS)
    write_parquet(tmp_path / "b.parquet", ROWS[::-1], COLUMNS)

    assert (tmp_path / "a.parquet").read_bytes() != (tmp_path / "b.parquet").read_bytes()


def test_the_schema_is_what_was_declared_even_without_rows(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [], COLUMNS)

    schema = pyarrow.parquet.read_schema(tmp_path / "a.parquet")
    assert [(field.name, str(field.type), field.nullable) for field in schema] == [
        ("name", "string", False),
        ("count", "int64", False),
        ("share", "double", False),
        ("is_exact", "bool", False),
        ("note", "string", True),
        ("reward", "double", True),
    ]
    assert read_parquet(tmp_path / "a.parquet") == []


def test_a_value_that_may_be_missing_may_be_left_out(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [{"name": "a"}], {"name": "text", "note": "text?"})

    assert read_parquet(tmp_path / "a.parquet") == [{"name": "a", "note": None}]


@pytest.mark.parametrize("row", [{"name": None}, {}])
def test_a_value_that_may_not_be_missing_is_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(pyarrow.lib.ArrowInvalid, match="'name' is declared non-nullable"):
        write_parquet(tmp_path / "a.parquet", [row], {"name": "text"})


@pytest.mark.parametrize(
    ("column", "value"),
    [("text", 1), ("whole", "1"), ("number", "1"), ("flag", 1)],
)
def test_a_value_of_another_type_is_refused(tmp_path: Path, column: Column, value: Any) -> None:
    with pytest.raises(pyarrow.lib.ArrowException):
        write_parquet(tmp_path / "a.parquet", [{"name": value}], {"name": column})


def test_folders_that_look_like_columns_add_none(tmp_path: Path) -> None:
    folder = tmp_path / "language=python"
    folder.mkdir()
    write_parquet(folder / "a.parquet", [{"name": "a"}], {"name": "text"})

    assert read_parquet(folder / "a.parquet") == [{"name": "a"}]
