"""Rows that a recipe trains on, and the tasks that they are of: drawn of the edits, tasks and attempts of one split."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graftline.astgrep.binding import Language
from graftline.datasets.division import Split
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.datasets.synthetic.composed import compose
from graftline.datasets.synthetic.held_out import has_held_out_form
from graftline.datasets.synthetic.pieces import in_pieces
from graftline.rollouts.step import Trajectory
from graftline.rollouts.task import Task, sound_tasks
from graftline.rollouts.task_selection import OVERSAMPLING, balance, template_of
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Request, Sandbox
from graftline.training.sets import (
    ComposedSource,
    Part,
    Row,
    SyntheticSource,
    TrajectorySource,
    fits_source,
    is_answerable,
    rows_of_tasks,
    rows_of_trajectories,
    thought,
)


@dataclass(frozen=True, slots=True)
class Material:
    """What is stored of one split, read when it is asked for."""

    split: Split
    edits: Callable[[Language], Sequence[Edit]]
    attempts: Callable[[Language], tuple[Mapping[str, Task], Sequence[Trajectory]]]
    """The tasks by id, and the attempts at them."""
    sandbox: Sandbox
    counted: Callable[[Sequence[Edit]], Iterator[Edit]] = iter
    """Reports how many edits became tasks."""


def rows_of(material: Material, recipe: str, source: Part, prompt: Prompt, most: int) -> tuple[list[Row], list[Task]]:
    """Return at most so many rows of one part of a recipe, and the tasks that they are of.

    Raises:
        SandboxError: the sandbox failed.
    """
    if not most:
        return [], []
    if isinstance(source, TrajectorySource) and not prompt.settings.shows_wanted:
        return _of_trajectories(material, recipe, source, prompt, most)
    if isinstance(source, TrajectorySource):
        tasks = _solved(material, source, prompt, most)
    else:
        tasks = _made(material, source, prompt, most)
    thoughts = _thoughts(tasks, material.sandbox) if prompt.settings.answer.layout == "thought" else []
    return list(rows_of_tasks(recipe, tasks, prompt, thoughts)), tasks


def _made(material: Material, source: SyntheticSource | ComposedSource, prompt: Prompt, most: int) -> list[Task]:
    sandbox, seed, made = material.sandbox, source.seed, list[Edit]()
    for language in source.languages:
        pieces = in_pieces(material.edits(language), language, source.most_characters)
        if isinstance(source, ComposedSource):
            # none is left out again, and so many of each language
            share = -(-most // len(source.languages))
            made += compose(pieces, language, share, seed, sandbox, source.most_characters)
        else:
            share = -(-most * OVERSAMPLING // len(source.languages))
            per_snippet, templates = source.per_snippet, source.templates
            made += synthesize(pieces, language, share, seed, sandbox, material.split, per_snippet, templates)
    sound = sound_tasks(material.counted(made), sandbox).tasks
    fitting = [task for task in sound if is_answerable(task, prompt)]
    return balance(fitting, most, lambda task: task.language, template_of)


def _solved(material: Material, source: TrajectorySource, prompt: Prompt, most: int) -> list[Task]:
    """Return tasks that were solved in one step, with that step's action as theirs; in train, none of a held-out form."""
    tasks: list[Task] = []
    for language in source.languages:
        by_id, attempts = material.attempts(language)
        for trajectory in attempts:
            if not trajectory.is_solved_in_one_step or not fits_source(trajectory, source):
                continue
            action = trajectory.path[0].model_output.action
            assert action is not None  # it made the wanted text
            task = by_id[trajectory.task_id].model_copy(update={"gold_action": action, "gold_next": ()})
            if is_answerable(task, prompt) and not (material.split == "train" and has_held_out_form(action, language)):
                tasks.append(task)
    return balance(tasks, most, lambda task: task.language)


def _thoughts(tasks: Sequence[Task], sandbox: Sandbox) -> list[str]:
    """Return what is to be said before the action of each task."""
    asked = [Request(task.before, task.language, (task.gold_action,)) for task in tasks if task.gold_action is not None]
    found = sandbox.apply_each(asked)
    return [thought(task.before, result.matches) for task, [result] in zip(tasks, found, strict=True)]


def _of_trajectories(
    material: Material, recipe: str, source: TrajectorySource, prompt: Prompt, most: int
) -> tuple[list[Row], list[Task]]:
    tasks: dict[str, Task] = {}
    found: list[Row] = []
    for language in source.languages:
        by_id, attempts = material.attempts(language)
        tasks |= by_id
        found += rows_of_trajectories(recipe, attempts, tasks, source, prompt)
    kept = balance(found, most, lambda row: str(row["language"]))
    ids = dict.fromkeys(str(row["id"] if recipe == "rl_grpo" else row["task_id"]) for row in kept)
    return kept, [tasks[id] for id in ids]
