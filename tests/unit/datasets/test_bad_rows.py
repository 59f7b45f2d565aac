"""Rows that cannot be edits: each is a rejection that says why and where, and the rows round it are kept.

Not here: what is no JSON (`test_json_rows`), and what an edit has to be whatever dataset it is from (`test_ingesting`).
"""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.datasets.catalog import Cleaning
from graftline.datasets.edit import Rejection, RejectReason
from graftline.datasets.readers import source_of
from graftline.datasets.readers.base import RawRow
from tests.unit.datasets.fixtures import dataset

Row = Callable[..., bytes]
LANGUAGES = "python, javascript, typescript, tsx, java"
NO_PYTHON = "one side is not valid python, alone or as a block"
KEPT = [("rows.jsonl", 1, "release_pairs:1")]

BAD_ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"pre": "x" * 5_000_000}, "line_too_long", "more than 2097152 bytes"),
    ({"pre": ""}, "empty_pre", "pre is empty: nothing can be rewritten"),
    ({"pre": " \n\t\n"}, "empty_pre", "pre is empty: nothing can be rewritten"),
    ({"post": ""}, "empty_post", "post is empty: the function was removed, not rewritten"),
    ({"post": "\n  \n"}, "empty_post", "post is empty: the function was removed, not rewritten"),
    ({"language": "cobol"}, "unknown_language", f"language 'cobol'; known: {LANGUAGES}"),
    ({"language": "Python"}, "unknown_language", f"language 'Python'; known: {LANGUAGES}"),
    ({"language": ""}, "unknown_language", f"language ''; known: {LANGUAGES}"),
    *(({"pre": value}, "bad_field", "pre: Input should be a valid string") for value in (3, None, ["x"], {}, True)),
    ({"license": ""}, "bad_field", "license: String should have at least 1 character"),
    *(({field: "x = '\0'\n"}, "not_text", "holds a NUL character") for field in ("pre", "post")),
    *(({field: "'\ud800'"}, "not_text", "holds half a surrogate pair") for field in ("pre", "qual", "changed")),
    ({"pre": "def first(:\n"}, "unparsable", NO_PYTHON),
    ({"post": "def first(:\n"}, "unparsable", NO_PYTHON),
    ({"language": "java", "pre": "int f() { return a; }", "post": "int f( { }"}, "unparsable", NO_PYTHON.replace("python", "java").replace("block", "member")),
    # as many tokens as are allowed, in one line of 10,001 characters
    ({"post": "x = '" + "a" * 9995 + "'"}, "unparsable", NO_PYTHON),
]  # fmt: skip


@pytest.fixture
def row(pair: Mapping[str, Any]) -> Row:
    """Return a good row as a line, with other values as given."""
    return lambda **changes: json.dumps({**pair, **changes}).encode()


@pytest.fixture
def reject(ingested: Callable[..., list[Any]], row: Row) -> Callable[[bytes], Rejection]:
    """Return the rejection of a line that stands between two good ones, which have to be kept."""

    def read(bad: bytes) -> Rejection:
        content = b"\n".join([row(id="release:before"), bad, row(id="release:after")])
        before, (file, line, rejection), after = ingested(content)
        assert (before, after) == (("rows.jsonl", 1, "release_pairs:before"), ("rows.jsonl", 3, "release_pairs:after"))
        assert (file, line) == ("rows.jsonl", 2)
        return rejection

    return read


@pytest.mark.parametrize(("changes", "reason", "detail"), BAD_ROWS)
def test_a_bad_row_says_why(
    reject: Callable[[bytes], Rejection], row: Row, changes: dict[str, Any], reason: str, detail: str
) -> None:
    assert reject(row(**changes)) == Rejection(RejectReason(reason), detail)


def test_a_missing_field_is_named(reject: Callable[[bytes], Rejection], pair: Mapping[str, Any]) -> None:
    without = {key: value for key, value in pair.items() if key != "post"}
    assert reject(json.dumps(without).encode()) == Rejection(RejectReason.BAD_FIELD, "post: Field required")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"pre": "x = " + "a" * 7996, "post": "x = " + "b" * 9000}, id="as many tokens as are allowed"),
        # Python itself takes 200 of them
        pytest.param({"pre": "x = " + "(" * 199 + "1" + ")" * 199}, id="nested as deep as Python may be"),
    ],
)
def test_a_row_at_a_limit_is_an_edit(ingested: Callable[..., list[Any]], row: Row, changes: dict[str, Any]) -> None:
    assert ingested(row(**changes)) == KEPT


def test_a_line_at_the_limit_is_read_and_one_above_is_not(ingested: Callable[..., list[Any]], row: Row) -> None:
    line = row(path="")
    fitting, longer = (row(path="p" * (size - len(line))) for size in (2000, 2001))
    assert ingested(fitting + b"\n" + longer + b"\n", cleaning=Cleaning(max_line_bytes=2000)) == [
        *KEPT,
        ("rows.jsonl", 2, Rejection(RejectReason.LINE_TOO_LONG, "more than 2000 bytes")),
    ]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_huge_line_takes_no_more_memory_than_the_limit_allows(tmp_path: Path, row: Row, name: str) -> None:
    content = row(pre="x" * 16_000_000) + b"\n" + row() + b"\n"
    (tmp_path / name).write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    del content
    tracemalloc.start()
    try:
        rows = list(source_of("release_pairs").rows(tmp_path, dataset("release_pairs"), 64 << 10))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    too_long = Rejection(RejectReason.LINE_TOO_LONG, "more than 65536 bytes")
    assert rows == [RawRow(name, 1, too_long), RawRow(name, 2, row())]
    # some copies of a chunk of 1 MiB, not the 16 MB of the line
    assert peak < 5_000_000
