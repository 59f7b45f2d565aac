"""A few edits, typical ones or by chance, or a few of the rows that were left out."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from graftline.codemod.equality import differ_in_words_alone
from graftline.core.errors import ConfigError, DataError, RecordError
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
_LOOKED_AT = 40
"""Edits of about the median length that are read for each typical one to show."""
_COLUMNS = ("id", "dataset", "license", "licence", "origin", "instruction", *FIELDS, "tags", "pre", "post")
"""Those that a file has: version 0.1.0 spelled `license` in the other way, and said by tags where an instruction comes from."""

Row = dict[str, Any]
_DISTANCE = "from_median"


def sample_edits(
    paths: Paths,
    catalog: Catalog,
    names: Sequence[str],
    number: int,
    language: str | None,
    split: str | None,
    seed: int | None,
) -> list[Row]:
    """Return `number` of the edits of the datasets called `names`, or of those in use.

    By chance with a `seed`, in the order they are stored; without one those that are typical, the most typical first, of every dataset
    and language in turn. Of the edits of `split`; without one, of all normalized edits, duplicates included. An edit that came without
    an instruction has that of its task, where one was made; else `instruction` is empty.
    """
    chosen = sources_named(catalog, names)
    languages = list(dict.fromkeys(code for code, _ in partitions_named(catalog, language, split)))
    if split is None:
        folders = [paths.normalized(name) for name in find_normalized(paths, catalog, names)]
        places = [(code, path) for folder in folders for code in languages for path in shard_tables(folder, code)]
    else:
        places = [(code, _split_folder(paths, code, split) / "edits.parquet") for code in languages]
    files = [_edit_rows(path, code, split or "", chosen) for code, path in places]
    if seed is not None:
        return _add_instructions(paths, _draw(files, number, seed))
    candidates = _add_instructions(paths, _draw_of_median_length(files, number * _LOOKED_AT))
    return _rank_by_typicality(candidates)[:number]


def _draw_of_median_length(files: Sequence["_RowsOfFile"], number: int) -> list[Row]:
    """Return the edits whose length is nearest to the median of their language, so many of each language at most."""
    rows = []
    for language in dict.fromkeys(file.language for file in files):
        of_language = [file for file in files if file.language == language]
        lengths = [_lengths(file.path)[file.is_chosen] for file in of_language]
        whole = np.concatenate(lengths)
        if not len(whole):
            continue
        distances = np.abs(whole - np.median(whole))
        is_near = np.zeros(len(whole), np.bool_)
        is_near[np.argsort(distances, kind="stable")[:number]] = True
        first = 0
        for file, of_file in zip(of_language, lengths, strict=True):
            own = slice(first, first + len(of_file))
            near = np.flatnonzero(is_near[own])
            read = file.read(np.flatnonzero(file.is_chosen)[near])
            rows += [
                {**row, _DISTANCE: distance} for row, distance in zip(read, distances[own][near].tolist(), strict=True)
            ]
            first += len(of_file)
    return rows


def _lengths(path: Path) -> npt.NDArray[np.int64]:
    table = read_table(path, ["pre_tokens", "post_tokens"])
    lengths: npt.NDArray[np.int64] = table["pre_tokens"].to_numpy() + table["post_tokens"].to_numpy()
    return lengths


def _rank_by_typicality(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of every dataset and language in turn: first what can be done from its instruction, and changes code."""
    places = Counter[tuple[str, str]]()
    ranked = []
    for row in sorted(
        rows, key=lambda row: (not row["answerable"], not _changes_code(row), not row["instruction"], row[_DISTANCE])
    ):
        group = row["dataset"], row["language"]
        ranked.append((not row["answerable"], places[group], {name: row[name] for name in row if name != _DISTANCE}))
        places[group] += 1
    return [row for _, _, row in sorted(ranked, key=lambda entry: entry[:2])]


def _changes_code(row: Row) -> bool:
    try:
        return not differ_in_words_alone(row["pre"], row["post"], row["language"])
    except DataError:  # too deep to be read
        return False


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
    language: str
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

    return _RowsOfFile(path, language, np.isin(_column(path, "dataset"), names), _COLUMNS, show)


def _add_instructions(paths: Paths, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of edits, those without an instruction with that of their task, where there is one that has one."""
    edits_by_beginning = {(row["language"], row["split"]): dict[bytes, Row]() for row in rows}
    for row in rows:
        if not row["instruction"] or row["answerable"] is None:
            beginning = b'{"id":' + json.dumps(row["id"], ensure_ascii=False).encode() + b","
            edits_by_beginning[row["language"], row["split"]][beginning] = row
    worded: dict[str, Row] = {}
    for (language, split), edits in edits_by_beginning.items():
        for part in [split] if split else SPLITS:
            file = paths.partition("tasks", language, part) / "tasks.jsonl"
            if not edits or not file.exists():
                continue
            with file.open("rb") as lines:
                for line in lines:
                    edit = edits.get(line[: line.find(b",") + 1])
                    if edit is not None:
                        task = Task.model_validate_json(line)
                        fields = {name: getattr(task, name) for name in ("instruction", *FIELDS)}
                        worded[edit["id"]] = {**edit, **fields}
    return [worded.get(row["id"], row) for row in rows]


def _rejected_rows(paths: Paths, name: str, reason: str) -> _RowsOfFile:
    path, raw = paths.normalized(name) / "dropped.parquet", paths.relative(paths.raw(name))

    def show(row: Row) -> Row:
        place = f"{raw}/{row['file']}:{row['line']}"
        return {"dataset": name, "where": place, "reason": row["reason"], "detail": row["detail"]}

    is_chosen = (_column(path, "reason") == reason) | (reason == ALL_REASONS)
    return _RowsOfFile(path, "", is_chosen, ("file", "line", "reason", "detail"), show)


def _duplicate_rows(path: Path, name: str, reason: str) -> _RowsOfFile:
    def show(row: Row) -> Row:
        detail = f"{row['kept_id']} is kept instead"
        return {"dataset": name, "where": row["id"], "reason": row["reason"], "detail": detail}

    is_duplicate = np.isin(_column(path, "reason"), REASONS[1:] if reason == ALL_REASONS else [reason])
    is_own = _column(path, "dataset") == name
    return _RowsOfFile(path, "", is_duplicate & is_own, ("id", "reason", "kept_id"), show)


def _column(path: Path, name: str) -> npt.NDArray[np.str_]:
    values: list[str | None] = read_table(path, [name])[name].to_pylist()
    return np.array([value or "" for value in values], np.str_)


def _split_folder(paths: Paths, language: str, split: str) -> Path:
    folder = paths.partition("processed", language, split)
    if not (folder / RECORD_NAME).exists():
        raise RecordError(f"splits {language}/{split}: are not made yet; run 'graftline data build' first")
    load_verified(folder, "splits")
    return folder
