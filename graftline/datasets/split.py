"""The files of the division and of the splits.

The division is one Parquet file per language, with a row for every normalized edit in the order of the comparison. A
split takes its edits from the normalized files by these rows: lines of JSON as they are, and columns.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from graftline.astgrep.binding import Language
from graftline.core.parquet import ParquetWriter, arrow_table, filter_rows, read_table
from graftline.datasets.catalog import Splitting
from graftline.datasets.comparison import Comparison, Part, load_comparison, shards
from graftline.datasets.division import REASONS, SPLITS, Division, Split, divide
from graftline.datasets.tables import DIVISION, EDITS

_FROM_NORMALIZED = tuple(name for name in EDITS if name not in ("language", "split", "cluster"))

_READERS = 2


def write_division(
    datasets: Mapping[str, Path], languages: Sequence[Language], splitting: Splitting, folder: Path
) -> dict[str, int]:
    """Divide the normalized datasets, given in the order of precedence, and return what became of their edits."""
    edits = load_comparison(datasets, languages)
    division = divide(edits, splitting)
    ids = _ids(edits)
    for language in languages:
        with ParquetWriter(folder / f"{language}.parquet", DIVISION) as writer:
            for part in edits.parts:
                if part.language == language:
                    writer.extend(arrow_table(_rows(division, ids, part), DIVISION))
    return division.counts()


def _ids(edits: Comparison) -> list[str]:
    return [id for part in edits.parts for id in read_table(part.table, ["id"])["id"].to_pylist()]


def _rows(division: Division, ids: list[str], part: Part) -> dict[str, list[str | None]]:
    here = slice(part.first, part.first + part.edits)
    return {
        "dataset": [part.dataset] * part.edits,
        "id": list(ids[here]),
        "split": [SPLITS[split] if split >= 0 else None for split in division.splits[here].tolist()],
        "reason": [REASONS[reason] or None for reason in division.reasons[here].tolist()],
        "kept_id": [
            ids[kept] if kept != index else None for index, kept in enumerate(division.kept[here].tolist(), part.first)
        ],
        "cluster": [f"{name:016x}" for name in division.clusters[here].tolist()],
    }


def write_split(
    division: Path, datasets: Mapping[str, Path], language: Language, split: Split, folder: Path
) -> dict[str, int]:
    """Write the edits of one language and split, and return how many there are of each dataset.

    `division` is the folder that `write_division` wrote for `datasets`.
    """
    table = read_table(division / f"{language}.parquet", ["split", "cluster"])
    is_here = np.asarray(table["split"].to_numpy() == split)
    counts: dict[str, int] = {}
    chosen: list[_Chosen] = []
    first = 0
    for dataset, normalized in datasets.items():
        for path in shards(normalized, language):
            sizes = read_table(path, ["line_bytes"])["line_bytes"].to_numpy() + 1
            mask = is_here[first : first + len(sizes)]
            chosen.append(_Chosen(path, sizes, mask, table["cluster"].slice(first, len(sizes))))
            if found := int(mask.sum()):
                counts[f"rows.{dataset}"] = counts.get(f"rows.{dataset}", 0) + found
            first += len(sizes)
    # side by side: most of the time is spent below Python
    with ThreadPoolExecutor(1) as beside:
        lines = beside.submit(_copy_lines, chosen, folder / "edits.jsonl")
        _copy_columns(chosen, language, split, folder / "edits.parquet")
        lines.result()
    return {"rows": sum(counts.values()), **counts}


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The edits of one shard that are in a split."""

    table: Path
    line_sizes: Any
    """Of all edits of the shard, ends of lines included."""
    mask: Any
    """Which of them are chosen."""
    clusters: Any
    """Of all edits of the shard."""


def _copy_lines(chosen: Sequence[_Chosen], target: Path) -> None:
    with target.open("wb") as stream:
        for shard in chosen:
            if not shard.mask.any():
                continue
            ends = np.cumsum(shard.line_sizes)
            # neighbors are copied together
            edges = np.flatnonzero(np.diff(np.concatenate(([0], shard.mask.astype(np.int8), [0]))))
            path = shard.table.with_suffix(".jsonl")
            with path.open("rb") as source, mmap(source.fileno(), 0, access=ACCESS_READ) as content:
                for start, end in edges.reshape(-1, 2).tolist():
                    stream.write(content[int(ends[start] - shard.line_sizes[start]) : int(ends[end - 1])])


def _copy_columns(chosen: Sequence[_Chosen], language: str, split: str, target: Path) -> None:
    shards = [shard for shard in chosen if shard.mask.any()]
    # shards are read while others are packed: both are done outside the interpreter's lock
    with ParquetWriter(target, EDITS) as writer, ThreadPoolExecutor(_READERS) as readers:
        waiting: deque[Future[Any]] = deque()
        for shard in shards:
            waiting.append(readers.submit(_columns, shard, language, split))
            if len(waiting) > 2 * _READERS:
                writer.extend(waiting.popleft().result())
        for table in waiting:
            writer.extend(table.result())


def _columns(shard: _Chosen, language: str, split: str) -> Any:
    kept = filter_rows(read_table(shard.table, _FROM_NORMALIZED), shard.mask)
    own = {
        "language": [language] * kept.num_rows,
        "split": [split] * kept.num_rows,
        "cluster": filter_rows(shard.clusters, shard.mask),
    }
    return arrow_table({**{name: kept[name] for name in _FROM_NORMALIZED}, **own}, EDITS)
