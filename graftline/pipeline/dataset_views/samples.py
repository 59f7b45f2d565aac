"""A few edits, chosen by chance but always the same ones for a seed, or a few of the rows that were left out."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from graftline.core.errors import ConfigError, RecordError
from graftline.core.parquet import parquet_tables, read_table
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, load_verified
from graftline.datasets.catalog import Catalog
from graftline.datasets.deduplicate import REASONS, shard_tables
from graftline.datasets.edit import RejectReason
from graftline.datasets.instruction_source import FIELDS, default_source
from graftline.datasets.splits import SPLITS, language_files
from graftline.pipeline.dataset_views import Table
from graftline.pipeline.dataset_views.listing import find_normalized, partitions_named, sources_named
from graftline.rollouts.task import Task

ALL_REASONS = "all"
_COLUMNS = ("id", "dataset", "license", "licence", "origin", "instruction", *FIELDS, "tags", "pre", "post")
"""Those that a file has: version 0.1.0 spelled `license` in the other way, and said by tags where an instruction comes from."""

Row = dict[str, Any]


def sample_edits(
    paths: Paths,
    catalog: Catalog,
    names: Sequence[str],
    number: int,
    language: str | None,
    split: str | None,
    seed: int,
) -> list[Row]:
    """Return `number` of the edits of the datasets called `names`, or of those in use, in the order they are stored.

    Of the edits of `split`; without one, of all normalized edits, duplicates included. An edit that came without an instruction
    has that of its task, where one was made; else `instruction` is empty.
    """
    chosen = sources_named(catalog, names)
    languages = list(dict.fromkeys(code for code, _ in partitions_named(catalog, language, split)))
    if split is None:
        folders = [paths.normalized(name) for name in find_normalized(paths, catalog, names)]
        places = [(code, path) for folder in folders for code in languages for path in shard_tables(folder, code)]
    else:
        places = [(code, _split_folder(paths, code, split) / "edits.parquet") for code in languages]
    rows = _draw([_edit_rows(path, code, split or "", chosen) for code, path in places], number, seed)
    return [row if row["instruction"] else _with_instruction_of_task(paths, row) for row in rows]


def sample_drops(
    paths: Paths, catalog: Catalog, names: Sequence[str], number: int, reason: str, seed: int
) -> list[Row]:
    """Return `number` of what was left out of the datasets called `names`, or of those in use, for `reason`.

    `where` is file and line relative to the root; the id of an edit that another one says already.
    """
    rejected, duplicates = [str(reject_reason) for reject_reason in RejectReason], list(REASONS[1:])
    if reason not in (ALL_REASONS, *rejected, *duplicates):
        reasons = ", ".join((ALL_REASONS, *rejected, *duplicates))
        raise ConfigError(f"reason {reason!r} is unknown; known: {reasons}")
    files = []
    for name in find_normalized(paths, catalog, names):
        if reason not in duplicates:
            files.append(_rejected_rows(paths, name, reason))
        if reason not in rejected and (paths.division / RECORD_NAME).exists():
            divided = load_verified(paths.division, "division").files
            files += [_duplicate_rows(paths.division / file, name, reason) for file in language_files(divided)]
    return _draw(files, number, seed)


def drops_table(drops: Sequence[Mapping[str, Any]]) -> Table:
    """Return one row per drop."""
    columns = ["dataset", "where", "reason", "detail"]
    return "Left out", columns, [tuple(drop[column] for column in columns) for drop in drops]


@dataclass(frozen=True, slots=True)
class _RowsOfFile:
    """Rows of one Parquet file to draw from."""

    path: Path
    is_chosen: npt.NDArray[np.bool_]
    """Of every row."""
    columns: tuple[str, ...]
    shown: Callable[[Row], Row]
    """Makes of the columns of a row what is shown."""

    def read(self, rows: npt.NDArray[np.int64]) -> Iterator[Row]:
        first = 0
        for group in parquet_tables(self.path, self.columns) if len(rows) else ():
            in_group = rows[(rows >= first) & (rows < first + group.num_rows)] - first
            yield from map(self.shown, group.take(in_group).to_pylist())
            first += group.num_rows


def _draw(files: Sequence[_RowsOfFile], number: int, seed: int) -> list[Row]:
    candidates = [np.flatnonzero(file.is_chosen) for file in files]
    total = sum(map(len, candidates))
    places = np.array(sorted(Random(seed).sample(range(total), min(number, total))), np.int64)
    samples: list[Row] = []
    first = 0
    for file, rows in zip(files, candidates, strict=True):
        samples += file.read(rows[places[(places >= first) & (places < first + len(rows))] - first])
        first += len(rows)
    return samples


def _edit_rows(path: Path, language: str, split: str, names: Sequence[str]) -> _RowsOfFile:
    def show(row: Row) -> Row:
        shown = {"license" if name == "licence" else name: value for name, value in row.items()}
        tags = tuple(json.loads(shown.pop("tags")))
        if default_source({"tags": tags}) == "none":
            shown.update(instruction="", instruction_source="none", answerable=False, answerable_by="no_instruction")
        return {"id": row["id"], "dataset": row["dataset"], "language": language, "split": split, **shown}

    return _RowsOfFile(path, np.isin(_column(path, "dataset"), names), _COLUMNS, show)


def _with_instruction_of_task(paths: Paths, row: Row) -> Row:
    """Return the row of an edit without an instruction with that of its task, where there is one that has one."""
    beginning = b'{"id":' + json.dumps(row["id"], ensure_ascii=False).encode() + b","
    for split in [row["split"]] if row["split"] else SPLITS:
        file = paths.partition("tasks", row["language"], split) / "tasks.jsonl"
        if file.exists():
            with file.open("rb") as lines:
                task = next((Task.model_validate_json(line) for line in lines if line.startswith(beginning)), None)
            if task is not None and task.instruction_source != "none":
                return {**row, "instruction": task.instruction, **{name: getattr(task, name) for name in FIELDS}}
    return row


def _rejected_rows(paths: Paths, name: str, reason: str) -> _RowsOfFile:
    path, raw = paths.normalized(name) / "dropped.parquet", paths.relative(paths.raw(name))

    def show(row: Row) -> Row:
        place = f"{raw}/{row['file']}:{row['line']}"
        return {"dataset": name, "where": place, "reason": row["reason"], "detail": row["detail"]}

    is_chosen = (_column(path, "reason") == reason) | (reason == ALL_REASONS)
    return _RowsOfFile(path, is_chosen, ("file", "line", "reason", "detail"), show)


def _duplicate_rows(path: Path, name: str, reason: str) -> _RowsOfFile:
    def show(row: Row) -> Row:
        detail = f"{row['kept_id']} is kept instead"
        return {"dataset": name, "where": row["id"], "reason": row["reason"], "detail": detail}

    is_duplicate = np.isin(_column(path, "reason"), REASONS[1:] if reason == ALL_REASONS else [reason])
    return _RowsOfFile(path, is_duplicate & (_column(path, "dataset") == name), ("id", "reason", "kept_id"), show)


def _column(path: Path, name: str) -> npt.NDArray[np.str_]:
    values: list[str | None] = read_table(path, [name])[name].to_pylist()
    return np.array([value or "" for value in values], np.str_)


def _split_folder(paths: Paths, language: str, split: str) -> Path:
    folder = paths.partition("processed", language, split)
    if not (folder / RECORD_NAME).exists():
        raise RecordError(f"splits {language}/{split}: are not made yet; run 'graftline data build' first")
    load_verified(folder, "splits")
    return folder
