"""Entries of datasets, and rows made up in the shape of theirs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.edit import Rejection, RowResult
from graftline.datasets.readers import ReaderName, source_of
from graftline.datasets.readers.base import RawRow, Source

MAX_LINE_BYTES = 1 << 20


def dataset(reader: ReaderName, **changes: Any) -> Dataset:
    """Return the entry of a dataset that is MIT as a whole."""
    values = {"reader": reader, "version": "1", "license": "MIT", "files": (DatasetFile(path="*"),)}
    return Dataset(**{**values, **changes})


def outcomes(reader: ReaderName, row: Mapping[str, Any], name: str = "", **changes: Any) -> Sequence[RowResult]:
    """Return what becomes of `row` in a dataset called `name`, or as its reader is."""
    return source_of(reader).outcomes(row, name or reader, dataset(reader, **changes))


def outcome(reader: ReaderName, row: Mapping[str, Any], name: str = "", **changes: Any) -> RowResult:
    """Return what becomes of `row`, which is one thing."""
    [result] = outcomes(reader, row, name, **changes)
    return result


def drop(reader: ReaderName, row: Mapping[str, Any]) -> str:
    """Return why `row` is dropped."""
    result = outcome(reader, row)
    assert isinstance(result, Rejection), result
    return str(result)


def raw_rows(reader: ReaderName, folder: Path, **changes: Any) -> list[RawRow]:
    """Return the raw rows below `folder`."""
    return list(source_of(reader).rows(folder, dataset(reader, **changes), MAX_LINE_BYTES))


def source_that_makes(*results: RowResult, is_snippet: bool = False) -> Source[Any]:
    """Return a source that makes `results` of any row."""
    return Source(rows=lambda *_: iter(()), parse=dict, convert=lambda *_: results, is_snippet=is_snippet)


def commit_row(**changes: Any) -> dict[str, Any]:
    """Return a row in the ten columns of CommitPackFT."""
    return {
        "commit": "e" * 40,
        "old_file": "src/queue.py",
        "new_file": "src/queue.py",
        "old_contents": "def declare():\n    old()\n",
        "new_contents": "def declare():\n    new()\n",
        "subject": "Declare queues early",
        "message": "Declare queues early\n\nSigned-off-by: A. Author <author@example.com>\n",
        "lang": "Python",
        "license": "bsd-3-clause",
        "repos": "demo/queue,fork/queue,demo/queue,other/queue",
        **changes,
    }
