"""Which split each edit is in, so that nothing leaks, and the files of the splits.

What hangs together goes together: edits of one group (repository or package, forks included), of one commit, with equal
or similar texts before. Splits have their configured shares of every language, as far as its clusters allow: a new
cluster that is small goes to a split by the hash of its least group, within the shares that what was assigned before
leaves. Those that hold more than a thousandth of a language are dealt after it, the largest first, each where the
shares of its languages are then nearest to the configured ones; where a language has as few clusters left as empty
splits, to one of these.

What was assigned once stays: a cluster that holds an edit, a text, a repository or a commit of an earlier assignment
goes where that one is, whatever is added, and even if it was away in between; so does one whose texts are like those of
a change of a repository. New edits that would join two splits fall out (`joins_splits`), and so do all edits of a
cluster that is in two splits without them.

The assignments are one Parquet file per language, with a row for every normalized edit in the order in which edits are
compared. A split takes its edits from the normalized files by these rows: lines of JSON as they are, and columns.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graftline.astgrep.binding import Language
from graftline.core.parquet import Column, ParquetError, ParquetWriter, arrow_table, filter_rows, read_table
from graftline.datasets.catalog import Splitting
from graftline.datasets.deduplicate import (
    REASONS,
    EditTable,
    Indices,
    Pairs,
    Shard,
    components,
    equal_pairs,
    find_duplicates,
    least_of,
    load_edits,
    near_pairs,
    read_signatures,
    shard_tables,
)
from graftline.datasets.edit import DIVISION, EDITS
from graftline.datasets.fingerprints import PERMUTATIONS, Hashes, key
from graftline.datasets.near_texts import NearTexts

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")

LARGE_SHARE = 0.001
"""A cluster that holds more of a language is dealt. The hashes of a thousand that do not err by one percent for `dev`
and `test`.
"""
_COPIED = tuple(name for name in EDITS if name not in ("language", "split", "cluster"))
"""Columns of a split that are as they were normalized."""
_READERS = 2
ASSIGNED = "assigned.parquet"
_ASSIGNED_COLUMNS: Mapping[str, Column] = {"key": "key", "split": "whole"}
"""Hashes of edits, texts, repositories and commits, and the index of their split."""
MOVES = "moves.parquet"
MOVES_COLUMNS: Mapping[str, Column] = {
    "dataset": "word",
    "language": "word",
    "earlier": "word?",
    "split": "word?",
    "reason": "word?",
    "rows": "whole",
}
"""How many edits were in which split before (none of those that are new), and are in which one now, or why in none."""


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

    assigned: "Assigned"
    """What is assigned from now on."""

    def counts(self) -> dict[str, int]:
        """Return how many edits there were, are kept, and fell out for which reason."""
        reasons = Counter(REASONS[reason] for reason in self.reasons.tolist())
        rows = reasons.pop("", 0)
        clusters = len(np.unique(self.clusters[self.reasons == 0]))
        dropped = {f"dropped.{reason}": reasons[reason] for reason in REASONS if reason in reasons}
        return {"rows_in": len(self.reasons), "rows": rows, "clusters": clusters, **dropped}


@dataclass(frozen=True, slots=True)
class Assigned:
    """The splits of edits, texts, repositories and commits that were assigned at any time."""

    keys: Hashes
    """Ascending, each once."""
    splits: npt.NDArray[np.int8]
    """Index into `SPLITS`."""

    @classmethod
    def of(cls, keys: Hashes, splits: npt.NDArray[np.int8]) -> "Assigned":
        """Return what is known of `keys`; of one that stands twice the first split counts."""
        unique, first = np.unique(keys, return_index=True)
        return cls(unique, splits[first])

    def join(self, other: "Assigned") -> "Assigned":
        """Return what is assigned here or in `other`; where both say something, what is here counts."""
        return Assigned.of(np.concatenate([self.keys, other.keys]), np.concatenate([self.splits, other.splits]))

    def find(self, keys: Hashes) -> npt.NDArray[np.int8]:
        """Return the split of each key; -1 where it was never assigned."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int8)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.splits[places], np.int8(-1))


NOTHING_ASSIGNED = Assigned(np.zeros(0, np.uint64), np.zeros(0, np.int8))


def assign_splits(
    edits: EditTable,
    splitting: Splitting,
    assigned: Assigned = NOTHING_ASSIGNED,
    of_changes: NearTexts | None = None,
) -> Assignments:
    """Return which of `edits` are kept, and the split of each; what is `assigned` stays where it is.

    What is near to a text `of_changes` of repositories goes where that one is.
    """
    near_changes = (of_changes or NearTexts.of([], [], splitting.near_duplicate)).find(edits.signatures)
    near = near_pairs(edits.signatures, splitting.near_duplicate)
    reasons, originals = find_duplicates(edits, near)
    numbers = _number_clusters(edits, near, np.ones(len(edits), np.bool_))
    earlier = _find_earlier(edits, numbers, assigned, near_changes)
    if (is_torn := (earlier.sum(axis=1) > 1)[numbers]).any():
        is_between = is_torn & (assigned.find(edits.ids) < 0)
        numbers = _number_clusters(edits, near, ~is_between)
        earlier = _find_earlier(edits, numbers, assigned, near_changes)
        is_between |= (earlier.sum(axis=1) > 1)[numbers]
        # what falls out is kept in nobody's stead
        is_between |= is_between[originals]
        reasons[is_between] = REASONS.index("joins_splits")
        originals[is_between] = np.flatnonzero(is_between)
    # the least group of a cluster, which is the first link of an edit: it stays the same when others join, unless one
    # of them is less
    groups = edits.links[np.flatnonzero(np.diff(edits.link_owners, prepend=-1))]
    clusters = least_of(numbers, groups)[numbers] if len(edits) else groups
    is_known = earlier.any(axis=1)
    splits_known = np.where(is_known, earlier.argmax(axis=1), -1)[numbers].astype(np.int8)
    splits = _splits_of(edits, clusters, numbers, splits_known, reasons == 0, splitting)
    return Assignments(reasons, originals, clusters, splits, _remember(edits, numbers, splits, assigned))


def _number_clusters(edits: EditTable, near: Pairs, is_included: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return the number of the cluster of each edit; one that is not included joins nothing, and is alone."""
    rows = np.flatnonzero(is_included)
    is_link = is_included[edits.link_owners]
    return components(
        len(edits),
        [
            equal_pairs(edits.links[is_link], edits.link_owners[is_link]),
            equal_pairs(edits.pre[rows], rows),
            near[is_included[near].all(axis=1)],
        ],
    )


def _find_earlier(
    edits: EditTable,
    numbers: npt.NDArray[np.int32],
    assigned: Assigned,
    near_changes: tuple[Indices, npt.NDArray[np.int8]],
) -> npt.NDArray[np.bool_]:
    """Return for each cluster in which of the splits something of it was assigned before, or is near to what was."""
    earlier = np.zeros((int(numbers.max(initial=-1)) + 1, len(SPLITS)), np.bool_)
    rows, splits_near = near_changes
    earlier[numbers[rows], splits_near] = True
    everyone = np.arange(len(edits))
    for keys, owners in ((edits.ids, everyone), (edits.pre, everyone), (edits.links, edits.link_owners)):
        splits = assigned.find(keys)
        is_known = splits >= 0
        earlier[numbers[owners[is_known]], splits[is_known]] = True
    return earlier


def _remember(
    edits: EditTable, numbers: npt.NDArray[np.int32], splits: npt.NDArray[np.int8], assigned: Assigned
) -> Assigned:
    """Return what was assigned before, with all that the clusters of kept edits hold."""
    of_cluster = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int8)
    is_kept = splits >= 0
    of_cluster[numbers[is_kept]] = splits[is_kept]
    of_edit = of_cluster[numbers] if len(edits) else splits
    keys = np.concatenate([edits.ids, edits.pre, edits.links])
    new = np.concatenate([of_edit, of_edit, of_edit[edits.link_owners]])
    is_assigned = new >= 0
    return Assigned.of(
        np.concatenate([assigned.keys, keys[is_assigned]]), np.concatenate([assigned.splits, new[is_assigned]])
    )


def _splits_of(
    edits: EditTable,
    names: Hashes,
    numbers: npt.NDArray[np.int32],
    splits_known: npt.NDArray[np.int8],
    is_kept: npt.NDArray[np.bool_],
    splitting: Splitting,
) -> npt.NDArray[np.int8]:
    splits = np.full(len(edits), -1, np.int8)
    if not is_kept.any():
        return splits
    shares = np.array([splitting.train, splitting.dev, splitting.test])
    _, first, cluster_of_edit = np.unique(numbers[is_kept], return_index=True, return_inverse=True)
    names_of_clusters, chosen_before = names[is_kept][first], splits_known[is_kept][first]
    languages = edits.languages[is_kept].astype(np.int64)
    sizes = np.zeros((len(first), int(languages.max()) + 1), np.int64)
    np.add.at(sizes, (cluster_of_edit, languages), 1)
    # a number from 0 to 1 for every cluster, by its name and the seed alone
    places = np.array([key(b"%d" % splitting.seed, b"%d" % name) / 2**64 for name in names_of_clusters.tolist()])
    splits[is_kept] = _choose_splits(sizes, chosen_before, places, shares)[cluster_of_edit]
    return splits


def _choose_splits(
    sizes: Indices,
    chosen_before: npt.NDArray[np.int8],
    places: npt.NDArray[np.float64],
    shares: npt.NDArray[np.float64],
) -> Indices:
    """Return the split of each cluster, of which `sizes` are the edits in each language."""
    totals = np.maximum(sizes.sum(axis=0), 1)
    is_new, is_large = chosen_before < 0, (sizes > LARGE_SHARE * totals).any(axis=1)
    chosen = chosen_before.astype(np.int64)

    def fill(which: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        # as whole numbers, whose sum is the same in any order
        filled = np.zeros((len(SPLITS), sizes.shape[1]), np.int64)
        np.add.at(filled, chosen[which], sizes[which])
        parts: npt.NDArray[np.float64] = filled / totals
        return parts

    # small ones go by their places alone, as long as nothing was assigned that others have to make up for
    lacking = np.maximum(shares[:, None] - fill(~is_new), 0)
    edges = np.cumsum(lacking / np.maximum(lacking.sum(axis=0), np.finfo(float).tiny), axis=0)
    main = (sizes / totals).argmax(axis=1)
    is_small = is_new & ~is_large
    chosen[is_small] = (places >= edges[:-1, main]).sum(axis=0)[is_small]
    # the largest first, for what remains then fits better; those of about one size in the order of the seed
    powers = np.frexp((sizes / totals).max(axis=1))[1]
    order = sorted(np.flatnonzero(is_new & is_large).tolist(), key=lambda cluster: (-powers[cluster], places[cluster]))
    chosen[order] = _deal(sizes[order] / totals, fill(is_small | ~is_new), shares)
    return chosen


def _deal(
    parts_C: npt.NDArray[np.float64], filled: npt.NDArray[np.float64], shares: npt.NDArray[np.float64]
) -> list[int]:
    """Return the split of each new cluster in turn.

    `parts_C` says what part of each language a cluster holds, `filled` what part each split has of each already. A
    cluster goes where it adds least to the chi-square distance of the splits of its languages from `shares`.
    """
    chosen = list[int]()
    remaining = (parts_C > 0).sum(axis=0)
    for parts in parts_C:
        is_empty, is_held = filled == 0, parts > 0
        growth = (parts * (parts - 2 * (shares[:, None] - filled))).sum(axis=1) / shares
        # no split stays empty that the last clusters of a language could fill
        needs_empty = is_held & (remaining <= is_empty.sum(axis=0))
        missed = (needs_empty & ~is_empty).sum(axis=1)
        split = int(np.lexsort((growth, missed))[0])
        chosen.append(split)
        filled[split] += parts
        remaining -= is_held
    return chosen


def write_assignments(
    datasets: Mapping[str, Path],
    languages: Sequence[Language],
    splitting: Splitting,
    folder: Path,
    assigned: Assigned = NOTHING_ASSIGNED,
    earlier: Assigned = NOTHING_ASSIGNED,
    of_changes: NearTexts | None = None,
) -> dict[str, int]:
    """Assign the edits of the normalized datasets, given in the order of precedence, and return what became of them.

    What is `assigned`, or like a text `of_changes` of repositories, stays where it is; what is from now on is written
    beside the assignments, for `read_assigned`, and how many edits are new, stayed or fell out since they were in the
    splits of `earlier`, by dataset, language and split.
    """
    edits = load_edits(datasets, languages)
    assignments = assign_splits(edits, splitting, assigned, of_changes)
    write_assigned(folder, assignments.assigned)
    ids = [id for shard in edits.shards for id in read_table(shard.table, ["id"])["id"].to_pylist()]
    for language in languages:
        with ParquetWriter(folder / f"{language}.parquet", DIVISION) as writer:
            for shard in edits.shards:
                if shard.language == language:
                    writer.extend(arrow_table(_assignment_columns(assignments, ids, shard), DIVISION))
    moves = _count_moves(assignments, edits, earlier)
    with ParquetWriter(folder / MOVES, MOVES_COLUMNS) as writer:
        writer.append(moves)
    totals = Counter[str]()
    for move in moves:
        if move["split"] or move["earlier"]:
            totals["new" if not move["earlier"] else "stayed" if move["split"] else "lost"] += move["rows"]
    return {**assignments.counts(), **{name: totals[name] for name in ("new", "stayed", "lost")}}


def write_assigned(folder: Path, assigned: Assigned) -> None:
    """Write what is assigned from now on to `folder`, for `read_assigned`."""
    with ParquetWriter(folder / ASSIGNED, _ASSIGNED_COLUMNS) as writer:
        columns = {"key": assigned.keys, "split": assigned.splits.astype(np.int64)}
        writer.extend(arrow_table(columns, _ASSIGNED_COLUMNS))


def read_assigned(folder: Path) -> Assigned:
    """Return what the assignments in `folder` say is assigned; nothing where there are none.

    Those of version 0.1.0 say it of edits alone. ParquetError where a file is no such file, or lacks a column.
    """
    if not (path := folder / ASSIGNED).exists():
        return read_splits(folder)
    try:
        table = read_table(path, [*_ASSIGNED_COLUMNS]).combine_chunks()
        return Assigned(table["key"].to_numpy(), table["split"].to_numpy().astype(np.int8))
    except (ValueError, KeyError) as error:  # of pyarrow
        raise ParquetError(f"{path}: cannot be read ({error})") from None


def read_splits(folder: Path) -> Assigned:
    """Return in which splits the edits of the assignments in `folder` are. ParquetError as `read_assigned`."""
    keys, splits = list[int](), list[int]()
    try:
        for path in [folder / name for name in language_files(path.name for path in folder.glob("*.parquet"))]:
            table = read_table(path, ["id", "split"])
            for id, split in zip(table["id"].to_pylist(), table["split"].to_pylist(), strict=True):
                if split is not None:
                    keys.append(key(id.encode()))
                    splits.append(SPLITS.index(split))
    except (ValueError, KeyError) as error:  # of pyarrow
        raise ParquetError(f"{path}: cannot be read ({error})") from None
    return Assigned.of(np.array(keys, np.uint64), np.array(splits, np.int8))


def language_files(names: Iterable[str]) -> list[str]:
    """Return which of the files of a division hold the assignments of a language."""
    return sorted(set(names) - {ASSIGNED, MOVES})


def _count_moves(assignments: Assignments, edits: EditTable, earlier: Assigned) -> list[dict[str, Any]]:
    """Return the rows of `MOVES`."""
    counts = Counter[tuple[str, str, int]]()
    # as one number each: the three have fewer than 8 values
    splits = assignments.splits.astype(np.int64) + 1
    moves = (earlier.find(edits.ids).astype(np.int64) + 1) * 64 + splits * 8 + assignments.reasons
    for shard in edits.shards:
        of_shard = np.unique(moves[shard.first : shard.first + shard.edits], return_counts=True)
        for move, rows in zip(*of_shard, strict=True):
            counts[shard.dataset, shard.language, int(move)] += int(rows)
    names = (None, *SPLITS)
    return [
        {
            "dataset": dataset,
            "language": language,
            "earlier": names[move // 64],
            "split": names[move // 8 % 8],
            "reason": REASONS[move % 8] or None,
            "rows": rows,
        }
        for (dataset, language, move), rows in sorted(counts.items())
    ]


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


def read_near_edits(
    assignments: Path, datasets: Mapping[str, Path], languages: Sequence[Language], least: float
) -> NearTexts:
    """Return the texts before of all edits that are in a split; arguments as of `write_split`."""
    signatures, splits = [np.zeros((0, PERMUTATIONS), np.uint32)], [np.zeros(0, np.int8)]
    for language in languages:
        columns = read_table(assignments / f"{language}.parquet", ["split"])["split"].to_pylist()
        of_language = np.array([-1 if split is None else SPLITS.index(split) for split in columns], np.int8)
        shards = [path for folder in datasets.values() for path in shard_tables(folder, language)]
        tables = [read_signatures(read_table(path, ["signature"])["signature"]) for path in shards]
        signatures += [np.concatenate(tables)[of_language >= 0]] if tables else []
        splits.append(of_language[of_language >= 0])
    return NearTexts(np.concatenate(signatures), np.concatenate(splits), least)


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
