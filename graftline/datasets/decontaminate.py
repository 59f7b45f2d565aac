"""Evaluation texts, and which edits are too near to one to be trained on.

Two texts are near when they share so many of their 32-byte shingles (blanks and letter case aside) that the
smaller of the two is held by the other to the share of the configuration: containment, after Broder 1997. That is
about a line of code per shingle, where n-grams of words (13 of them, in https://arxiv.org/abs/2005.14165) would take
every `if __name__ == "__main__"` for a leak.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from graftline.core.errors import DataError
from graftline.core.parquet import ParquetError, parquet_rows
from graftline.datasets.fingerprints import Hashes, shingles, strip_whitespace
from graftline.datasets.formats import lines_of

WIDTH = 32
LEAST_SHINGLES = 64
"""Shorter texts are not looked for: they are found everywhere."""
_MAX_LINE_BYTES = 16 << 20
_TABLE_BITS = 22
_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")


@dataclass(frozen=True, slots=True)
class Evaluations:
    """The texts of evaluations, as shingles."""

    names: tuple[str, ...]
    """Of each text: `<file>:<row>`."""
    hashes: Hashes
    """Of the shingles of all texts, sorted."""
    owners: npt.NDArray[np.int32]
    """Index of the text that each of `hashes` is of."""
    sizes: npt.NDArray[np.int64]
    """Number of different shingles of each text."""
    table: npt.NDArray[np.bool_]
    """By the upper bits of a hash: whether it may be among them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look for."""
        return not self.names

    def nearest(self, folded: Sequence[bytes], least: float) -> list[tuple[float, str] | None]:
        """Return for each text the evaluation text it shares most with, if that is at least the share `least`."""
        nearest: list[tuple[float, str] | None] = [None] * len(folded)
        if self.is_empty or not folded:
            return nearest
        hashes, starts = shingles(folded, WIDTH)
        possible = np.concatenate(([0], np.cumsum(self.table[hashes >> np.uint64(64 - _TABLE_BITS)])))
        per_text = possible[starts[1:]] - possible[starts[:-1]]
        is_long = np.diff(starts) >= LEAST_SHINGLES
        for index in np.flatnonzero(is_long & (per_text >= least * LEAST_SHINGLES)):
            own = np.unique(hashes[starts[index] : starts[index + 1]])
            first, last = np.searchsorted(self.hashes, own, "left"), np.searchsorted(self.hashes, own, "right")
            shared = np.bincount(self.owners[_ranges(first, last)], minlength=len(self.names))
            shares = shared / np.minimum(self.sizes, len(own))
            best = int(np.argmax(shares))
            if shares[best] >= least:
                nearest[index] = float(shares[best]), self.names[best]
        return nearest


def evaluations(texts: Iterable[tuple[str, str]]) -> Evaluations:
    """Return the evaluations that hold `texts`, each with its name; texts that are too short are left out."""
    folded = [(name, strip_whitespace(text).lower()) for name, text in texts]
    long_enough = [(name, text) for name, text in folded if len(text) >= LEAST_SHINGLES]
    hashes, starts = shingles([text.replace(b"\0", b"?") for _, text in long_enough], WIDTH)
    own = [np.unique(hashes[start:end]) for start, end in pairwise(starts)]
    flat = np.concatenate([np.zeros(0, np.uint64), *own])
    owners = np.repeat(np.arange(len(own), dtype=np.int32), [len(part) for part in own])
    order = np.argsort(flat, kind="stable")
    table = np.zeros(1 << _TABLE_BITS, np.bool_)
    table[flat >> np.uint64(64 - _TABLE_BITS)] = True
    sizes = np.array([len(part) for part in own], np.int64)
    return Evaluations(tuple(name for name, _ in long_enough), flat[order], owners[order], sizes, table)


def _ranges(first: npt.NDArray[np.intp], last: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return all numbers from each `first` up to its `last`."""
    lengths = last - first
    offsets = np.repeat(first - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    return offsets + np.arange(lengths.sum())


def evaluation_files(folder: Path) -> list[Path]:
    """Return the files below `folder`, which may not exist, that hold rows of evaluations."""
    paths = folder.rglob("*") if folder.is_dir() else ()
    return sorted(path for path in paths if path.name.lower().endswith(_ENDINGS) and path.is_file())


def texts_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every text of the rows of one file, with the file's name and the row's number.

    Raises:
        DataError: a row cannot be read: an evaluation with holes protects nothing.
    """
    for number, row in evaluation_rows(path):
        for text in _texts(row):
            yield f"{path.name}:{number}", text


def evaluation_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the rows of one file with their numbers, from 1.

    Raises:
        DataError: a row cannot be read.
    """
    if path.suffix == ".parquet":
        try:
            yield from enumerate(parquet_rows(path), 1)
        except ParquetError as error:
            raise DataError(f"{path}: {error}; an evaluation must be readable as a whole") from None
        return
    with path.open("rb") as stream:
        for row in lines_of(stream, path.name, _MAX_LINE_BYTES):
            fault = str(row.content)
            if isinstance(row.content, bytes):
                try:
                    yield row.line, orjson.loads(row.content)
                    continue
                except orjson.JSONDecodeError as error:
                    fault = f"is not JSON ({error})"
            raise DataError(f"{path}: line {row.line}: {fault}; an evaluation must be readable as a whole")


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
