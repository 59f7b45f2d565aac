"""Lines of JSON files: which are rows, where each ends, and how long one may be, however the bytes arrive."""

import codecs
import gzip
import io
from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.datasets.edit import Rejection, RejectReason
from graftline.datasets.formats import files_in, json_lines, lines_of
from graftline.datasets.readers.base import RawRow
from tests.unit.datasets.fixtures import dataset

MEBIBYTE = 1 << 20
TOO_LONG = Rejection(RejectReason.LINE_TOO_LONG, "more than 100 bytes")
MARK = codecs.BOM_UTF8


def lines(content: bytes, name: str = "a.jsonl", limit: int = 100) -> list[tuple[int, bytes | Rejection]]:
    rows = list(lines_of(io.BytesIO(content), name, limit))
    assert {row.file for row in rows} <= {name}
    return [(row.line, row.content) for row in rows if not isinstance(row.content, dict)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\n\n", [], id="empty lines"),
        pytest.param(b"{}", [(1, b"{}")], id="no line feed at the end"),
        pytest.param(b"{}\n[]\n", [(1, b"{}"), (2, b"[]")], id="two lines"),
        pytest.param(b" \t\r\n{}\n", [(2, b"{}")], id="blanks are a line, but no row"),
        pytest.param(b"{}\r\n[]\r\n", [(1, b"{}\r"), (2, b"[]\r")], id="carriage returns are JSON's blanks"),
        pytest.param(b"a\rb", [(1, b"a\rb")], id="a carriage return alone ends no line"),
        pytest.param("a\u2028b\x85c\x0cd".encode(), [(1, "a\u2028b\x85c\x0cd".encode())], id="nor do others"),
        pytest.param(b"\0\n{}", [(1, b"\0"), (2, b"{}")], id="zero bytes are content"),
        pytest.param(MARK, [], id="a mark alone"),
        pytest.param(MARK + b"{}\n", [(1, b"{}")], id="a mark first"),
        pytest.param(b"\n" + MARK + b"{}\n", [(2, MARK + b"{}")], id="a mark elsewhere is content"),
        pytest.param(MARK + MARK + b"{}", [(1, MARK + b"{}")], id="one mark, not two"),
        pytest.param(b"x" * 100, [(1, b"x" * 100)], id="as long as allowed, the last"),
        pytest.param(b"x" * 100 + b"\n", [(1, b"x" * 100)], id="as long as allowed"),
        pytest.param(b"x" * 101 + b"\n{}", [(1, TOO_LONG), (2, b"{}")], id="longer by one"),
        pytest.param(b"{}\n" + b"x" * 101, [(1, b"{}"), (2, TOO_LONG)], id="longer by one, the last"),
        pytest.param(b" " * 63 + b"\n", [], id="many blanks"),
        pytest.param(b" " * 101 + b"\n", [(1, TOO_LONG)], id="more blanks than a line may have"),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_lines_are_what_line_feeds_end(
    content: bytes, expected: list[tuple[int, bytes | Rejection]], is_packed: bool
) -> None:
    name = "a.jsonl.gz" if is_packed else "a.jsonl"
    assert lines(gzip.compress(content, mtime=0) if is_packed else content, name) == expected


@pytest.mark.parametrize("size", [MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1, 2 * MEBIBYTE + 5])
def test_a_line_does_not_end_where_a_piece_of_the_file_does(size: int) -> None:
    # files are read 1 MiB at a time
    content = b"x" * size + b"\n" + b"y" * size + b"\nz"
    assert lines(content, limit=3 * MEBIBYTE) == [(1, b"x" * size), (2, b"y" * size), (3, b"z")]


@pytest.mark.parametrize("size", [MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1, 10 * MEBIBYTE])
def test_a_long_line_is_one_drop_wherever_pieces_of_the_file_end(size: int) -> None:
    content = b"{}\n" + b"x" * size + b"\n[]\n" + b"y" * size
    assert lines(content) == [(1, b"{}"), (2, TOO_LONG), (3, b"[]"), (4, TOO_LONG)]


def test_a_mark_may_be_a_gzip_stream_of_its_own() -> None:
    assert lines(gzip.compress(MARK, mtime=0) + gzip.compress(b"{}\n", mtime=0), "a.jsonl.gz") == [(1, b"{}")]


def test_damage_right_after_the_mark_leaves_the_first_line_without_it() -> None:
    packed = gzip.compress(MARK + b"{}\n" + b"x" * 50, mtime=0)
    assert lines(packed[:-1] + bytes([packed[-1] ^ 1]), "a.jsonl.gz")[0] == (1, b"{}")


def test_damage_is_one_drop_in_the_line_it_is_in() -> None:
    packed = gzip.compress(b"{}\n[]\nhalf", mtime=0)[:-8]
    detail = "the file is damaged from here on (the compressed file ends before its end-of-stream marker)"
    assert lines(packed, "a.jsonl.gz") == [(1, b"{}"), (2, b"[]"), (3, Rejection(RejectReason.TRUNCATED_FILE, detail))]


def test_damage_in_a_line_that_is_too_long_is_counted_once() -> None:
    packed = gzip.compress(b"{}\n" + b"x" * 1000, mtime=0)[:-8]
    assert [(number, str(drop)[:14]) for number, drop in lines(packed, "a.jsonl.gz")[1:]] == [(2, "truncated_file")]


def test_files_come_in_the_order_of_their_paths_and_number_their_own_lines(tmp_path: Path) -> None:
    for name in ("b/a.jsonl", "a/z.jsonl", "c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode() + b"\n{}")
    (tmp_path / "b" / "b.jsonl.gz").write_bytes(gzip.compress(b"[]", mtime=0))
    assert list(json_lines(tmp_path, dataset("commitpackft"), 100)) == [
        RawRow("a/z.jsonl", 1, b"a/z.jsonl"),
        RawRow("a/z.jsonl", 2, b"{}"),
        RawRow("b/a.jsonl", 1, b"b/a.jsonl"),
        RawRow("b/a.jsonl", 2, b"{}"),
        RawRow("b/b.jsonl.gz", 1, b"[]"),
        RawRow("c.jsonl", 1, b"c.jsonl"),
        RawRow("c.jsonl", 2, b"{}"),
    ]


def test_hidden_files_records_and_folders_are_not_read(tmp_path: Path) -> None:
    for name in (".a.jsonl", "_meta.json", "a.json", "b.jsonl.tmp"):
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(DataError) as error:
        files_in(tmp_path, ".jsonl", ".json.gz")
    assert str(error.value) == (
        f"{tmp_path}: holds no file that ends in .jsonl or .json.gz; mend `files` of the dataset"
    )
    assert files_in(tmp_path, ".json") == [tmp_path / "a.json"]
