"""The rows an adapter was trained on, each led back to the row of a dataset: file, line, package, license, rule, reward.

A row knows its task, and a synthetic task the edit whose text it took. Groups are read from the splits, actions and rewards
from the attempts, lines from the raw files, which are read again by the reader of their dataset. What cannot be found any
more stays empty, and is never guessed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from graftline.astgrep.binding import LANGUAGES
from graftline.codemod.canonical import canonical_text
from graftline.core.config import load_yaml
from graftline.core.errors import DataError, RecordError
from graftline.core.parquet import ParquetError, parquet_rows
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord
from graftline.datasets.catalog import NO_LICENSE, Catalog, Dataset
from graftline.datasets.edit import Edit, Rejection
from graftline.datasets.ingest import parse_row
from graftline.datasets.readers import source_of
from graftline.datasets.readers.base import RawRow, Source
from graftline.datasets.splits import SPLITS
from graftline.pipeline.exports import read_stored_attempts
from graftline.pipeline.provenance.trace import Provenance
from graftline.rollouts.trajectory import Trajectory

_SYNTHETIC = re.compile(r"(?P<template>\w+) on (?P<edit>\S+), ")
_PIECE = re.compile(r"/\d+$")


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One row that was trained on."""

    file: str
    """That was trained on, relative to the root."""
    line: int
    """From 1."""
    task_id: str
    edit_id: str
    """Of the normalized edit it stands on."""
    dataset: str
    """Of that edit."""
    language: str
    license: str
    origin: str
    template: str = ""
    """Of a synthetic task."""
    teacher: str = ""
    """Of an attempt; empty for rows whose right action is that of the template."""
    attempt: int = 0
    step: int = 0
    rule: str = ""
    """The action that the attempt took, in canonical form."""
    reward: float | None = None
    """None also where nothing was attempted; then there is no cause."""
    cause: str = ""
    group: str = ""
    """Package or repository."""
    source: str = ""
    """File and line of the row of the dataset, relative to the root."""


@dataclass(frozen=True)
class Standing:
    """What the rows of an adapter stand on, counted."""

    rows: int
    by: Mapping[str, Counter[str]]
    """By dataset, language, license, group, template, rule, teacher and cause of reward: how many rows."""
    unknown: int
    """Rows that say no task, so that nothing is known of them."""
    rewarded: int
    mean_reward: float | None
    """Of the rewards that are known; None where there are none."""

    def as_dict(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        counted = {name: dict(counts.most_common()) for name, counts in self.by.items()}
        return {"rows": self.rows, "unknown": self.unknown, "mean_reward": self.mean_reward, **counted}


_COUNTED = ("dataset", "language", "license", "group", "template", "rule", "teacher", "cause")


def standing(rows: Sequence[TrainingRow]) -> Standing:
    """Return the counts of `rows`."""
    rewards = [row.reward for row in rows if row.reward is not None]
    return Standing(
        rows=len(rows),
        by={name: Counter(value for row in rows if (value := getattr(row, name))) for name in _COUNTED},
        unknown=sum(not row.task_id for row in rows),
        rewarded=len(rewards),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
    )


def training_rows(paths: Paths, provenance: Provenance) -> list[TrainingRow]:
    """Return all rows that the adapter was trained on, without the lines of their sources (`with_sources`)."""
    collected: list[TrainingRow] = []
    for file, record in provenance.training_data.items():
        if file.is_file():
            collected += _of_file(paths, file, record)
    groups = _groups(paths, {row.edit_id for row in collected if row.edit_id})
    return [replace(row, group=groups.get(row.edit_id, "")) for row in collected]


def with_sources(paths: Paths, rows: Iterable[TrainingRow]) -> list[TrainingRow]:
    """Return `rows` with file and line of the row of the dataset that each stands on."""
    all_rows = list(rows)
    lines = _lines(paths, {row.edit_id for row in all_rows if row.edit_id})
    return [replace(row, source=lines.get(row.edit_id, "")) for row in all_rows]


def _of_file(paths: Paths, file: Path, record: ArtifactRecord | None) -> Iterator[TrainingRow]:
    attempts = _attempts(paths, record)
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                content = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise RecordError(f"{file}: line {number} is no JSON ({error}); write the file again") from None
            if isinstance(content, dict):
                yield _row(paths.relative(file), number, content, attempts)


def _row(file: str, line: int, content: Mapping[str, Any], attempts: Mapping[tuple[str, str, int], Trajectory]) -> TrainingRow:  # fmt: skip
    # a row of a chat names its task; a task names itself
    task_id = str(content.get("task_id") or content.get("id") or "")
    origin = str(content.get("origin", ""))
    template, edit_id = "", task_id
    if content.get("dataset") == "synthetic_rules" and (match := _SYNTHETIC.match(origin)):
        template, edit_id = match["template"], _PIECE.sub("", match["edit"])
    teacher, number, step = str(content.get("teacher", "")), int(content.get("attempt", 0)), int(content.get("step", 0))
    row = TrainingRow(
        file, line, task_id, edit_id, edit_id.partition(":")[0], str(content.get("language", "")),
        str(content.get("license") or content.get("licence") or NO_LICENSE), origin, template, teacher, number, step,
    )  # fmt: skip
    trajectory = attempts.get((task_id, teacher, number))
    if trajectory is None:
        return row
    action = next((taken_step.model_output.action for taken_step in trajectory.path if taken_step.step == step), None)
    rule = "" if action is None else canonical_text(action)
    return replace(row, rule=rule, reward=trajectory.reward.value, cause=trajectory.reward.cause)


def _attempts(paths: Paths, record: ArtifactRecord | None) -> dict[tuple[str, str, int], Trajectory]:
    """Return the attempts that rows may be made of; none where they are not what they were."""
    inputs = record.inputs if record else ()
    named = [name.split(".", 3)[1:3] for name in inputs if name.startswith("teacher_trajectories.")]
    attempts: dict[tuple[str, str, int], Trajectory] = {}
    for split in SPLITS:
        languages = [language for language in LANGUAGES if [language, split] in named]
        if not languages:
            continue
        try:
            for attempt in read_stored_attempts(paths, split, languages):
                attempts[attempt.task_id, attempt.teacher, attempt.attempt] = attempt
        except (RecordError, DataError):
            continue  # told of by the ancestry; the rows stay without rule and reward
    return attempts


def _groups(paths: Paths, edit_ids: set[str]) -> dict[str, str]:
    """Return the package or repository of each edit that is wanted, as far as it is in a split."""
    groups: dict[str, str] = {}
    for path in sorted((paths.data / "processed").glob("*/*/edits.parquet")):
        if len(groups) == len(edit_ids):
            break
        try:
            rows = parquet_rows(path, ("id", "origin_group"))
            groups |= {row["id"]: row["origin_group"] for row in rows if row["id"] in edit_ids}
        except ParquetError:
            continue  # told of by the ancestry
    return groups


def _lines(paths: Paths, edit_ids: set[str]) -> dict[str, str]:
    """Return file and line of each edit that is wanted, as far as its dataset is here and still says it."""
    catalog = load_yaml(paths.configs / "datasets.yaml", Catalog)
    places: dict[str, str] = {}
    for name in sorted({id.partition(":")[0] for id in edit_ids} & catalog.datasets.keys()):
        dataset, missing = catalog.datasets[name], {id for id in edit_ids if id.startswith(f"{name}:")}
        source, folder = source_of(dataset.reader), paths.raw(name)
        try:
            for raw in source.rows(folder, dataset, catalog.cleaning.max_line_bytes):
                for id in _edits(raw, source, name, dataset) & missing:
                    missing.discard(id)
                    places[id] = f"{paths.relative(folder / raw.file)}:{raw.line}"
                if not missing:
                    break
        except (DataError, OSError):
            continue  # told of by the ancestry
    return places


def _edits(raw: RawRow, source: Source[Any], name: str, dataset: Dataset) -> set[str]:
    """Return the ids of the edits that are made of one raw row."""
    content = parse_row(raw.content) if isinstance(raw.content, bytes) else raw.content
    if isinstance(content, Rejection):
        return set()
    return {outcome.id for outcome in source.outcomes(content, name, dataset) if isinstance(outcome, Edit)}
