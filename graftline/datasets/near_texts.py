"""Which texts are near to others whose splits are known, by the MinHash signatures of both.

Candidates agree in a band, as in `deduplicate.near_pairs`, and are then compared in full. Of the texts of one split that agree in a
band, the first `MOST_OF_BAND` are compared: what thousands of files share, such as a license at their head, would else take long. So
a text is missed if, in every band in which it agrees with one that is near, so many of the same split that are not near come first.

A text takes 384 bytes: 256 of its signature, 8 in the index of each of the 16 bands. Ten million take 4 GB, and twice the signatures
while they are put together.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from graftline.core.parquet import Column, ParquetWriter, arrow_table, read_table
from graftline.datasets.deduplicate import BANDS, Indices, Signatures, agreement, band_keys, signature_matrix

MOST_OF_BAND = 64
_SOUGHT_AT_ONCE = 1 << 14
SIGNATURES = "signatures.parquet"
_COLUMNS: dict[str, Column] = {"signature": "bytes", "split": "whole"}

Splits = npt.NDArray[np.int8]
_Keys = npt.NDArray[np.uint32]


class NearTexts:
    """Texts that are in a split, as their signatures."""

    def __init__(self, signatures: Signatures, splits: Splits, least: float) -> None:
        self.signatures, self.splits, self.least = signatures, splits, least

    @cached_property
    def _bands(self) -> list[tuple[_Keys, npt.NDArray[np.int32]]]:
        return [_index_band(_short_keys(self.signatures, band), self.splits) for band in BANDS]

    @classmethod
    def of(cls, signatures: Sequence[bytes], splits: Sequence[int], least: float) -> Self:
        """Return texts of which `signatures` are those of `fingerprints.signatures`."""
        return cls(signature_matrix(b"".join(signatures)), np.array(splits, np.int8), least)

    def __len__(self) -> int:
        return len(self.splits)

    def join(self, *texts: "NearTexts") -> "NearTexts":
        """Return the texts here and in `texts`."""
        parts = (self, *texts)
        signatures, splits = [part.signatures for part in parts], [part.splits for part in parts]
        return NearTexts(np.concatenate(signatures), np.concatenate(splits), self.least)

    def find(self, signatures: Signatures) -> tuple[Indices, Splits]:
        """Return rows of `signatures` that are near to a text, and in which split that one is; a row may stand there often."""
        rows_near, splits_near = [np.zeros(0, np.int64)], [np.zeros(0, np.int8)]
        starts_of_chunks = range(0, len(signatures) if len(self) else 0, _SOUGHT_AT_ONCE)
        for first, (band, (keys, order)) in product(starts_of_chunks, zip(BANDS, self._bands, strict=True)):
            sought = _short_keys(signatures[first : first + _SOUGHT_AT_ONCE], band)
            starts = np.searchsorted(keys, sought, "left")
            counts = np.searchsorted(keys, sought, "right") - starts
            rows = np.repeat(np.arange(first, first + len(sought)), counts)
            within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
            candidates = order[np.repeat(starts, counts) + within].astype(np.int64)
            is_near = agreement(signatures, self.signatures, np.stack([rows, candidates], axis=1)) >= self.least
            rows_near.append(rows[is_near])
            splits_near.append(self.splits[candidates[is_near]])
        return np.concatenate(rows_near), np.concatenate(splits_near)

    def write(self, folder: Path) -> None:
        """Write each text once to `folder`, for `read`."""
        pairs = np.unique(np.column_stack([self.signatures, self.splits.astype(np.uint32)]), axis=0)
        columns = {"signature": [row.tobytes() for row in pairs[:, :-1]], "split": pairs[:, -1].astype(np.int64)}
        with ParquetWriter(folder / SIGNATURES, _COLUMNS) as writer:
            writer.extend(arrow_table(columns, _COLUMNS))

    @classmethod
    def read(cls, folder: Path, least: float) -> Self:
        """Return what `write` left in `folder`; nothing where it was never called. ParquetError where the file is damaged."""
        if not (folder / SIGNATURES).exists():
            return cls.of([], [], least)
        table = read_table(folder / SIGNATURES, [*_COLUMNS])
        return cls.of(table["signature"].to_pylist(), table["split"].to_pylist(), least)


def _short_keys(signatures: Signatures, band: int) -> _Keys:
    """Return keys as `band_keys` has them, of half the size: few that differ become equal, and candidates are compared in full."""
    return (band_keys(signatures, band) >> np.uint64(32)).astype(np.uint32)


def _index_band(keys: _Keys, splits: Splits) -> tuple[_Keys, npt.NDArray[np.int32]]:
    """Return the keys of one band in ascending order, and which texts they are of; of a key and split, `MOST_OF_BAND` at most."""
    order = np.lexsort((splits, keys)).astype(np.int32)
    keys, splits = keys[order], splits[order]
    is_indexed = np.ones(len(keys), np.bool_)
    is_indexed[MOST_OF_BAND:] = (keys[MOST_OF_BAND:] != keys[:-MOST_OF_BAND]) | (
        splits[MOST_OF_BAND:] != splits[:-MOST_OF_BAND]
    )
    return keys[is_indexed], order[is_indexed]
