"""Parquet, CSV and whole JSON documents: their rows, and one sentence where they are not what was expected."""

import codecs
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from graftline.core.errors import DataError
from graftline.datasets.formats import MAX_DOCUMENT_BYTES, csv_rows, json_document, table_rows
from graftline.datasets.readers.base import RawRow

ROWS = 20_000


def fault(read: Callable[[], Any]) -> str:
    with pytest.raises(DataError) as error:
        read()
    return str(error.value)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file of several row groups."""
    path = tmp_path / "a.parquet"
    columns = {"text": [f"{number}" * 9 for number in range(ROWS)], "number": list(range(ROWS))}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=3000)
    return path


def test_rows_of_a_table_are_numbered_from_one(table: Path) -> None:
    rows = list(table_rows(table.parent, ("number", "text")))
    assert rows == [RawRow("a.parquet", n + 1, {"text": f"{n}" * 9, "number": n}) for n in range(ROWS)]


def test_tables_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b/a.parquet", "a/b.parquet"):
        (tmp_path / name).parent.mkdir()
        pyarrow.parquet.write_table(pyarrow.table({"a": [name]}), tmp_path / name)
    assert list(table_rows(tmp_path, ())) == [
        RawRow("a/b.parquet", 1, {"a": "a/b.parquet"}),
        RawRow("b/a.parquet", 1, {"a": "b/a.parquet"}),
    ]


def test_a_table_without_a_column_lists_those_it_has(table: Path) -> None:
    assert fault(lambda: list(table_rows(table.parent, ("text", "commit", "repos")))) == (
        f"{table}: has no column 'commit'; found: text, number; fetch it again, or mend `columns` of the dataset"
    )


@pytest.mark.parametrize("kept", [0, 3, 8, 100, -8, -1])
def test_a_table_that_is_cut_off_is_refused(table: Path, kept: int) -> None:
    table.write_bytes(table.read_bytes()[:kept])
    assert fault(lambda: list(table_rows(table.parent, ()))).startswith(f"{table}: is not a whole Parquet file (")


def test_a_table_that_is_none_is_refused(table: Path) -> None:
    table.write_bytes(b"PAR1" + b"\xff" * 1000 + b"PAR1")
    assert fault(lambda: list(table_rows(table.parent, ()))).startswith(f"{table}: is not a whole Parquet file (")


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_table_is_read_or_refused_and_never_anything_else(table: Path, seed: int) -> None:
    # without checksums of its pages, damage to a text cannot be seen here: that is what sha256 is for
    content, rng = bytearray(table.read_bytes()), random.Random(seed)
    for _ in range(3):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    table.write_bytes(content)
    try:
        rows = sum(1 for _ in table_rows(table.parent, ("text",)))
    except DataError as error:
        assert str(error).startswith(f"{table}: ")  # noqa: PT017
    else:
        assert rows <= ROWS


def test_text_in_a_table_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    ends, text = pyarrow.array([0, 2], pyarrow.int32()).buffers()[1], pyarrow.py_buffer(b"\xff\xfe")
    array = pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, ends, text])
    pyarrow.parquet.write_table(pyarrow.table({"a": array}), tmp_path / "a.parquet")
    assert fault(lambda: list(table_rows(tmp_path, ("a",)))) == (
        f"{tmp_path / 'a.parquet'}: is not a whole Parquet file ('utf-8' codec can't decode byte 0xff in position 0:"
        " invalid start byte); fetch it again, or mend `columns` of the dataset"
    )


def rows_of_csv(tmp_path: Path, content: bytes) -> list[tuple[int, dict[str, str]]]:
    (tmp_path / "a.csv").write_bytes(content)
    return [(line, dict(row)) for line, row in csv_rows(tmp_path / "a.csv", ("a", "b"))]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        pytest.param(b"a,b\n", [], id="a header alone"),
        pytest.param(b"b,a\n2,1\n", [(2, {"a": "1", "b": "2"})], id="columns by name"),
        pytest.param(b"a,b\r\n1,2\r\n", [(2, {"a": "1", "b": "2"})], id="carriage returns"),
        pytest.param(b"a,b\n1,2", [(2, {"a": "1", "b": "2"})], id="no line feed at the end"),
        pytest.param(codecs.BOM_UTF8 + b"a,b\n1,2\n", [(2, {"a": "1", "b": "2"})], id="a mark"),
        pytest.param(b'a,b\n"x ""y""\r\nz",2\n', [(3, {"a": 'x "y"\r\nz', "b": "2"})], id="a cell of two lines"),
        pytest.param(b"a,b\n\n1,2\n", [(3, {"a": "1", "b": "2"})], id="an empty line"),
        pytest.param(b"a,b\n1\n", [(2, {"a": "1", "b": ""})], id="a cell too few is empty"),
        pytest.param(b"a,b\n1,2,3\n", [(2, {"a": "1", "b": "2"})], id="a cell too many is left out"),
        pytest.param(b"a,b\n,NA\n", [(2, {"a": "", "b": "NA"})], id="no text means anything but itself"),
        pytest.param("a,b\né,\U0001f600\n".encode(), [(2, {"a": "é", "b": "\U0001f600"})], id="any character"),
    ],
)
def test_rows_of_a_csv_file_have_the_line_they_end_in(
    tmp_path: Path, content: bytes, rows: list[tuple[int, dict[str, str]]]
) -> None:
    assert rows_of_csv(tmp_path, content) == rows


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"a,c\n1,2\n", "has no column 'b'; found: a, c", id="a missing column"),
        pytest.param(b"", "has no column 'a'; found: ", id="an empty file"),
        pytest.param(
            b"a,b\n\xff,2\n",
            "is not a CSV file in UTF-8 ('utf-8' codec can't decode byte 0xff in position 4: invalid start byte);"
            " fetch it again",
            id="no UTF-8",
        ),
        pytest.param(
            b'a,b\n1,2\n"3,4\n5,6\n',
            "is not a CSV file in UTF-8 (unexpected end of data); fetch it again",
            id="a quote that nobody closes, as where a file was cut off",
        ),
        pytest.param(
            b'a,b\n"1"2,3\n',
            "is not a CSV file in UTF-8 (',' expected after '\"'); fetch it again",
            id="a text after a quote",
        ),
        pytest.param(
            b"a,b\n" + b"x" * 131_073 + b",2\n",
            "is not a CSV file in UTF-8 (field larger than field limit (131072)); fetch it again",
            id="a huge cell",
        ),
    ],
)
def test_a_csv_file_that_is_not_what_was_expected_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    assert fault(lambda: rows_of_csv(tmp_path, content)) == f"{tmp_path / 'a.csv'}: {reason}"


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_a_document_is_its_value(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "a.json").write_bytes(mark + b'{"Extract Method": [{"id": 1}]}\n')
    assert json_document(tmp_path / "a.json") == {"Extract Method": [{"id": 1}]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Input is a zero-length, empty document: line 1 column 1 (char 0)"),
        (b'{"a": [1', "unexpected end of data: line 1 column 9 (char 8)"),
        (b"[NaN]", "unexpected character, expected a JSON value: line 1 column 2 (char 1)"),
        (b"[" * 2000, "depth limit exceeded: line 1 column 1026 (char 1025)"),
    ],
)
def test_a_document_that_is_not_json_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert fault(lambda: json_document(path)) == f"{path}: is not JSON ({reason}); fetch it again"


def test_a_document_larger_than_memory_should_hold_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as stream:
        stream.truncate(MAX_DOCUMENT_BYTES + 1)  # takes no room on disk
    assert fault(lambda: json_document(path)) == (
        f"{path}: 536870913 bytes; at most 536870912 are read as one JSON document"
    )
