"""Which texts are near to others whose splits are known, by the MinHash signatures of both.

Candidates agree in a band, as in `deduplicate.near_pairs`, and are then compared in full. Of texts of the known side that agree in
one band, the first `MOST_OF_BAND` are compared: what thousands of files share, such as a license at their head, would else take long.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from graftline.core.parquet import Column, ParquetWriter, arrow_table, read_table
from graftline.datasets.deduplicate import BANDS, Indices, Signatures, agreement, band_keys, signature_matrix

MOST_OF_BAND = 64
SIGNATURES = "signatures.parquet"
_COLUMNS: dict[str, Column] = {"signature": "bytes", "split": "whole"}

Splits = npt.NDArray[np.int8]


class NearTexts:
    """Texts that are in a split, as their signatures."""

    def __init__(self, signatures: Signatures, splits: Splits, least: float) -> None:
        self.signatures, self.splits, self.least = signatures, splits, least
        keys = [band_keys(signatures, band) for band in BANDS]
        self._orders = [np.argsort(keys_of_band, kind="stable").astype(np.int32) for keys_of_band in keys]
        self._keys = [keys_of_band[order] for keys_of_band, order in zip(keys, self._orders, strict=True)]

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
        for band, keys, order in zip(BANDS, self._keys, self._orders, strict=True) if len(self) else ():
            sought = band_keys(signatures, band)
            starts = np.searchsorted(keys, sought, "left")
            counts = np.minimum(np.searchsorted(keys, sought, "right") - starts, MOST_OF_BAND)
            rows = np.repeat(np.arange(len(sought)), counts)
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
