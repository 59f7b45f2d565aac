"""Parquet: rows come back as they went in, and equal rows are equal bytes."""

import random
from pathlib import Path
from typing import Any

import pyarrow.lib
import pyarrow.parquet
import pytest

from graftline.core.parquet import (
    GROUP_ROWS,
    Column,
    ParquetError,
    ParquetWriter,
    arrow_table,
    parquet_rows,
    parquet_tables,
    read_parquet,
    write_parquet,
)

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


def test_folders_that_look_like_columns_add_none(tmp_path: Path) -> None:
    folder = tmp_path / "language=python"
    folder.mkdir()
    write_parquet(folder / "a.parquet", [{"name": "a"}], {"name": "text"})
    assert read_parquet(folder / "a.parquet") == [{"name": "a"}]


KEYS: dict[str, Column] = {"license": "word", "split": "word?", "id": "key", "links": "keys", "signature": "bytes"}
KEYED: list[dict[str, Any]] = [
    {"license": "MIT", "split": None, "id": 2**64 - 1, "links": [0, 2**64 - 1], "signature": b"\0\xff"},
    {"license": "MIT", "split": "dev", "id": 0, "links": [], "signature": b""},
]


def test_keys_lists_of_them_and_bytes_come_back_too(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", KEYED, KEYS)
    assert read_parquet(tmp_path / "a.parquet") == KEYED
    assert read_parquet(tmp_path / "a.parquet", ["links", "license"]) == [
        {"links": row["links"], "license": row["license"]} for row in KEYED
    ]


MANY: dict[str, Column] = {"name": "text", "kind": "word", "count": "whole"}


def many(first: int, last: int) -> list[dict[str, Any]]:
    return [{"name": f"row {number}", "kind": f"kind {number % 3}", "count": number} for number in range(first, last)]


@pytest.mark.parametrize("seed", range(4))
def test_how_rows_are_dealt_out_does_not_show_in_the_file(tmp_path: Path, seed: int) -> None:
    rng, count = random.Random(seed), 2 * GROUP_ROWS + 100
    write_parquet(tmp_path / "whole.parquet", many(0, count), MANY)
    ends = sorted(rng.sample(range(count), 9))
    with ParquetWriter(tmp_path / "dealt.parquet", MANY) as writer:
        for first, last in zip([0, *ends], [*ends, count], strict=True):
            rows = many(first, last)
            if rng.random() < 0.5:
                writer.append(rows)
            else:
                writer.extend(arrow_table({name: [row[name] for row in rows] for name in MANY}, MANY))
    assert (tmp_path / "dealt.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize(
    ("rows", "groups"),
    [(0, []), (1, [1]), (GROUP_ROWS, [GROUP_ROWS]), (2 * GROUP_ROWS + 1, [GROUP_ROWS, GROUP_ROWS, 1])],
)
def test_a_row_group_has_so_many_rows_and_is_read_alone(tmp_path: Path, rows: int, groups: list[int]) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, many(0, rows), MANY)
    metadata = pyarrow.parquet.read_metadata(path)
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == groups
    tables = list(parquet_tables(path, ["count"]))
    assert [table.num_rows for table in tables] == groups
    assert [count for table in tables for count in table["count"].to_pylist()] == list(range(rows))


def test_a_missing_column_is_a_fault_that_lists_those_there_are(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [], MANY)
    with pytest.raises(ParquetError, match=r"^has no column 'pre'; found: name, kind, count$"):
        next(parquet_rows(tmp_path / "a.parquet", ["name", "pre", "post"]))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no table" * 100])
def test_a_file_that_is_no_table_is_a_fault(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ParquetError, match=r"^is not a whole Parquet file \("):
        next(parquet_rows(tmp_path / "a.parquet"))
