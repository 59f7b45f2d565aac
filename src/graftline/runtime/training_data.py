"""The stage `sft_dataset`: what every recipe of the lineage trains on, looks at, and is to solve.

A recipe takes part when its file in `configs/recipes/` has `data`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graftline.actions.astgrep import Language
from graftline.datasets.division import Split
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.datasets.synthetic.pieces import in_pieces
from graftline.errors import ConfigError, DataError
from graftline.jsonl import read_lines
from graftline.paths import Paths
from graftline.record import RECORD_NAME, Built, Contents, Record, Request
from graftline.runtime.attempt_settings import rewriter
from graftline.runtime.lineage import Lineage
from graftline.runtime.settings import stage_code
from graftline.runtime.stages import identities
from graftline.tasks.task import Task, sound_tasks
from graftline.teachers.prompt import Prompt, load_prompt
from graftline.training.recipes.open import configured, load_recipe
from graftline.training.sets import (
    HELD_OUT,
    TASKS,
    TRAIN,
    Row,
    Source,
    SyntheticSource,
    TrajectorySource,
    balanced,
    check_fits,
    is_answerable,
    rows_of_tasks,
    rows_of_trajectories,
    template_of,
)
from graftline.training.settings import TinkerTrainingConfig
from graftline.training.train import MEMORY_OUTPUT, OUTPUT
from graftline.trajectories.current import current_attempts
from graftline.trajectories.shards import read_shards, sealed_shards

_TRAIN_SPLIT: Split = "train"
_LOOK_SPLIT: Split = "dev"
"""What a run may end by is not what it is judged by."""
_SOLVE_SPLIT: Split = "test"
_TAKEN = (OUTPUT.name, MEMORY_OUTPUT.name)
"""Folders beside those of adapters."""
_DRAWN = 3
"""Times as many synthetic edits are made as are wanted: those of templates that fit everywhere are left out again."""


def lineage_recipes(paths: Paths) -> list[str]:
    """Return the names of the recipes that take part."""
    return [name for name in configured(paths) if load_recipe(paths, name).data is not None]


def sft_dataset(lineage: Lineage, name: str) -> Built:
    """Make what one recipe trains on, what it looks at, and the tasks that are solved before and after."""
    config = load_recipe(lineage.paths, name)
    source, prompt = source_of(lineage, config, name)
    inputs = _inputs(lineage, source)
    settings = {"data": source.model_dump(mode="json"), "recipe": config.recipe, "prompt": prompt.digest()}
    request = Request(
        "sft_dataset", name, stage_code("sft_dataset"), identities(inputs), {**settings, **rewriter(lineage.manifest)}
    )

    def make(folder: Path) -> Contents:
        train, _ = _rows(lineage, config.recipe, source, prompt, _TRAIN_SPLIT, source.examples)
        held_out, _ = _rows(lineage, config.recipe, source, prompt, _LOOK_SPLIT, source.held_out)
        _, tasks = _rows(lineage, config.recipe, source, prompt, _SOLVE_SPLIT, source.held_out)
        if not train:
            raise DataError(f"recipe {name!r}: nothing fits what `data` asks for, so there is nothing to train on")
        write_rows(folder / TRAIN, train)
        write_rows(folder / HELD_OUT, held_out)
        write_rows(folder / TASKS, [task.model_dump(mode="json") for task in tasks])
        licences = Counter(str(row.get("licence", "")) for row in train)
        counts = {f"licence.{licence}": count for licence, count in sorted(licences.items()) if licence}
        return Contents({"rows": len(train), "held_out": len(held_out), "tasks": len(tasks), **counts})

    return lineage.build(lineage.paths.training_set(name), request, make)


def source_of(lineage: Lineage, config: TinkerTrainingConfig, name: str) -> tuple[Source, Prompt]:
    """Return what the recipe called `name` says under `data`, and the prompt it is to be asked by.

    Raises:
        ConfigError: it says nothing, or what cannot be made.
    """
    paths, source = lineage.paths, config.data
    if source is None:
        known = ", ".join(lineage_recipes(paths)) or "none"
        raise ConfigError(f"recipe {name!r} has no `data`, so the lineage makes nothing for it; known: {known}")
    if name in _TAKEN:
        raise ConfigError(
            f"recipe {name!r}: {paths.relative(paths.adapter(name))} holds runs; give its file another name"
        )
    check_fits(config.recipe, source)
    languages = lineage.catalogue.languages
    if unknown := [language for language in source.languages if language not in languages]:
        raise ConfigError(
            f"recipe {name!r}: data.languages: {unknown[0]!r} has no splits; configs/datasets.yaml has {', '.join(languages)}"
        )
    return source, load_prompt(paths.configs, source.prompt)


def _inputs(lineage: Lineage, source: Source) -> dict[str, Record]:
    inputs: dict[str, Record] = {}
    for split in (_TRAIN_SPLIT, _LOOK_SPLIT, _SOLVE_SPLIT):
        for language in source.languages:
            if isinstance(source, SyntheticSource):
                inputs[f"splits.{language}.{split}"] = lineage.verified(
                    lineage.paths.partition("processed", language, split), "splits"
                )
                continue
            inputs[f"tasks.{language}.{split}"] = lineage.verified(
                lineage.paths.partition("tasks", language, split), "tasks"
            )
            for folder in _attempted(lineage.paths, language, split):
                key = f"teacher_trajectories.{language}.{split}.{folder.name}"
                inputs[key] = lineage.verified(folder, "teacher_trajectories")
    return inputs


def _attempted(paths: Paths, language: Language, split: str) -> list[Path]:
    found = paths.partition("trajectories/raw", language, split).glob(f"[!.]*/{RECORD_NAME}")
    return sorted(path.parent for path in found)


def _rows(
    lineage: Lineage, recipe: str, source: Source, prompt: Prompt, split: Split, most: int
) -> tuple[list[Row], list[Task]]:
    """Return rows of a split, and the tasks that they are of."""
    if isinstance(source, SyntheticSource):
        tasks = _synthetic(lineage, source, prompt, split, most)
        return list(rows_of_tasks(recipe, tasks, prompt)), tasks
    return _of_trajectories(lineage.paths, recipe, source, prompt, split, most)


def _synthetic(lineage: Lineage, source: SyntheticSource, prompt: Prompt, split: Split, most: int) -> list[Task]:
    sandbox, made = lineage.ports.sandbox, list[Edit]()
    share = -(-most * _DRAWN // len(source.languages))
    for language in source.languages:
        edits = list(read_lines(lineage.paths.partition("processed", language, split) / "edits.jsonl", Edit))
        pieces = in_pieces(edits, language, source.most_characters)
        made += synthesize(pieces, language, share, source.seed, sandbox, split, source.per_snippet, source.templates)
    sound = sound_tasks(lineage.counted(made), sandbox).tasks
    fitting = [task for task in sound if is_answerable(task, prompt)]
    return balanced(fitting, most, lambda task: f"{task.language} {template_of(task)}")


def _of_trajectories(
    paths: Paths, recipe: str, source: TrajectorySource, prompt: Prompt, split: Split, most: int
) -> tuple[list[Row], list[Task]]:
    tasks: dict[str, Task] = {}
    found: list[Row] = []
    for language in source.languages:
        of_language = list(read_lines(paths.partition("tasks", language, split) / "tasks.jsonl", Task))
        shards = [shard for folder in _attempted(paths, language, split) for shard in sealed_shards(folder)]
        attempts = current_attempts(read_shards(shards), of_language).attempts
        tasks |= {task.id: task for task in of_language}
        found += rows_of_trajectories(recipe, attempts, tasks, source, prompt)
    kept = balanced(found, most, lambda row: str(row["language"]))
    ids = dict.fromkeys(str(row["id"] if recipe == "rl_grpo" else row["task_id"]) for row in kept)
    return kept, [tasks[id] for id in ids]


def write_rows(path: Path, found: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON object per line."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    path.write_text("".join(lines), "utf-8", newline="")
