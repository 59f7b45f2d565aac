"""How many edits there are of each dataset, how long, under which licences, and why rows were left out.

Read from records and Parquet files. The reports below `reports/` are not here: dbt makes them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graftline.core.errors import RecordError
from graftline.core.parquet import read_table
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, NormalizedRecord, load_verified
from graftline.datasets.catalog import Catalog
from graftline.datasets.deduplicate import shard_tables
from graftline.pipeline.dataset_views.listing import partitions_named, sources_named

_SIDES = ("pre_tokens", "post_tokens")

_Part = tuple[str, str, Any]
"""Language, split, and a pyarrow table of its edits."""
_Lengths = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Tokens of the texts before, and of those after."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """How long the texts of one side are."""

    mean: float
    median: int
    p95: int
    """Nearest rank, as the median: a length that an edit has."""
    max: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The edits of one language and split."""

    language: str
    split: str
    """Empty before edits are divided; `all` in the cell of all."""
    edits: int
    pre: Tokens
    post: Tokens


@dataclass(frozen=True, slots=True)
class DatasetStats:
    """What became of one dataset."""

    name: str
    version: str
    tokenizer: str
    rows_in: int
    edits: int
    labels: int
    licences: dict[str, int]
    """Edits and labels, by SPDX identifier; the most frequent first."""
    dropped: dict[str, int]
    """Rows and parts of rows, by reason; the most frequent first."""
    duplicates: dict[str, int]
    """Edits that were left out when all datasets were divided, by reason."""
    cells: list[Cell]


def stats(paths: Paths, catalog: Catalog, names: Sequence[str]) -> list[DatasetStats]:
    """Return the statistics of the datasets called `names`, or of those in use that are normalized.

    Raises:
        ConfigError: one is unknown, or an evaluation.
        RecordError: one that is named is not normalized, none is, or a file is not what its record says.
    """
    chosen = sources_named(catalog, names)
    present = [name for name in chosen if (paths.normalized(name) / RECORD_NAME).exists()]
    missing = [name for name in chosen if name not in present]
    if missing and (names or not present):
        raise RecordError(
            f"dataset {missing[0]!r}: is not normalized yet; run 'graftline datasets normalize {missing[0]}' first"
        )
    splits, divided = _read_splits(paths, catalog), _count_left_out(paths)
    return [_stats(paths, catalog, name, splits, divided) for name in present]


def _stats(
    paths: Paths, catalog: Catalog, name: str, splits: list[_Part], divided: Mapping[str, Counter[str]]
) -> DatasetStats:
    record = load_verified(paths.normalized(name), "normalized")
    if not isinstance(record, NormalizedRecord):
        raise RecordError(f"{paths.normalized(name)}: has no record of a dataset; materialize its asset again")
    counts = record.counts
    dropped = Counter({key.partition(".")[2]: count for key, count in counts.items() if key.startswith("dropped.")})
    parts = splits if splits and name in divided else _read_normalized(paths, catalog, name)
    return DatasetStats(
        name=name,
        version=record.version,
        tokenizer=record.tokenizer,
        rows_in=counts.get("rows_in", 0),
        edits=counts.get("rows", 0),
        labels=counts.get("labels", 0),
        licences=dict(Counter(record.licences).most_common()),
        dropped=dict(dropped.most_common()),
        duplicates=dict(divided.get(name, Counter()).most_common()),
        cells=_cells(parts, name),
    )


def _cells(parts: Iterable[_Part], name: str) -> list[Cell]:
    """Return a cell for every language and split, and one for all of them where they are several."""
    lengths: dict[tuple[str, str], list[_Lengths]] = {}
    for language, split, table in parts:
        counted = _lengths(table, name)
        if len(counted[0]):
            lengths.setdefault((language, split), []).append(counted)
    cells = [_cell(language, split, counted) for (language, split), counted in lengths.items()]
    if len(cells) > 1:
        cells.append(_cell("all", "all", [pair for counted in lengths.values() for pair in counted]))
    return cells


def _cell(language: str, split: str, lengths: Sequence[_Lengths]) -> Cell:
    pre, post = (np.concatenate(side) for side in zip(*lengths, strict=True))
    return Cell(language, split, len(pre), _tokens(pre), _tokens(post))


def _tokens(lengths: npt.NDArray[np.int64]) -> Tokens:
    ordered = np.sort(lengths)
    median, p95 = (int(ordered[-(-len(ordered) * share // 100) - 1]) for share in (50, 95))
    return Tokens(round(float(ordered.mean()), 1), median, p95, int(ordered[-1]))


def _lengths(table: Any, name: str) -> _Lengths:
    is_own = table["dataset"].to_numpy() == name
    pre, post = (table[side].to_numpy()[is_own] for side in _SIDES)
    return pre, post


def _read_splits(paths: Paths, catalog: Catalog) -> list[_Part]:
    parts: list[_Part] = []
    for language, split in partitions_named(catalog, None, None):
        folder = paths.partition("processed", language, split)
        if (folder / RECORD_NAME).exists():
            load_verified(folder, "splits")
            parts.append((language, split, read_table(folder / "edits.parquet", ["dataset", *_SIDES])))
    return parts


def _read_normalized(paths: Paths, catalog: Catalog, name: str) -> Iterator[_Part]:
    for language in catalog.languages:
        for path in shard_tables(paths.normalized(name), language):
            yield language, "", read_table(path, ["dataset", *_SIDES])


def _count_left_out(paths: Paths) -> dict[str, Counter[str]]:
    """Return by dataset how many edits the division left out, by reason; every dataset that it knows is there."""
    if not (paths.division / RECORD_NAME).exists():
        return {}
    counts_of: dict[str, Counter[str]] = {}
    for file in load_verified(paths.division, "division").files:
        table = read_table(paths.division / file, ["dataset", "reason"])
        for group in table.group_by(["dataset", "reason"]).aggregate([([], "count_all")]).to_pylist():
            counts = counts_of.setdefault(group["dataset"], Counter())
            if group["reason"]:
                counts[group["reason"]] += group["count_all"]
    return counts_of
