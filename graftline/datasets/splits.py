"""Which split each edit is in, so that nothing leaks, and the files of the splits.

What hangs together goes together: edits of one group (repository or package, forks included), of one commit, with equal
or similar texts before. Such a cluster goes to a split by the hash of its least group, so that a new dataset or a new
version leaves the others where they were. A cluster that holds more than a fiftieth of its language goes to the split
that is emptiest for its share, else a language with a handful of packages could have a split without any.

The assignments are one Parquet file per language, with a row for every normalized edit in the order in which edits are
compared. A split takes its edits from the normalized files by these rows: lines of JSON as they are, and columns.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graftline.astgrep.binding import Language
from graftline.core.parquet import ParquetWriter, arrow_table, filter_rows, read_table
from graftline.datasets.catalog import Splitting
from graftline.datasets.deduplicate import (
    REASONS,
    EditTable,
    Indices,
    Shard,
    components,
    equal_pairs,
    find_duplicates,
    least_of,
    load_edits,
    near_pairs,
    shard_tables,
)
from graftline.datasets.edit import DIVISION, EDITS
from graftline.datasets.fingerprints import Hashes, key

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")

LARGE_SHARE = 0.02
_COPIED = tuple(name for name in EDITS if name not in ("language", "split", "cluster"))
"""Columns of a split that are as they were normalized."""
_READERS = 2


@dataclass(frozen=True, slots=True)
class Assignments:
    """Where every edit belongs."""

    reasons: npt.NDArray[np.int8]
    """Index into `REASONS`; 0 for an edit that is kept."""
    originals: Indices
    """Index of the edit that is kept in its stead; its own where it is kept."""
    clusters: Hashes
    """Name of the cluster."""
    splits: npt.NDArray[np.int8]
    """Index into `SPLITS`; -1 for an edit that is not kept."""

    def counts(self) -> dict[str, int]:
        """Return how many edits there were, are kept, and fell out for which reason."""
        reasons = Counter(REASONS[reason] for reason in self.reasons.tolist())
        rows = reasons.pop("", 0)
        clusters = len(np.unique(self.clusters[self.reasons == 0]))
        dropped = {f"dropped.{reason}": reasons[reason] for reason in REASONS if reason in reasons}
        return {"rows_in": len(self.reasons), "rows": rows, "clusters": clusters, **dropped}


def assign_splits(edits: EditTable, splitting: Splitting) -> Assignments:
    """Return which of `edits` are kept, and the split of each."""
    near = near_pairs(edits.signatures, splitting.near_duplicate)
    reasons, originals = find_duplicates(edits, near)
    numbers = components(len(edits), [equal_pairs(edits.links, edits.link_owners), equal_pairs(edits.pre), near])
    # the least group of a cluster, which is the first link of an edit: it stays the same when others join, unless one
    # of them is less
    groups = edits.links[np.flatnonzero(np.diff(edits.link_owners, prepend=-1))]
    clusters = least_of(numbers, groups)[numbers] if len(edits) else groups
    return Assignments(reasons, originals, clusters, _splits_of(edits, clusters, reasons == 0, splitting))


def _splits_of(
    edits: EditTable, names: Hashes, is_kept: npt.NDArray[np.bool_], splitting: Splitting
) -> npt.NDArray[np.int8]:
    splits = np.full(len(edits), -1, np.int8)
    if not is_kept.any():
        return splits
    shares = np.array([splitting.train, splitting.dev, splitting.test])
    clusters, cluster_of_edit = np.unique(names[is_kept], return_inverse=True)
    languages = edits.languages[is_kept].astype(np.int64)
    sizes = np.zeros((len(clusters), int(languages.max()) + 1), np.int64)
    np.add.at(sizes, (cluster_of_edit, languages), 1)
    # a number from 0 to 1 for every cluster, by its name and the seed alone
    places = np.array([key(b"%d" % splitting.seed, b"%d" % cluster) / 2**64 for cluster in clusters.tolist()])
    chosen = np.minimum(np.searchsorted(np.cumsum(shares), places, side="right"), len(SPLITS) - 1)
    is_large = (sizes > LARGE_SHARE * sizes.sum(axis=0)).any(axis=1)
    filled = np.zeros((len(SPLITS), sizes.shape[1]))
    np.add.at(filled, chosen[~is_large], sizes[~is_large])
    # the largest first, for what remains then fits better
    for cluster in sorted(np.flatnonzero(is_large), key=lambda cluster: (-sizes[cluster].max(), places[cluster])):
        main = int(np.argmax(sizes[cluster]))
        chosen[cluster] = int(np.argmin(filled[:, main] / shares))
        filled[chosen[cluster]] += sizes[cluster]
    splits[is_kept] = chosen[cluster_of_edit]
    return splits


def write_assignments(
    datasets: Mapping[str, Path], languages: Sequence[Language], splitting: Splitting, folder: Path
) -> dict[str, int]:
    """Assign the edits of the normalized datasets, given in the order of precedence, and return what became of them."""
    edits = load_edits(datasets, languages)
    assignments = assign_splits(edits, splitting)
    ids = [id for shard in edits.shards for id in read_table(shard.table, ["id"])["id"].to_pylist()]
    for language in languages:
        with ParquetWriter(folder / f"{language}.parquet", DIVISION) as writer:
            for shard in edits.shards:
                if shard.language == language:
                    writer.extend(arrow_table(_assignment_columns(assignments, ids, shard), DIVISION))
    return assignments.counts()


def _assignment_columns(assignments: Assignments, ids: list[str], shard: Shard) -> dict[str, list[str | None]]:
    rows = slice(shard.first, shard.first + shard.edits)
    originals = enumerate(assignments.originals[rows].tolist(), shard.first)
    return {
        "dataset": [shard.dataset] * shard.edits,
        "id": list(ids[rows]),
        "split": [SPLITS[split] if split >= 0 else None for split in assignments.splits[rows].tolist()],
        "reason": [REASONS[reason] or None for reason in assignments.reasons[rows].tolist()],
        "kept_id": [ids[original] if original != index else None for index, original in originals],
        "cluster": [f"{name:016x}" for name in assignments.clusters[rows].tolist()],
    }


@dataclass(frozen=True, slots=True)
class _Selection:
    """The edits of one shard that are in a split."""

    table: Path
    line_sizes: Any
    """Of all edits of the shard, ends of lines included."""
    mask: Any
    """Which of them are in the split."""
    clusters: Any
    """Of all edits of the shard."""


def write_split(
    assignments: Path, datasets: Mapping[str, Path], language: Language, split: Split, folder: Path
) -> dict[str, int]:
    """Write the edits of one language and split, and return how many there are of each dataset.

    `assignments` is the folder that `write_assignments` wrote for `datasets`.
    """
    table = read_table(assignments / f"{language}.parquet", ["split", "cluster"])
    is_in_split = np.asarray(table["split"].to_numpy() == split)
    counts: Counter[str] = Counter()
    selections: list[_Selection] = []
    first = 0
    for dataset, normalized in datasets.items():
        for path in shard_tables(normalized, language):
            sizes = read_table(path, ["line_bytes"])["line_bytes"].to_numpy() + 1
            mask = is_in_split[first : first + len(sizes)]
            if number := int(mask.sum()):
                selections.append(_Selection(path, sizes, mask, table["cluster"].slice(first, len(sizes))))
                counts[f"rows.{dataset}"] += number
            first += len(sizes)
    # side by side: most of the time is spent below Python
    with ThreadPoolExecutor(1) as beside:
        lines = beside.submit(_copy_lines, selections, folder / "edits.jsonl")
        _copy_columns(selections, language, split, folder / "edits.parquet")
        lines.result()
    return {"rows": counts.total(), **counts}


def _copy_lines(selections: Sequence[_Selection], target: Path) -> None:
    with target.open("wb") as stream:
        for shard in selections:
            ends = np.cumsum(shard.line_sizes)
            # neighbors are copied together
            edges = np.flatnonzero(np.diff(np.concatenate(([0], shard.mask.astype(np.int8), [0]))))
            path = shard.table.with_suffix(".jsonl")
            with path.open("rb") as source, mmap(source.fileno(), 0, access=ACCESS_READ) as content:
                for start, end in edges.reshape(-1, 2).tolist():
                    stream.write(content[int(ends[start] - shard.line_sizes[start]) : int(ends[end - 1])])


def _copy_columns(selections: Sequence[_Selection], language: str, split: str, target: Path) -> None:
    # shards are read while others are packed: both are done outside the interpreter's lock
    with ParquetWriter(target, EDITS) as writer, ThreadPoolExecutor(_READERS) as readers:
        pending: deque[Future[Any]] = deque()
        for shard in selections:
            pending.append(readers.submit(_columns, shard, language, split))
            if len(pending) > 2 * _READERS:
                writer.extend(pending.popleft().result())
        for table in pending:
            writer.extend(table.result())


def _columns(shard: _Selection, language: str, split: str) -> Any:
    table = filter_rows(read_table(shard.table, _COPIED), shard.mask)
    added = {
        "language": [language] * table.num_rows,
        "split": [split] * table.num_rows,
        "cluster": filter_rows(shard.clusters, shard.mask),
    }
    return arrow_table({**{name: table[name] for name in _COPIED}, **added}, EDITS)
