"""What must hold of stored artifacts, as questions whose answer is a list of faults."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
from pydantic import BaseModel, ValidationError

from graftline.core.errors import DataError
from graftline.core.jsonl import read_lines
from graftline.core.parquet import column_names, read_parquet
from graftline.core.record import load_record
from graftline.datasets.edit import EDITS, Edit, Label
from graftline.datasets.fingerprints import group_key, key
from graftline.datasets.repository_changes.change import RepositoryChange
from graftline.datasets.splits import SPLITS, Split, read_assigned
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.sft_dataset import lineage_recipes
from graftline.pipeline.stages.trained_adapter import STEPS
from graftline.rollouts.exports.parquet import STEPS as STEP_COLUMNS
from graftline.rollouts.exports.parquet import TRAJECTORIES
from graftline.rollouts.shards import sealed_shards
from graftline.rollouts.task import Task
from graftline.rollouts.trajectory import Trajectory
from graftline.training.adapter import check_adapter
from graftline.training.runs import read_steps
from graftline.training.settings import HELD_OUT, TRAIN

MOST_FAULTS = 20


def invalid_edits(lineage: Lineage, dataset: str) -> list[str]:
    """Return the lines of the normalized `dataset` that are no edits, and no labels."""
    folder = lineage.paths.normalized(dataset)
    lineage.read_input(folder, "normalized")
    faults = [fault for path in sorted(folder.glob("*-*.jsonl")) for fault in _invalid_lines(path, Edit)]
    labels = folder / "labels.jsonl"
    return (faults + (_invalid_lines(labels, Label) if labels.exists() else []))[:MOST_FAULTS]


def invalid_splits(lineage: Lineage) -> list[str]:
    """Return the lines of the stored splits that are no edits, and Parquet files with other columns."""
    faults = []
    for folder in _present_folders(lineage, "processed", "splits"):
        faults += _invalid_lines(folder / "edits.jsonl", Edit) + _other_columns(folder / "edits.parquet", set(EDITS))
    return faults[:MOST_FAULTS]


def invalid_changes(lineage: Lineage) -> list[str]:
    """Return the lines that are no changes of repositories, and those whose repository is in another split as well."""
    folder, faults = lineage.paths.repository_changes, list[str]()
    lineage.read_input(folder, "repository_changes")
    lineage.read_input(lineage.paths.division, "division")
    of_edits = read_assigned(lineage.paths.division)
    split_of: dict[str, str] = {}
    for split in SPLITS:
        if invalid := _invalid_lines(folder / f"{split}.jsonl", RepositoryChange):
            faults += invalid
            continue
        for change in read_lines(folder / f"{split}.jsonl", RepositoryChange):
            names = [name.lower() for name in (change.repo, *change.aliases)]
            assigned = of_edits.find(np.array([group_key(name) for name in names], np.uint64)).tolist()
            splits = {SPLITS[index] for index in assigned if index >= 0} | {
                split_of.setdefault(name, split) for name in names
            }
            if splits != {split}:
                faults.append(f"change {change.id!r} is in {split}, but {change.repo} in {', '.join(sorted(splits))}")
    return faults[:MOST_FAULTS]


def leaks(lineage: Lineage) -> list[str]:
    """Return the edits, groups, commits and clusters of near-duplicates that stand in more than one split."""
    masks: dict[int, int] = {}  # by key, not by name: there are millions
    leaking: dict[tuple[str, str], int] = {}
    for folder in _present_folders(lineage, "processed", "splits"):
        split = 1 << SPLITS.index(cast(Split, folder.name))
        for kind, name in _indivisible(folder):
            mask = masks.get(identity := key(kind.encode(), name.encode()), 0) | split
            masks[identity] = mask
            if mask.bit_count() > 1:
                leaking[kind, name] = mask
    divided = (
        (kind, name, [split for at, split in enumerate(SPLITS) if mask >> at & 1])
        for (kind, name), mask in leaking.items()
    )
    return sorted(f"{kind} {name!r} is in {', '.join(sorted(splits))}" for kind, name, splits in divided)[:MOST_FAULTS]


def _indivisible(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what must not be in another split as well."""
    for edit in read_lines(folder / "edits.jsonl", Edit):
        yield "edit", edit.id
        yield from (("commit", commit) for commit in (edit.commit, *edit.other_commits) if commit)
        yield from (("group", group.lower()) for group in (edit.group, *edit.aliases))
    yield from (("cluster", row["cluster"]) for row in read_parquet(folder / "edits.parquet", ["cluster"]))


def invalid_trajectories(lineage: Lineage) -> list[str]:
    """Return the Parquet files of trajectories with other columns than are documented, or impossible rewards."""
    faults = []
    for folder in _present_folders(lineage, "trajectories/parquet", "trajectories"):
        faults += _other_columns(folder / "trajectories.parquet", set(TRAJECTORIES))
        faults += _other_columns(folder / "steps.parquet", set(STEP_COLUMNS))
        for row in read_parquet(folder / "steps.parquet"):
            if row["reward"] is not None and not 0 <= row["reward"] <= 1:
                faults.append(f"{row['task_id']} step {row['step']}: reward {row['reward']} is not in [0, 1]")
    return faults[:MOST_FAULTS]


def invalid_tasks(lineage: Lineage) -> list[str]:
    """Return the lines of the stored tasks that are no tasks, and tasks that stand in two partitions."""
    faults: list[str] = []
    folder_of: dict[str, str] = {}
    for folder in _present_folders(lineage, "tasks", "tasks"):
        place = lineage.paths.relative(folder)
        if invalid := _invalid_lines(folder / "tasks.jsonl", Task):
            faults += invalid
            continue
        for task in read_lines(folder / "tasks.jsonl", Task):
            if folder_of.setdefault(task.id, place) != place:
                faults.append(f"task {task.id!r} is in {folder_of[task.id]} and in {place}")
    return faults[:MOST_FAULTS]


def invalid_attempts(lineage: Lineage) -> list[str]:
    """Return the lines of the stored attempts of all teachers that are no attempts, or have an impossible reward."""
    faults: list[str] = []
    for language, split in lineage.partitions():
        for folder in lineage.teacher_folders(language, split):
            lineage.read_input(folder, "teacher_trajectories")
            faults += [fault for shard in sealed_shards(folder) for fault in _invalid_lines(shard, Trajectory)]
    return faults[:MOST_FAULTS]


def count_verified_steps(lineage: Lineage) -> int:
    """Return the number of verified steps in all stored partitions."""
    folders = _present_folders(lineage, "trajectories/parquet", "trajectories")
    return sum(load_record(folder).counts["verified_steps"] for folder in folders)


def _present_folders(lineage: Lineage, below: str, kind: str) -> list[Path]:
    folders = [lineage.paths.partition(below, language, split) for language, split in lineage.partitions()]
    return [folder for folder in folders if lineage.find(folder, kind) is not None]


def _invalid_lines(path: Path, model: type[BaseModel]) -> list[str]:
    faults = []
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                model.model_validate_json(line)
            except ValidationError as error:
                fault = error.errors(include_url=False)[0]
                faults.append(f"{path}: line {number}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}")
    return faults[:MOST_FAULTS]


def _other_columns(path: Path, columns: set[str]) -> list[str]:
    present = set(column_names(path))
    return [] if present == columns else [f"{path}: columns {sorted(present ^ columns)} are missing or unexpected"]


def unfit_rows(lineage: Lineage) -> list[str]:
    """Return the recipes without rows, and those of which a row is trained on and held out."""
    faults: list[str] = []
    for name, folder in _recipe_folders(lineage, "sft_dataset", lineage.paths.training_set):
        train, held_out = ({*(folder / file).read_bytes().splitlines()} for file in (TRAIN, HELD_OUT))
        if not train:
            faults.append(f"recipe {name!r} has no row to train on")
        if both := train & held_out:
            faults.append(f"recipe {name!r}: rows that are trained on and held out: {len(both)}")
    return faults[:MOST_FAULTS]


def broken_adapters(lineage: Lineage) -> list[str]:
    """Return the stored adapters that PEFT would not load, and those whose loss is no number."""
    faults: list[str] = []
    for name, folder in _recipe_folders(lineage, "trained_adapter", lineage.paths.adapter):
        try:
            check_adapter(folder)
        except DataError as error:
            faults.append(str(error))
        faults += [
            f"adapter {name!r}: the loss of step {step.step + 1} is {step.loss}"
            for step in read_steps(folder / STEPS)
            if not math.isfinite(step.loss)
        ][:1]
    return faults[:MOST_FAULTS]


def _recipe_folders(lineage: Lineage, stage: str, folder_of: Callable[[str], Path]) -> Iterator[tuple[str, Path]]:
    """Yield the recipes of the lineage that have the artifact of `stage`, and where that is, its files verified."""
    for name in lineage_recipes(lineage.paths):
        if lineage.find(folder_of(name), stage) is not None:
            yield name, folder_of(name)
