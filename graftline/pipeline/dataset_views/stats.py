"""How many edits there are of each dataset, how long, under which licenses, and why rows were left out.

Read from records and Parquet files. The reports below `reports/` are not here: dbt makes them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from graftline.core.errors import RecordError
from graftline.core.parquet import read_parquet, read_table
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, ArtifactRecord, NormalizedRecord, load_record, load_verified
from graftline.datasets.catalog import Catalog
from graftline.datasets.deduplicate import shard_tables
from graftline.datasets.splits import MOVES, SPLITS, language_files
from graftline.pipeline.dataset_views import Table
from graftline.pipeline.dataset_views.listing import find_normalized, partitions_named, short_version
from graftline.pipeline.instruction_counts import ANSWERS, InstructionCount, instruction_counts

_SIDES = {"pre": "pre_tokens", "post": "post_tokens"}
"""The texts of an edit, and the column with their lengths in tokens."""
_MEASURES = ("mean", "median", "p95", "max")

_EVENTS = {"new": "new", "stayed": "stayed", "joins": "out: joins splits", "duplicate": "out: duplicate"}
"""What may become of a row when edits are assigned, and the column that counts it."""

_Part = tuple[str, str, Any]
"""Language, split, and a pyarrow table of its edits; no split before edits are divided."""
_Lengths = npt.NDArray[np.int64]


def stats(paths: Paths, catalog: Catalog, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the statistics of the datasets called `names`, or of those in use that are normalized.

    `dropped` counts rows and parts of rows, `duplicates` edits that were left out when all datasets were divided, and
    `licenses` edits and labels, each the most frequent first; `cells` the edits of each language and split; `moves` how many
    rows were in which split before the last assignment, and are in which one since, or why in none; `instructions` the tasks
    that were made of them, by where their instruction comes from.
    """
    present = find_normalized(paths, catalog, names)
    splits, divided, moves = _read_splits(paths, catalog), _count_left_out(paths), _read_moves(paths)
    instructions = instruction_counts(_records_of_tasks(paths, catalog))
    return [
        {
            **_stats(paths, catalog, name, splits, divided),
            "moves": moves.get(name, []),
            "instructions": _instructions(instructions, name),
        }
        for name in present
    ]


def stats_tables(datasets: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return what became of the rows, who moved where, how long the edits are, the licenses, and why rows were left out."""
    became, cells = [], []
    licenses, reasons, instructions = [], [], []
    for dataset in datasets:
        name, rows, edits = dataset["name"], dataset["rows_in"], dataset["edits"]
        # a row may hold several edits, and each of them may be left out
        whole = edits + dataset["labels"] + sum(dataset["dropped"].values())
        counts = [f"{count:,}" for count in (rows, edits, dataset["labels"])]
        left_out = [
            _share_of(sum(dataset["dropped"].values()), whole), _share_of(sum(dataset["duplicates"].values()), edits)
        ]  # fmt: skip
        became.append((name, short_version(dataset["version"]), *counts, *left_out, dataset["tokenizer"]))
        for cell in dataset["cells"]:
            for side in _SIDES:
                lengths = [f"{cell[side][measure]:,}" for measure in _MEASURES]
                cells.append((name, cell["language"], cell["split"], f"{cell['edits']:,}", side, *lengths))
        for row in dataset["instructions"]:
            tasks = sum(row[answer] for answer in ANSWERS.values())
            numbers = [f"{row[answer]:,}" for answer in ANSWERS.values()]
            instructions.append((name, row["source"], f"{tasks:,}", *numbers, f"{row['answerable'] / tasks:.1%}"))
        licenses += _shares(name, dataset["licenses"])
        reasons += _shares(name, dataset["dropped"], whole)
        reasons += _shares(name, dataset["duplicates"], edits)
    columns = ["rows", "edits", "labels", "left out", "duplicates", "tokenizer"]
    return [
        ("Datasets", ["dataset", "version", *columns], became),
        moves_table([move for dataset in datasets for move in dataset["moves"]]),
        ("Edits, and their tokens", ["dataset", "language", "split", "edits", "text", *_MEASURES], cells),
        ("Instructions of tasks", ["dataset", "source", "tasks", *ANSWERS.values(), "share"], instructions),
        ("Licenses of edits and labels", ["dataset", "license", "number", "share"], licenses),
        ("Left out", ["dataset", "reason", "number", "share"], reasons),
    ]


def moves_table(moves: Iterable[Mapping[str, Any]]) -> Table:
    """Return by language and split how many rows the last assignment put there, found there, and took out.

    What was taken out is counted where it was before; a new row that stands between two splits was nowhere.
    """
    counts: dict[tuple[str, str], Counter[str]] = {}
    for move in moves:
        place = move["earlier"] or move["split"]
        joins = move["reason"] == "joins_splits"
        if place or joins:
            event = ("stayed" if move["earlier"] else "new") if move["split"] else "joins" if joins else "duplicate"
            counts.setdefault((move["language"], place or ""), Counter())[event] += move["rows"]
    order = sorted(counts, key=lambda key: (key[0], SPLITS.index(key[1]) if key[1] else len(SPLITS)))
    rows = [
        (language, split or "none", *(f"{counts[language, split][event]:,}" for event in _EVENTS))
        for language, split in order
    ]
    return "Since the last assignment", ["language", "split", *_EVENTS.values()], rows


def _records_of_tasks(paths: Paths, catalog: Catalog) -> Iterator[ArtifactRecord]:
    for language, split in partitions_named(catalog, None, None):
        folder = paths.partition("tasks", language, split)
        if (folder / RECORD_NAME).exists():
            yield load_record(folder)


def _instructions(counts: Sequence[InstructionCount], name: str) -> list[dict[str, Any]]:
    """Return a row for each source, and one for all where they are several."""
    rows: dict[str, dict[str, Any]] = {}
    own = [count for count in counts if count.dataset == name]
    sources = [*dict.fromkeys(count.source for count in own)]
    for source in [*sources, "all"] if len(sources) > 1 else sources:
        rows[source] = {"source": source, **dict.fromkeys(ANSWERS.values(), 0)}
        for count in own:
            rows[source][count.answer] += count.tasks if source in (count.source, "all") else 0
    return [*rows.values()]


def _shares(name: str, counts: Mapping[str, int], whole: int = 0) -> list[tuple[str, str, str, str]]:
    """Return a row for each of `counts`, with its share of `whole`, or of their sum."""
    total = whole or sum(counts.values())
    return [(name, key, f"{count:,}", f"{count / total:.1%}") for key, count in counts.items()]


def _share_of(count: int, whole: int) -> str:
    return f"{count:,} ({count / whole:.1%})" if whole else f"{count:,}"


def _stats(
    paths: Paths, catalog: Catalog, name: str, splits: list[_Part], divided: Mapping[str, Counter[str]]
) -> dict[str, Any]:
    record = load_record(paths.normalized(name))
    if not isinstance(record, NormalizedRecord):
        raise RecordError(f"{paths.normalized(name)}: has no record of a dataset; materialize its asset again")
    counts = record.counts
    rejected = Counter({key.partition(".")[2]: count for key, count in counts.items() if key.startswith("dropped.")})
    parts = splits if splits and name in divided else _read_normalized(paths, catalog, name)
    return {
        "name": name,
        "version": record.version,
        "tokenizer": record.tokenizer,
        "rows_in": counts.get("rows_in", 0),
        "edits": counts.get("rows", 0),
        "labels": counts.get("labels", 0),
        "licenses": dict(Counter(record.licenses).most_common()),
        "dropped": dict(rejected.most_common()),
        "duplicates": dict(divided.get(name, Counter()).most_common()),
        "cells": _cells(parts, name),
    }


def _cells(parts: Iterable[_Part], name: str) -> list[dict[str, Any]]:
    """Return a cell for every language and split, and one for all of them where they are several."""
    lengths: dict[tuple[str, str], list[list[_Lengths]]] = {}
    for language, split, table in parts:
        is_own = table["dataset"].to_numpy() == name
        if is_own.any():
            own = [table[column].to_numpy()[is_own] for column in _SIDES.values()]
            lengths.setdefault((language, split), []).append(own)
    cells = [_cell(language, split, of_cell) for (language, split), of_cell in lengths.items()]
    if len(cells) > 1:
        cells.append(_cell("all", "all", [pair for of_cell in lengths.values() for pair in of_cell]))
    return cells


def _cell(language: str, split: str, lengths: Sequence[Sequence[_Lengths]]) -> dict[str, Any]:
    pre, post = (np.concatenate(side) for side in zip(*lengths, strict=True))
    return {"language": language, "split": split, "edits": len(pre), "pre": _tokens(pre), "post": _tokens(post)}


def _tokens(lengths: _Lengths) -> dict[str, float]:
    """Return how long the texts of one side are; by the nearest rank, so that an edit has that length."""
    ordered = np.sort(lengths)
    median, p95 = (int(ordered[-(-len(ordered) * share // 100) - 1]) for share in (50, 95))
    return {"mean": round(float(ordered.mean()), 1), "median": median, "p95": p95, "max": int(ordered[-1])}


def _read_splits(paths: Paths, catalog: Catalog) -> list[_Part]:
    parts: list[_Part] = []
    for language, split in partitions_named(catalog, None, None):
        folder = paths.partition("processed", language, split)
        if (folder / RECORD_NAME).exists():
            load_verified(folder, "splits")
            parts.append((language, split, read_table(folder / "edits.parquet", ["dataset", *_SIDES.values()])))
    return parts


def _read_normalized(paths: Paths, catalog: Catalog, name: str) -> Iterator[_Part]:
    for language in catalog.languages:
        for path in shard_tables(paths.normalized(name), language):
            yield language, "", read_table(path, ["dataset", *_SIDES.values()])


def _count_left_out(paths: Paths) -> dict[str, Counter[str]]:
    """Return by dataset how many edits the division left out, by reason; every dataset that it knows is there."""
    if not (paths.division / RECORD_NAME).exists():
        return {}
    counts_of: dict[str, Counter[str]] = {}
    for file in language_files(load_verified(paths.division, "division").files):
        table = read_table(paths.division / file, ["dataset", "reason"])
        for group in table.group_by(["dataset", "reason"]).aggregate([([], "count_all")]).to_pylist():
            counts = counts_of.setdefault(group["dataset"], Counter())
            if group["reason"]:
                counts[group["reason"]] += group["count_all"]
    return counts_of


def _read_moves(paths: Paths) -> dict[str, list[dict[str, Any]]]:
    """Return by dataset what the last assignment did; nothing where version 0.1.0 made it."""
    moves: dict[str, list[dict[str, Any]]] = {}
    if (paths.division / RECORD_NAME).exists() and (paths.division / MOVES).exists():
        for row in read_parquet(paths.division / MOVES):
            moves.setdefault(row.pop("dataset"), []).append(row)
    return moves
