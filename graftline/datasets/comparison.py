"""The columns that normalized edits are compared by, of all datasets in one place."""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graftline.astgrep.binding import Language
from graftline.core.parquet import read_table
from graftline.datasets.fingerprints import PERMUTATIONS, Hashes

_COLUMNS = ("line_bytes", "id_key", "asked_key", "pre_key", "done_key", "change_key", "link_keys", "signature")


@dataclass(frozen=True, slots=True)
class Part:
    """One shard: some normalized edits of one dataset in one language."""

    dataset: str
    language: Language
    lines: Path
    """The edits as lines of JSON."""
    table: Path
    """The edits as columns."""
    first: int
    """Index of its first edit among all."""
    edits: int


def shards(folder: Path, language: Language) -> list[Path]:
    """Return the tables of a normalized dataset in one language, in order; their lines are in `.jsonl` beside each."""
    return sorted(folder.glob(f"{language}-*.parquet"))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row per edit, datasets in the order of precedence, then languages, then edits as they are stored."""

    parts: tuple[Part, ...]
    languages: npt.NDArray[np.int8]
    """Index among the languages asked for."""
    offsets: npt.NDArray[np.int64]
    """Where the edit's line begins in the file of its part."""
    line_bytes: npt.NDArray[np.int64]
    ids: Hashes
    asked: Hashes
    """Of instruction and text before."""
    pre: Hashes
    """Of the folded text before."""
    done: Hashes
    """Of the folded texts before and after."""
    change: Hashes
    """Of commit and path; 0 where there is none."""
    links: Hashes
    """Of groups, aliases and commits, of all edits in a row."""
    link_owners: npt.NDArray[np.int64]
    """Index of the edit that each of `links` is of."""
    signatures: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.ids)

    def line(self, index: int) -> bytes:
        """Return the line of one edit."""
        part = self.parts[bisect_right(self.parts, index, key=lambda part: part.first) - 1]
        descriptor = os.open(part.lines, os.O_RDONLY)  # tens of thousands are read: a file object takes twice as long
        try:
            return os.pread(descriptor, int(self.line_bytes[index]), int(self.offsets[index]))
        finally:
            os.close(descriptor)


def load_comparison(folders: Mapping[str, Path], languages: Sequence[Language]) -> Comparison:
    """Return the columns of the normalized datasets in `folders`, which come in the order of precedence."""
    parts: list[Part] = []
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*_COLUMNS, "language", "owner", "offset")}
    total = 0
    for dataset, folder in folders.items():
        for number, language in enumerate(languages):
            for path in shards(folder, language):
                table = read_table(path, _COLUMNS).combine_chunks()
                rows = table.num_rows
                for name in _COLUMNS[:-2]:
                    columns[name].append(table[name].to_numpy())
                links = table["link_keys"].combine_chunks()
                columns["link_keys"].append(links.flatten().to_numpy())
                lengths = links.value_lengths().to_numpy()
                columns["owner"].append(np.repeat(np.arange(total, total + rows), lengths))
                columns["signature"].append(_matrix(table["signature"].combine_chunks()))
                columns["language"].append(np.full(rows, number, np.int8))
                ends = np.cumsum(columns["line_bytes"][-1] + 1)  # with the end of the line
                columns["offset"].append(ends - columns["line_bytes"][-1] - 1)
                parts.append(Part(dataset, language, path.with_suffix(".jsonl"), path, total, rows))
                total += rows
    joined = {name: np.concatenate(found) if found else np.zeros(0, np.uint64) for name, found in columns.items()}
    return Comparison(
        parts=tuple(parts),
        languages=joined["language"].astype(np.int8, copy=False),
        offsets=joined["offset"].astype(np.int64, copy=False),
        line_bytes=joined["line_bytes"].astype(np.int64, copy=False),
        ids=joined["id_key"],
        asked=joined["asked_key"],
        pre=joined["pre_key"],
        done=joined["done_key"],
        change=joined["change_key"],
        links=joined["link_keys"],
        link_owners=joined["owner"].astype(np.int64, copy=False),
        signatures=joined["signature"].reshape(-1, PERMUTATIONS).astype(np.uint32, copy=False),
    )


def _matrix(signatures: Any) -> npt.NDArray[np.uint32]:
    # all values have one length, so the buffer of their bytes is the matrix
    data = signatures.buffers()[2]
    width = PERMUTATIONS * 4
    start = signatures.offset * width
    return np.frombuffer(data, np.uint8)[start : start + len(signatures) * width].view(np.uint32)
