"""A few edits, chosen by chance but always the same ones for a seed, or a few of the rows that were left out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from graftline.core.errors import ConfigError, RecordError
from graftline.core.parquet import parquet_tables, read_table
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, load_verified
from graftline.core.text_diff import escape_controls, unified_diff
from graftline.datasets.catalog import Catalog
from graftline.datasets.deduplicate import REASONS, shard_tables
from graftline.datasets.edit import RejectReason
from graftline.pipeline.dataset_views.listing import partitions_named, sources_named

ALL_REASONS = "all"
_COLUMNS = ("id", "dataset", "licence", "origin", "instruction", "pre", "post")
# what moves the cursor, changes colors, or has text read in another order than it stands

SampledT = TypeVar("SampledT")


@dataclass(frozen=True, slots=True)
class SampledEdit:
    """One edit."""

    id: str
    dataset: str
    language: str
    split: str
    """Empty where normalized edits were asked for, divided or not."""
    licence: str
    origin: str
    instruction: str
    pre: str
    post: str

    def diff(self) -> list[str]:
        """Return the change as lines of a unified diff, what cannot be seen spelled out."""
        return [escape_controls(line[:-1]) for line in unified_diff(self.pre, self.post, "before", "after")]


@dataclass(frozen=True, slots=True)
class SampledDrop:
    """A row, or an edit, that was left out."""

    dataset: str
    where: str
    """File and line relative to the root; the id of an edit that another one says already."""
    reason: str
    detail: str


def sample_edits(
    paths: Paths,
    catalog: Catalog,
    names: Sequence[str],
    number: int,
    language: str | None,
    split: str | None,
    seed: int,
) -> list[SampledEdit]:
    """Return `number` of the edits of the datasets called `names`, or of those in use, in the order they are stored.

    Of the edits of `split`; without one, of all normalized edits, duplicates included.

    Raises:
        ConfigError: a dataset, the language or the split is unknown.
        RecordError: there are no such edits yet, or a file is not what its record says.
    """
    chosen = sources_named(catalog, names)
    partitions = partitions_named(catalog, language, split)
    languages = list(dict.fromkeys(code for code, _ in partitions))
    if split is None:
        stored = _find_normalized(paths, chosen, must=bool(names))
        places = [
            (code, path) for name in stored for code in languages for path in shard_tables(paths.normalized(name), code)
        ]
    else:
        places = [(code, _split_folder(paths, code, split) / "edits.parquet") for code in languages]
    return _draw([_edit_table(path, code, split or "", chosen) for code, path in places], number, seed)


def sample_drops(
    paths: Paths, catalog: Catalog, names: Sequence[str], number: int, reason: str, seed: int
) -> list[SampledDrop]:
    """Return `number` of what was left out of the datasets called `names`, or of those in use, for `reason`.

    Raises:
        ConfigError: a dataset or the reason is unknown.
        RecordError: nothing is normalized yet, or a file is not what its record says.
    """
    rows, duplicates = [str(reject_reason) for reject_reason in RejectReason], list(REASONS[1:])
    if reason not in (ALL_REASONS, *rows, *duplicates):
        reasons = ", ".join((ALL_REASONS, *rows, *duplicates))
        raise ConfigError(f"reason {reason!r} is unknown; known: {reasons}")
    tables = []
    for name in _find_normalized(paths, sources_named(catalog, names), must=bool(names)):
        if reason not in duplicates:
            tables.append(_drop_table(paths, name, reason))
        if reason not in rows and (paths.division / RECORD_NAME).exists():
            files = load_verified(paths.division, "division").files
            tables += [_duplicate_table(paths.division / file, name, reason) for file in files]
    return _draw(tables, number, seed)


@dataclass(frozen=True, slots=True)
class _Table(Generic[SampledT]):
    """Rows of one Parquet file to draw from."""

    path: Path
    is_wanted: npt.NDArray[np.bool_]
    """Of every row."""
    columns: tuple[str, ...]
    sampled: Callable[[dict[str, Any]], SampledT]
    """Makes of the columns of a row what is shown."""


def _draw(tables: Sequence[_Table[SampledT]], number: int, seed: int) -> list[SampledT]:
    candidates = [np.flatnonzero(table.is_wanted) for table in tables]
    total = sum(map(len, candidates))
    places = np.array(sorted(Random(seed).sample(range(total), min(number, total))), np.int64)
    samples: list[SampledT] = []
    first = 0
    for table, rows in zip(tables, candidates, strict=True):
        local = places[(places >= first) & (places < first + len(rows))] - first
        samples += map(table.sampled, _rows(table, rows[local]))
        first += len(rows)
    return samples


def _rows(table: _Table[SampledT], rows: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    first = 0
    for group in parquet_tables(table.path, table.columns) if len(rows) else ():
        yield from group.take(rows[(rows >= first) & (rows < first + group.num_rows)] - first).to_pylist()
        first += group.num_rows


def _edit_table(path: Path, language: str, split: str, names: Sequence[str]) -> _Table[SampledEdit]:
    is_wanted = np.isin(_column(path, "dataset"), names)
    return _Table(path, is_wanted, _COLUMNS, lambda row: SampledEdit(language=language, split=split, **row))


def _drop_table(paths: Paths, name: str, reason: str) -> _Table[SampledDrop]:
    path, raw = paths.normalized(name) / "dropped.parquet", paths.relative(paths.raw(name))

    def show(row: dict[str, Any]) -> SampledDrop:
        return SampledDrop(name, f"{raw}/{row['file']}:{row['line']}", row["reason"], row["detail"])

    reasons = _column(path, "reason")
    return _Table(path, (reasons == reason) | (reason == ALL_REASONS), ("file", "line", "reason", "detail"), show)


def _duplicate_table(path: Path, name: str, reason: str) -> _Table[SampledDrop]:
    def show(row: dict[str, Any]) -> SampledDrop:
        return SampledDrop(name, row["id"], row["reason"], f"{row['kept_id']} is kept instead")

    reasons = _column(path, "reason")
    is_duplicate = np.isin(reasons, REASONS[1:] if reason == ALL_REASONS else [reason])
    return _Table(path, is_duplicate & (_column(path, "dataset") == name), ("id", "reason", "kept_id"), show)


def _column(path: Path, name: str) -> npt.NDArray[np.str_]:
    values: list[str | None] = read_table(path, [name])[name].to_pylist()
    return np.array([value or "" for value in values], np.str_)


def _split_folder(paths: Paths, language: str, split: str) -> Path:
    folder = paths.partition("processed", language, split)
    if not (folder / RECORD_NAME).exists():
        raise RecordError(f"splits {language}/{split}: are not made yet; run 'graftline datasets split' first")
    load_verified(folder, "splits")
    return folder


def _find_normalized(paths: Paths, names: Sequence[str], must: bool) -> list[str]:
    """Return which of the datasets are normalized, their files verified; all of them have to be if they `must`."""
    present = [name for name in names if (paths.normalized(name) / RECORD_NAME).exists()]
    missing = [name for name in names if name not in present]
    if missing and (must or not present):
        raise RecordError(
            f"dataset {missing[0]!r}: is not normalized yet; run 'graftline datasets normalize {missing[0]}' first"
        )
    for name in present:
        load_verified(paths.normalized(name), "normalized")
    return present
