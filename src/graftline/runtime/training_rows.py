"""Rows that a recipe trains on, and the tasks that they are of: of one part of its data, and of one split."""

from collections.abc import Sequence

from graftline.actions.astgrep import Language
from graftline.datasets.division import Split
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.datasets.synthetic.composed import compose
from graftline.datasets.synthetic.pieces import in_pieces
from graftline.jsonl import read_lines
from graftline.runtime.lineage import Lineage
from graftline.sandbox.base import Request as Asked
from graftline.tasks.task import Task, sound_tasks
from graftline.teachers.prompt import Prompt
from graftline.training.sets import (
    DRAWN,
    ComposedSource,
    Part,
    Row,
    SyntheticSource,
    TrajectorySource,
    balanced,
    fits_source,
    is_answerable,
    rows_of_tasks,
    rows_of_trajectories,
    template_of,
    thought,
)
from graftline.trajectories.current import current_attempts
from graftline.trajectories.shards import read_shards, sealed_shards
from graftline.trajectories.step import Trajectory


def training_rows(
    lineage: Lineage, recipe: str, source: Part, prompt: Prompt, split: Split, most: int
) -> tuple[list[Row], list[Task]]:
    """Return rows of a split, and the tasks that they are of."""
    if not most:
        return [], []
    if isinstance(source, TrajectorySource) and not prompt.settings.shows_wanted:
        return _of_trajectories(lineage, recipe, source, prompt, split, most)
    if isinstance(source, TrajectorySource):
        tasks = _solved(lineage, source, prompt, split, most)
    else:
        tasks = _synthetic(lineage, source, prompt, split, most)
    thoughts = _thoughts(lineage, tasks) if prompt.settings.answer.layout == "thought" else {}
    return list(rows_of_tasks(recipe, tasks, prompt, thoughts)), tasks


def _synthetic(
    lineage: Lineage, source: SyntheticSource | ComposedSource, prompt: Prompt, split: Split, most: int
) -> list[Task]:
    sandbox, made = lineage.ports.sandbox, list[Edit]()
    for language in source.languages:
        edits = list(read_lines(lineage.paths.partition("processed", language, split) / "edits.jsonl", Edit))
        pieces = in_pieces(edits, language, source.most_characters)
        if isinstance(source, ComposedSource):
            # none is left out again, and so many of each language
            share = -(-most // len(source.languages))
            made += compose(pieces, language, share, source.seed, sandbox)
            continue
        share = -(-most * DRAWN // len(source.languages))
        made += synthesize(pieces, language, share, source.seed, sandbox, split, source.per_snippet, source.templates)
    sound = sound_tasks(lineage.counted(made), sandbox).tasks
    fitting = [task for task in sound if is_answerable(task, prompt)]
    return balanced(fitting, most, lambda task: task.language, template_of)


def _solved(lineage: Lineage, source: TrajectorySource, prompt: Prompt, split: Split, most: int) -> list[Task]:
    """Return tasks that were solved in one step, with that step's action as theirs."""
    tasks: list[Task] = []
    for language in source.languages:
        of_language, attempts = _attempts(lineage, language, split)
        for trajectory in attempts:
            if len(trajectory.path) == 1 and fits_source(trajectory, source):
                found = trajectory.path[0].model_output.action
                task = of_language[trajectory.task_id].model_copy(update={"gold_action": found, "gold_next": ()})
                tasks += [task] if is_answerable(task, prompt) else []
    return balanced(tasks, most, lambda task: task.language)


def _thoughts(lineage: Lineage, tasks: Sequence[Task]) -> dict[str, str]:
    asked = [Asked(task.before, task.language, (task.gold_action,)) for task in tasks if task.gold_action is not None]
    found = lineage.ports.sandbox.apply_each(asked)
    return {
        task.id: thought(task.before, result.matches)
        for task, [result] in zip(tasks, found, strict=True)
        if result.matches
    }


def _of_trajectories(
    lineage: Lineage, recipe: str, source: TrajectorySource, prompt: Prompt, split: Split, most: int
) -> tuple[list[Row], list[Task]]:
    tasks: dict[str, Task] = {}
    found: list[Row] = []
    for language in source.languages:
        of_language, attempts = _attempts(lineage, language, split)
        tasks |= of_language
        found += rows_of_trajectories(recipe, attempts, tasks, source, prompt)
    kept = balanced(found, most, lambda row: str(row["language"]))
    ids = dict.fromkeys(str(row["id"] if recipe == "rl_grpo" else row["task_id"]) for row in kept)
    return kept, [tasks[id] for id in ids]


def _attempts(lineage: Lineage, language: Language, split: Split) -> tuple[dict[str, Task], Sequence[Trajectory]]:
    """Return the tasks of a split by id, and the attempts at them that are of today's settings."""
    tasks = list(read_lines(lineage.paths.partition("tasks", language, split) / "tasks.jsonl", Task))
    shards = [shard for folder in lineage.attempted(language, split) for shard in sealed_shards(folder)]
    return {task.id: task for task in tasks}, current_attempts(read_shards(shards), tasks).attempts
