"""Which edits say the same, or nearly: over arrays, of all normalized datasets in one place.

Of edits that say the same, the first is kept: datasets come in their order of precedence. The same are, in this order,

1. `duplicate_id`, `duplicate_row`: equal id; equal instruction and text before;
2. `duplicate_commit`: equal commit and path, in whatever dataset;
3. `duplicate_code`: equal texts before and after, once blanks and letter case are folded;
4. `near_duplicate`: similar texts before (MinHash), and the same lines changed in them.

Candidates for similar texts come from locality-sensitive hashing: signatures that agree in one of 16 bands of 4 numbers.
Every candidate pair is then compared in full. In a band, a text is compared with the first one and with its neighbor, not
with all: what fifty thousand texts share would else take fifty thousand squared comparisons.
"""

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from graftline.astgrep.binding import Language
from graftline.codemod.diff import common_ends
from graftline.core.parquet import read_table
from graftline.datasets.fingerprints import PERMUTATIONS, Hashes

REASONS = ("", "duplicate_id", "duplicate_row", "duplicate_commit", "duplicate_code", "near_duplicate", "joins_splits")
"""Why an edit falls out; `joins_splits`, of `datasets.splits`, is no duplicate: it stands between edits of two splits."""

Indices = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int64]
"""Shape (pairs, 2), the lesser index first."""
Signatures = npt.NDArray[np.uint32]
"""Shape (texts, `PERMUTATIONS`)."""

_COLUMNS = ("line_bytes", "id_key", "asked_key", "pre_key", "done_key", "change_key", "link_keys", "signature")
_BAND_ROWS = 4
BANDS = range(0, PERMUTATIONS, _BAND_ROWS)
"""First column of each band of a signature."""
_COMPARED_AT_ONCE = 1 << 16
_REMEMBERED_CHANGES = 1 << 14  # an edit is compared with its neighbors in every band


@dataclass(frozen=True, slots=True)
class Shard:
    """Some normalized edits of one dataset in one language."""

    dataset: str
    language: Language
    table: Path
    """The edits as columns; as lines of JSON, they are in the `.jsonl` beside it."""
    first: int
    """Index of its first edit among all."""
    edits: int


def shard_tables(folder: Path, language: Language) -> list[Path]:
    """Return the tables of a normalized dataset in one language, in order; their lines are in `.jsonl` beside each."""
    return sorted(folder.glob(f"{language}-*.parquet"))


@dataclass(frozen=True, slots=True)
class EditTable:
    """One row per edit, datasets in the order of precedence, then languages, then edits as they are stored."""

    shards: tuple[Shard, ...]
    languages: npt.NDArray[np.int8]
    """Index among the languages of the table."""
    offsets: Indices
    """Where the edit's line begins in the file of its shard."""
    line_bytes: Indices
    ids: Hashes
    questions: Hashes
    """Of instruction and text before."""
    pre: Hashes
    """Of the folded text before."""
    texts: Hashes
    """Of the folded texts before and after."""
    changes: Hashes
    """Of commit and path; 0 where there is none."""
    links: Hashes
    """Of groups, aliases and commits, of all edits in a row."""
    link_owners: Indices
    """Index of the edit that each of `links` is of."""
    signatures: Signatures

    def __len__(self) -> int:
        return len(self.ids)

    def line(self, index: int) -> bytes:
        """Return the line of one edit."""
        shard = self.shards[bisect_right(self.shards, index, key=lambda shard: shard.first) - 1]
        # tens of thousands are read: a file object takes twice as long
        descriptor = os.open(shard.table.with_suffix(".jsonl"), os.O_RDONLY)
        try:
            return os.pread(descriptor, int(self.line_bytes[index]), int(self.offsets[index]))
        finally:
            os.close(descriptor)


def load_edits(folders: Mapping[str, Path], languages: Sequence[Language]) -> EditTable:
    """Return the columns of the normalized datasets in `folders`, which come in the order of precedence."""
    shards: list[Shard] = []
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*_COLUMNS, "language", "owner", "offset")}
    total = 0
    for dataset, folder in folders.items():
        for number, language in enumerate(languages):
            for path in shard_tables(folder, language):
                table = read_table(path, _COLUMNS).combine_chunks()
                rows = table.num_rows
                for name in _COLUMNS[:-2]:
                    columns[name].append(table[name].to_numpy())
                links = table["link_keys"].combine_chunks()
                columns["link_keys"].append(links.flatten().to_numpy())
                lengths = links.value_lengths().to_numpy()
                columns["owner"].append(np.repeat(np.arange(total, total + rows), lengths))
                columns["signature"].append(read_signatures(table["signature"]))
                columns["language"].append(np.full(rows, number, np.int8))
                ends = np.cumsum(columns["line_bytes"][-1] + 1)  # with the end of the line
                columns["offset"].append(ends - columns["line_bytes"][-1] - 1)
                shards.append(Shard(dataset, language, path, total, rows))
                total += rows
    whole = {name: np.concatenate(parts) if parts else np.zeros(0, np.uint64) for name, parts in columns.items()}
    return EditTable(
        shards=tuple(shards),
        languages=whole["language"].astype(np.int8, copy=False),
        offsets=whole["offset"].astype(np.int64, copy=False),
        line_bytes=whole["line_bytes"].astype(np.int64, copy=False),
        ids=whole["id_key"],
        questions=whole["asked_key"],
        pre=whole["pre_key"],
        texts=whole["done_key"],
        changes=whole["change_key"],
        links=whole["link_keys"],
        link_owners=whole["owner"].astype(np.int64, copy=False),
        signatures=whole["signature"].reshape(-1, PERMUTATIONS).astype(np.uint32, copy=False),
    )


def read_signatures(column: Any) -> Signatures:
    """Return a column of signatures, of a pyarrow table, as one row for each text."""
    signatures = column.combine_chunks()
    # all values have one length, so the buffer of their bytes is the matrix
    width = PERMUTATIONS * 4
    start = signatures.offset * width
    return signature_matrix(np.frombuffer(signatures.buffers()[2], np.uint8)[start : start + len(signatures) * width])


def signature_matrix(content: bytes | npt.NDArray[np.uint8]) -> Signatures:
    """Return signatures that stand one after the other as one row for each text."""
    return np.frombuffer(content, np.uint32).reshape(-1, PERMUTATIONS)


def band_keys(signatures: Signatures, band: int) -> Hashes:
    """Return a key for each text, which two share if they agree in the band that begins at column `band`."""
    keys = np.zeros(len(signatures), np.uint64)
    for column in np.ascontiguousarray(signatures[:, band : band + _BAND_ROWS]).T:
        keys = (keys ^ column) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(32)
    return keys


def find_duplicates(edits: EditTable, near: Pairs) -> tuple[npt.NDArray[np.int8], Indices]:
    """Return for each edit why it falls out, as index into `REASONS`, and which edit is kept in its stead, or itself.

    `near` are the pairs of edits with similar texts before.
    """
    reasons = np.zeros(len(edits), np.int8)
    originals = np.arange(len(edits))
    for reason, keys in enumerate((edits.ids, edits.questions, edits.changes, edits.texts), 1):
        remaining = np.flatnonzero((reasons == 0) & (keys != 0))
        first = first_of_equal(keys, remaining)
        is_duplicate = first != remaining
        reasons[remaining[is_duplicate]], originals[remaining[is_duplicate]] = reason, first[is_duplicate]
    diff_lines = lru_cache(_REMEMBERED_CHANGES)(lambda index: _diff_lines(edits.line(index)))
    # one after the other, for what an edit is a duplicate of may itself be one
    for earlier, later in near.tolist():
        if reasons[later] == 0 and reasons[earlier] == 0 and diff_lines(earlier) == diff_lines(later):
            reasons[later], originals[later] = REASONS.index("near_duplicate"), earlier
    while (originals[originals] != originals).any():
        originals = originals[originals]
    return reasons, originals


def _diff_lines(line: bytes) -> tuple[Counter[str], Counter[str]]:
    """Return the lines that go and those that come, blanks aside."""
    edit: Mapping[str, Any] = orjson.loads(line)
    before, after = edit["pre"].split("\n"), edit["post"].split("\n")
    # lines that both sides begin and end with cancel out anyway, and are most of them
    start, end = common_ends(before, after)
    old, new = (Counter("".join(text.split()) for text in side[start : len(side) - end]) for side in (before, after))
    return old - new, new - old


def near_pairs(signatures: Signatures, least: float) -> Pairs:
    """Return pairs of rows of `signatures` that agree in at least the share `least`."""
    if not len(signatures):
        return np.zeros((0, 2), np.int64)
    candidates = np.zeros(0, np.int64)
    for band in BANDS:
        pairs = equal_pairs(band_keys(signatures, band), with_first=True)
        # as one number each, for those are quicker to sort; a pair that is near is a candidate of many bands
        candidates = np.union1d(candidates, pairs[:, 0] << 32 | pairs[:, 1])
    pairs = np.stack([candidates >> 32, candidates & 0xFFFFFFFF], axis=1)
    return pairs[agreement(signatures, signatures, pairs) >= least]


def agreement(first: Signatures, second: Signatures, pairs: Pairs) -> npt.NDArray[np.float64]:
    """Return for each pair, a row of `first` and one of `second`, in which share of their numbers they agree."""
    chunks = [pairs[start : start + _COMPARED_AT_ONCE] for start in range(0, len(pairs), _COMPARED_AT_ONCE)]
    shares = [(first[chunk[:, 0]] == second[chunk[:, 1]]).mean(axis=1) for chunk in chunks]
    return np.concatenate([np.zeros(0), *shares])


def equal_pairs(keys: Hashes, owners: Indices | None = None, with_first: bool = False) -> Pairs:
    """Return pairs of indices, or of their `owners`, with equal keys: each with its neighbor, so that all are joined.

    `with_first` pairs each with the first one as well.
    """
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    pairs = np.stack([order[same], order[same + 1]], axis=1)
    if with_first:
        starts = np.maximum.accumulate(np.where(np.isin(same - 1, same, assume_unique=True), 0, same + 1)) - 1
        pairs = np.concatenate([pairs, np.stack([order[starts], order[same + 1]], axis=1)])
    if owners is not None:
        pairs = owners[pairs]
    return np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)


def components(size: int, edges: Iterable[Pairs]) -> npt.NDArray[np.int32]:
    """Return for each of `size` nodes the number of the component it is in."""
    if not size:
        return np.zeros(0, np.int32)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = np.concatenate([np.zeros((0, 2), np.int64), *edges])
    graph = coo_array((np.ones(len(pairs), np.bool_), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
    numbers: npt.NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return numbers


def first_of_equal(keys: Hashes, rows: Indices) -> Indices:
    """Return for each of `rows` the first one with the same of `keys`."""
    _, first, inverse = np.unique(keys[rows], return_index=True, return_inverse=True)
    return rows[first[inverse]]


def least_of(numbers: npt.NDArray[np.int32], values: Hashes) -> Hashes:
    """Return for each component in `numbers` the least of its `values`."""
    least = np.full(int(numbers.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, numbers, values)
    return least
