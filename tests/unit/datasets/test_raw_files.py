"""Raw files as they come: damaged, empty, with marks and blank lines; what can be read is kept."""

import codecs
import gzip
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.datasets.edit import Rejection, RejectReason
from graftline.datasets.raw_rows import number_of_rows
from tests.unit.datasets.fixtures import dataset

Ingested = Callable[..., list[Any]]
Line = Callable[[int], bytes]


@pytest.fixture
def line(pair: Mapping[str, Any]) -> Line:
    """Return a good row as a line with its line feed; its id is its number."""
    return lambda number: json.dumps({**pair, "id": f"release:{number}"}).encode() + b"\n"


def kept(count: int, name: str = "rows.jsonl") -> list[Any]:
    return [(name, number, f"release_pairs:{number}") for number in range(1, count + 1)]


def gzipped_up_to(first: bytes, rest: bytes) -> tuple[bytes, int]:
    """Return both as one gzip stream, and the length of what holds `first`."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as stream:
        stream.write(first)
        stream.flush()
        cut = buffer.tell()
        stream.write(rest)
    return buffer.getvalue(), cut


def test_a_truncated_file_keeps_the_rows_before_the_end(ingested: Ingested, line: Line) -> None:
    content, cut = gzipped_up_to(line(1) + line(2) + line(3), line(4) + line(5))
    damage = "the file is damaged from here on (the compressed file ends before its end-of-stream marker)"
    assert ingested(content[:cut], "rows.jsonl.gz") == [
        *kept(3, "rows.jsonl.gz"),
        ("rows.jsonl.gz", 4, Rejection(RejectReason.TRUNCATED_FILE, damage)),
    ]


def test_a_row_cut_in_two_counts_as_the_truncation_only(ingested: Ingested, line: Line) -> None:
    content, cut = gzipped_up_to(line(1) + line(2)[:50], line(2)[50:])
    [first, (_, number, drop)] = ingested(content[:cut], "rows.jsonl.gz")
    assert ([first], number, drop.reason) == (kept(1, "rows.jsonl.gz"), 2, RejectReason.TRUNCATED_FILE)


def test_a_file_corrupt_in_the_middle_keeps_the_rows_before(ingested: Ingested, pair: Mapping[str, Any]) -> None:
    row = {**pair, "path": "p" * 4096}
    lines = [json.dumps({**row, "id": f"release:{number}"}).encode() + b"\n" for number in range(1, 201)]
    content, cut = gzipped_up_to(b"".join(lines[:100]), b"".join(lines[100:]))
    # a block of type 3 does not exist
    [*rows, (_, number, drop)] = ingested(content[:cut] + b"\xff" * 30 + content[cut + 30 :], "rows.jsonl.gz")
    assert (rows, number) == (kept(100, "rows.jsonl.gz"), 101)
    assert (drop.reason, "invalid block type" in drop.detail) == (RejectReason.TRUNCATED_FILE, True)


def test_a_file_that_only_claims_to_be_gzip_is_one_drop(ingested: Ingested, line: Line) -> None:
    [(file, number, drop)] = ingested(line(1), "rows.jsonl.gz")
    assert (file, number, drop.reason) == ("rows.jsonl.gz", 1, RejectReason.TRUNCATED_FILE)
    assert "incorrect header check" in drop.detail


def test_a_damaged_file_takes_no_other_with_it(ingested: Ingested, tmp_path: Path, line: Line) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"no gzip")
    [damaged, *rows] = ingested(line(1), "b.jsonl")
    assert (damaged[2].reason, rows) == (RejectReason.TRUNCATED_FILE, kept(1, "b.jsonl"))


def test_a_byte_order_mark_elsewhere_is_malformed(ingested: Ingested, line: Line) -> None:
    [first, (_, number, drop)] = ingested(line(1) + codecs.BOM_UTF8 + line(2))
    assert ([first], number, drop.reason) == (kept(1), 2, RejectReason.MALFORMED_JSON)


def test_the_number_of_rows_counts_bad_ones_but_no_blank_ones(tmp_path: Path, line: Line) -> None:
    whole, cut = gzipped_up_to(line(1) + line(2), line(3))
    (tmp_path / "a.jsonl").write_bytes(codecs.BOM_UTF8 + line(1) + b"\n{broken\n" + b"x" * 5000 + b"\n" + line(2))
    (tmp_path / "b.jsonl.gz").write_bytes(whole[:cut])
    # a: two rows, one broken, one too long; b: two rows and the damaged rest
    assert number_of_rows(tmp_path, dataset("release_pairs"), 2000) == 7


@pytest.mark.parametrize("name", ["rows.json", ".rows.jsonl", "_meta.json", "rows.jsonl.zst"])
def test_a_folder_without_a_file_that_can_be_read_says_what_is_wanted(ingested: Ingested, name: str) -> None:
    with pytest.raises(DataError, match=r"holds no file that ends in \.jsonl or \.jsonl\.gz; mend `files`"):
        ingested(b"{}", name)
