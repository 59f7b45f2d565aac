"""The stage `sft_dataset`: what every recipe of the lineage trains on, looks at, and is to solve.

A recipe takes part when its file in `configs/recipes/` has `data`.
"""

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents
from graftline.core.errors import ConfigError, DataError
from graftline.core.jsonl import read_lines
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord
from graftline.datasets.edit import Edit
from graftline.datasets.splits import Split
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import rewriter
from graftline.pipeline.teacher_terms import select_trainable, teachers_without_training
from graftline.rollouts.repository_task import RepositoryTask, load_repository_tasks
from graftline.rollouts.shards import current_attempts, read_shards, sealed_shards
from graftline.rollouts.task import Task, describe_left_out
from graftline.rollouts.teachers.prompt import Prompt, load_prompt
from graftline.rollouts.trajectory import Trajectory
from graftline.training.recipes.open import load_recipe, recipe_names
from graftline.training.rows import Material, Row, check_fits, rows_of
from graftline.training.settings import (
    HELD_OUT,
    TASKS,
    TRAIN,
    ChangesSource,
    ComposedSource,
    Source,
    SyntheticSource,
    TasksSource,
    TinkerTrainingConfig,
    left_out_of,
    parts_of,
)
from graftline.training.train import MEMORY_OUTPUT, OUTPUT

_TRAIN_SPLIT: Split = "train"
_LOOK_SPLIT: Split = "dev"
"""What a run may end by is not what it is judged by."""
_SOLVE_SPLIT: Split = "test"
_TAKEN = (OUTPUT.name, MEMORY_OUTPUT.name)
"""Folders beside those of adapters."""


def lineage_recipes(paths: Paths) -> list[str]:
    """Return the names of the recipes that take part, those that are trained on demand last."""
    recipes = {name: config for name in recipe_names(paths) if (config := load_recipe(paths, name)).data is not None}
    return sorted(recipes, key=lambda name: recipes[name].is_on_demand)


def recipes_of_run(paths: Paths) -> list[str]:
    """Return the names of those that a run of everything trains."""
    return [name for name in lineage_recipes(paths) if not load_recipe(paths, name).is_on_demand]


def sft_dataset(lineage: Lineage, name: str) -> Built:
    """Make what one recipe trains on, what it looks at, and the tasks that are solved before and after."""
    config = load_recipe(lineage.paths, name)
    source, prompt = source_of(lineage, config, name)
    inputs = _inputs(lineage, source)
    settings: dict[str, Any] = {
        "data": source.model_dump(mode="json"),
        "recipe": config.recipe,
        "prompt": prompt.digest(),
    }
    if refused := teachers_without_training(lineage.paths.configs):
        settings["teachers_without_training"] = refused
    request = request_of("sft_dataset", name, inputs, {**settings, **rewriter(lineage.manifest)})

    def make(folder: Path) -> Contents:
        train: list[Row] = []
        held_out: list[Row] = []
        tasks: list[Task] = []
        left_out = Counter[str]()
        by_terms: dict[Language, Counter[str]] = {}
        to_train = _material(lineage, _TRAIN_SPLIT, by_terms, left_out_of(source))
        to_look, to_solve = (_material(lineage, split, {}) for split in (_LOOK_SPLIT, _SOLVE_SPLIT))
        for part in parts_of(source):
            train += rows_of(to_train, config.recipe, part, prompt, part.examples, left_out)[0]
            held_out += rows_of(to_look, config.recipe, part, prompt, part.held_out, Counter())[0]
            tasks += rows_of(to_solve, config.recipe, part, prompt, part.held_out, Counter())[1]
        left_out.update(sum(by_terms.values(), Counter[str]()))
        if not train:
            cause = describe_left_out(left_out, "attempts") or "nothing fits what `data` asks for"
            raise DataError(f"recipe {name!r}: {cause}, so there is nothing to train on")
        write_rows(folder / TRAIN, train)
        write_rows(folder / HELD_OUT, held_out)
        write_rows(folder / TASKS, [task.model_dump(mode="json") for task in tasks])
        licenses = Counter(str(row.get("license", "")) for row in train)
        counts = {f"license.{license}": count for license, count in sorted(licenses.items()) if license}
        teachers = Counter(str(row.get("teacher", "")) for row in train)
        counts |= {f"teacher.{teacher}": count for teacher, count in sorted(teachers.items()) if teacher}
        return Contents({"rows": len(train), "held_out": len(held_out), "tasks": len(tasks), **left_out, **counts})

    return lineage.build(lineage.paths.training_set(name), request, make)


def source_of(lineage: Lineage, config: TinkerTrainingConfig, name: str) -> tuple[Source, Prompt]:
    """Return what the recipe called `name` says under `data`, and the prompt it is to be asked by."""
    paths, source = lineage.paths, config.data
    if source is None:
        names = ", ".join(lineage_recipes(paths)) or "none"
        raise ConfigError(f"recipe {name!r} has no `data`, so the lineage makes nothing for it; known: {names}")
    if name in _TAKEN:
        raise ConfigError(
            f"recipe {name!r}: {paths.relative(paths.adapter(name))} holds runs; give its file another name"
        )
    languages = lineage.catalog.languages
    if unknown := [language for language in source.languages if language not in languages]:
        raise ConfigError(
            f"recipe {name!r}: data.languages: {unknown[0]!r} has no splits; configs/datasets.yaml has {', '.join(languages)}"
        )
    prompt = load_prompt(paths.configs, source.prompt)
    check_fits(config.recipe, source, prompt)
    return source, prompt


def _material(
    lineage: Lineage, split: Split, by_terms: dict[Language, Counter[str]], without: Container[str] = ()
) -> Material:
    """Return what is stored of a split, of all repositories but `without`; of attempts, those that are of the settings of now.

    How many of a language may not be trained on is put into `by_terms`, once it is read.
    """

    def edits(language: Language) -> list[Edit]:
        stored = read_lines(lineage.paths.partition("processed", language, split) / "edits.jsonl", Edit)
        return [edit for edit in stored if edit.group.lower() not in without]

    def attempts(language: Language) -> tuple[dict[str, Task], Sequence[Trajectory]]:
        tasks = tasks_of(language)
        shards = [shard for folder in lineage.teacher_folders(language, split) for shard in sealed_shards(folder)]
        chosen = current_attempts(read_shards(shards), tasks).attempts
        by_terms[language] = Counter()  # parts of one recipe may read the same language
        return {task.id: task for task in tasks}, select_trainable(chosen, refused, by_terms[language])

    def tasks_of(language: Language) -> list[Task]:
        stored = read_lines(lineage.paths.partition("tasks", language, split) / "tasks.jsonl", Task)
        return [task for task in stored if task.group.lower() not in without]

    def changes() -> list[RepositoryTask]:
        stored = load_repository_tasks(lineage.paths.repository_changes / f"{split}.jsonl")
        return [
            change for change in stored if not any(name.lower() in without for name in (change.repo, *change.aliases))
        ]

    refused = teachers_without_training(lineage.paths.configs)

    return Material(split, edits, attempts, tasks_of, changes, lineage.ports.sandbox, lineage.track)


def _inputs(lineage: Lineage, source: Source) -> dict[str, ArtifactRecord]:
    inputs: dict[str, ArtifactRecord] = {}
    for split, part in product((_TRAIN_SPLIT, _LOOK_SPLIT, _SOLVE_SPLIT), parts_of(source)):
        if isinstance(part, ChangesSource):
            inputs["repository_changes"] = lineage.read_input(lineage.paths.repository_changes, "repository_changes")
            continue
        for language in part.languages:
            if isinstance(part, SyntheticSource | ComposedSource):
                inputs[f"splits.{language}.{split}"] = lineage.read_input(
                    lineage.paths.partition("processed", language, split), "splits"
                )
                continue
            inputs[f"tasks.{language}.{split}"] = lineage.read_input(
                lineage.paths.partition("tasks", language, split), "tasks"
            )
            if isinstance(part, TasksSource):
                continue
            for folder in lineage.teacher_folders(language, split):
                key = f"teacher_trajectories.{language}.{split}.{folder.name}"
                inputs[key] = lineage.read_input(folder, "teacher_trajectories")
    return inputs


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON object per line."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), "utf-8", newline="")
