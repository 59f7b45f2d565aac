"""Rows that a recipe of the lineage trains on, and their tasks, made of the edits, tasks and attempts of one split.

The form of a row is that of the recipe: chats, pairs, steps of experts, or tasks. What the held-out loss is taken on, and the
tasks that a model is to solve before and after, are of the splits that nothing is trained on: other repositories.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graftline.agent.single_places import (
    list_places_of_text,
    list_single_places,
    says_enough,
    take_turns,
    task_of_place,
)
from graftline.astgrep.action import ACTION
from graftline.astgrep.binding import Language
from graftline.codemod.canonical import canonicalize
from graftline.core.errors import ConfigError
from graftline.core.hashing import sha256_text
from graftline.datasets.edit import Edit
from graftline.datasets.instruction_source import FIELDS
from graftline.datasets.splits import Split
from graftline.datasets.synthetic import synthesize
from graftline.datasets.synthetic.composed import compose
from graftline.datasets.synthetic.excerpts import split_into_excerpts
from graftline.datasets.synthetic.families import has_held_out_form
from graftline.rollouts.answer_grading import first_question
from graftline.rollouts.exports.chats import dpo_rows, sft_rows, srl_rows
from graftline.rollouts.fenced_code import fence_code
from graftline.rollouts.repository_task import RepositoryTask
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.task import (
    Task,
    check_trainable,
    select_for_agents,
    select_told,
    validate_tasks,
)
from graftline.rollouts.task_instructions import ask_for_edit
from graftline.rollouts.task_selection import OVERSAMPLING, balance, template_of
from graftline.rollouts.teachers.answer import Answer, fits_format, format_answer
from graftline.rollouts.teachers.prompt import Prompt
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.base import Match, Request, Sandbox
from graftline.training.settings import (
    ChangesSource,
    ComposedSource,
    Part,
    Source,
    SyntheticSource,
    TasksSource,
    TrajectorySource,
    parts_of,
)

Row = dict[str, Any]
_MAX_SIDE, _HEAD, _TAIL = 100, 60, 30
"""Characters of a place in a thought; of a longer one its beginning and its end."""
_THOUGHT_PLACES = 2
_OF_ACTIONS = ("dpo", "srl")
"""Recipes whose examples are actions, and not what they make."""


@dataclass(frozen=True, slots=True)
class Material:
    """What is stored of one split, read when it is asked for."""

    split: Split
    edits: Callable[[Language], Sequence[Edit]]
    attempts: Callable[[Language], tuple[Mapping[str, Task], Sequence[Trajectory]]]
    """The tasks by id, and the attempts at them."""
    tasks: Callable[[Language], Sequence[Task]]
    changes: Callable[[], Sequence[RepositoryTask]]
    """Changes of repositories, of any language."""
    sandbox: Sandbox
    counted: Callable[[Sequence[Edit]], Iterator[Edit]] = iter
    """Reports how many edits became tasks."""


def check_fits(recipe: str, source: Source, prompt: Prompt) -> None:
    """Raise ConfigError where a recipe cannot be trained on `source`: it needs answers that are wrong, or `prompt` other ones."""
    is_code, kinds = prompt.settings.answer.layout == "code", {part.kind for part in parts_of(source)}
    if is_code and recipe in _OF_ACTIONS:
        raise ConfigError(
            f"recipe {recipe!r} learns from actions, and prompt {source.prompt!r} is answered with code; use another prompt"
        )
    if is_code and "trajectories" in kinds:
        raise ConfigError(
            f"prompt {source.prompt!r} is answered with code, and trajectories have actions; use data.kind: tasks"
        )
    if not is_code and kinds & {"tasks", "changes"}:
        kind = min(kinds & {"tasks", "changes"})
        raise ConfigError(
            f"data.kind: {kind} has no known actions, which prompt {source.prompt!r} is answered with; use a prompt whose"
            " layout is code, such as edit"
        )
    if recipe not in _TASK_ROWS and not all(isinstance(part, TrajectorySource) for part in parts_of(source)):
        raise ConfigError(
            f"recipe {recipe!r} learns from answers that are wrong, and synthetic edits have none; use data.kind:"
            f" trajectories, or one of {', '.join(_TASK_ROWS)}"
        )


def rows_of(
    material: Material, recipe: str, source: Part, prompt: Prompt, most: int, left_out: Counter[str]
) -> tuple[list[Row], list[Task]]:
    """Return at most so many rows of one part of a recipe, and their tasks; SandboxError where the sandbox failed.

    Attempts at tasks that are not for whoever is told what to do are counted in `left_out`.
    """
    if not most:
        return [], []
    if isinstance(source, TrajectorySource) and not prompt.settings.shows_target:
        return _trajectory_rows(material, recipe, source, prompt, most, left_out)
    match source:
        case TrajectorySource():
            tasks = _tasks_of_attempts(material, source, prompt, most, left_out)
        case TasksSource():
            tasks = _stored_tasks(material, source, most, left_out)
        case ChangesSource():
            tasks = _tasks_of_changes(material, source, most, left_out)
        case SyntheticSource() | ComposedSource():
            tasks = _synthetic_tasks(material, source, prompt, most)
    thoughts = _thoughts(tasks, material.sandbox) if prompt.settings.answer.layout == "thought" else []
    return list(rows_of_tasks(recipe, tasks, prompt, thoughts)), tasks


def _synthetic_tasks(
    material: Material, source: SyntheticSource | ComposedSource, prompt: Prompt, most: int
) -> list[Task]:
    sandbox, seed, edits = material.sandbox, source.seed, list[Edit]()
    for language in source.languages:
        pieces = split_into_excerpts(material.edits(language), language, source.most_characters)
        if isinstance(source, ComposedSource):
            # none is left out again, and so many of each language
            share = -(-most // len(source.languages))
            composed = compose(pieces, language, share, seed, sandbox, source.most_characters)
            edits += composed if prompt.settings.shows_target else _with_instructions(composed, sandbox)
        else:
            share = -(-most * OVERSAMPLING // len(source.languages))
            per_snippet, templates = source.per_snippet, source.templates
            edits += synthesize(pieces, language, share, seed, sandbox, material.split, per_snippet, templates)
    tasks = validate_tasks(material.counted(edits), sandbox).tasks
    sayable = [task for task in tasks if is_sayable(task, prompt)]
    return balance(sayable, most, lambda task: task.language, template_of)


def _with_instructions(edits: Iterable[Edit], sandbox: Sandbox) -> Iterator[Edit]:
    """Yield the edits that rules find words for, with those; what came with them names an example that is not shown."""
    for edit in edits:
        worded = ask_for_edit(edit.model_copy(update={"instruction": "", "instruction_source": "none"}), sandbox)
        if worded.instruction_source != "none":
            yield worded


def _stored_tasks(material: Material, source: TasksSource, most: int, left_out: Counter[str]) -> list[Task]:
    """Return tasks of the split, in an order that says nothing of where they come from, or single places of long ones."""
    tasks = [
        task
        for language in source.languages
        for task in material.tasks(language)
        if (source.of == "all" or ("synthetic" in task.tags) == (source.of == "synthetic"))
        and (source.places or len(task.before) <= source.most_characters)
    ]
    chosen = sorted(select_told(tasks, source.instructions, left_out), key=lambda task: sha256_text(f"train {task.id}"))
    places = [
        [place for place in _pieces_of(task, source) if source.instructions != "told" or says_enough(place)][
            : max(1, source.places)
        ]
        for task in chosen
    ]
    # of longer texts, one place of each before the second of one
    fitting = take_turns(places, max(1, source.places))
    return balance(fitting, most, lambda task: task.language, lambda task: task.dataset)


def _pieces_of(task: Task, source: TasksSource) -> list[Task]:
    """Return a task that is short enough by itself, or else its places that are."""
    if len(task.before) <= source.most_characters:
        return [task]
    return [place for place in list_places_of_text(task) if len(place.before) <= source.most_characters]


def _tasks_of_changes(material: Material, source: ChangesSource, most: int, left_out: Counter[str]) -> list[Task]:
    """Return places of changes, one of each before the second of one."""
    changes = [change for change in material.changes() if change.language in source.languages]
    chosen = sorted(select_told(changes, source.instructions, left_out), key=lambda change: sha256_text(change.id))
    places = [
        [
            task
            for place in list_single_places(change.change)
            if len((task := task_of_place(change, place)).before) <= source.most_characters
            and (source.instructions != "told" or says_enough(task))
        ]
        for change in balance(chosen, len(chosen), lambda change: change.language)
    ]
    return take_turns(places, source.places)[:most]


def _tasks_of_attempts(
    material: Material, source: TrajectorySource, prompt: Prompt, most: int, left_out: Counter[str]
) -> list[Task]:
    """Return tasks that were solved in one step, with that step's action as theirs; in train, none of a held-out form."""
    tasks: list[Task] = []
    for language in source.languages:
        by_id, attempts = material.attempts(language)
        for trajectory in _fitting(attempts, source, left_out):
            if not trajectory.is_solved_in_one_step:
                continue
            action = trajectory.path[0].model_output.action
            assert action is not None  # it made the target text
            task = by_id[trajectory.task_id].model_copy(update={"gold_action": action, "gold_next": ()})
            if is_sayable(task, prompt) and not (material.split == "train" and has_held_out_form(action, language)):
                tasks.append(task)
    return balance(tasks, most, lambda task: task.language)


def _trajectory_rows(
    material: Material, recipe: str, source: TrajectorySource, prompt: Prompt, most: int, left_out: Counter[str]
) -> tuple[list[Row], list[Task]]:
    tasks: dict[str, Task] = {}
    rows: list[Row] = []
    for language in source.languages:
        by_id, attempts = material.attempts(language)
        tasks |= by_id
        fitting = _fitting(attempts, source, left_out)
        if recipe in _TRAJECTORY_ROWS:
            rows += _TRAJECTORY_ROWS[recipe](fitting, prompt)
        else:
            ids = dict.fromkeys(trajectory.task_id for trajectory in fitting if trajectory.is_verified)
            rows += rows_of_tasks(recipe, [tasks[id] for id in ids if id in tasks], prompt)
    rows = balance(rows, most, lambda row: str(row["language"]))
    ids = dict.fromkeys(str(row["id"] if _TASK_ROWS.get(recipe) is _task_row else row["task_id"]) for row in rows)
    return rows, [tasks[id] for id in ids]


_TRAJECTORY_ROWS: Mapping[str, Callable[[Iterable[Trajectory], Prompt], Iterator[Row]]] = {
    "distill": sft_rows,
    "dpo": dpo_rows,
    "sl_basic": sft_rows,
    "srl": srl_rows,
}


def _fitting(attempts: Iterable[Trajectory], source: TrajectorySource, left_out: Counter[str]) -> list[Trajectory]:
    of_source = (trajectory for trajectory in attempts if _fits_source(trajectory, source))
    return select_for_agents(of_source, source.instructions, left_out)


def _fits_source(trajectory: Trajectory, source: TrajectorySource) -> bool:
    is_synthetic = "synthetic" in trajectory.tags
    is_of_kind = source.of == "all" or is_synthetic == (source.of == "synthetic")
    return is_of_kind and (not source.teachers or trajectory.teacher in source.teachers)


def rows_of_tasks(recipe: str, tasks: Sequence[Task], prompt: Prompt, thoughts: Sequence[str] = ()) -> Iterator[Row]:
    """Yield what a recipe trains on, of tasks whose one right action is known.

    `thoughts` are what is to be said before it, one for each task, for a prompt that asks for that.
    """
    make_row = _TASK_ROWS[recipe]
    for task in tasks:
        check_trainable(task.tags, task.id)
    return (make_row(task, prompt, think) for task, think in zip(tasks, thoughts or [""] * len(tasks), strict=True))


def is_sayable(task: Task, prompt: Prompt) -> bool:
    """Return whether what solves `task` may be said in answer to `prompt`: its code, or one action that is known."""
    if prompt.settings.answer.layout == "code":
        return True
    return task.gold_action is not None and not task.gold_next and fits_format(_answer(task), prompt.settings.answer)


def _thoughts(tasks: Sequence[Task], sandbox: Sandbox) -> list[str]:
    """Return what is to be said before the action of each task."""
    requests = [
        Request(task.before, task.language, (task.gold_action,)) for task in tasks if task.gold_action is not None
    ]
    results = sandbox.apply_each(requests)
    return [thought(task.before, result.matches) for task, [result] in zip(tasks, results, strict=True)]


def thought(before: str, matches: Sequence[Match]) -> str:
    """Return what is said before an action: what becomes of the first place that it changes, and of one that differs.

    What both have is what the pattern holds, and where they differ are its metavariables.
    """
    places = (
        f"{_on_one_line(before[match.start : match.end])} => {_on_one_line(match.replacement)}" for match in matches
    )
    return " ; ".join([*dict.fromkeys(places)][:_THOUGHT_PLACES])


def _on_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SIDE else f"{line[:_HEAD]} ... {line[-_TAIL:]}"


def _chat_row(task: Task, prompt: Prompt, think: str) -> Row:
    layout = prompt.settings.answer.layout
    if layout == "code":
        content = fence_code(task.target, task.language)
    else:
        content = format_answer(replace(_answer(task), think=think), layout)
    message = {"role": "assistant", "content": content}
    return {"messages": [*first_question(task, prompt), message], **_origin(task)}


def _expert_row(task: Task, prompt: Prompt, think: str) -> Row:
    action = ACTION.dump_python(canonicalize(_answer(task).action), mode="json")
    return {"prompt": first_question(task, prompt), "expert_action": action, **_origin(task)}


def _task_row(task: Task, prompt: Prompt, think: str) -> Row:
    return task.model_dump(mode="json")


_TASK_ROWS: Mapping[str, Callable[[Task, Prompt, str], Row]] = {
    "distill": _chat_row,
    "expert_iteration": _task_row,
    "rl_grpo": _task_row,
    "sl_basic": _chat_row,
    "srl": _expert_row,
}


def _answer(task: Task) -> Answer:
    assert task.gold_action is not None  # `is_sayable`
    # variables of the same names in the same order: what can be said in one way is learned sooner
    return Answer("", canonicalize(task.gold_action), StateUpdate(), is_strict=True)


def _origin(task: Task) -> Row:
    return {
        "task_id": task.id,
        "dataset": task.dataset,
        "language": task.language,
        "license": task.license,
        "origin": task.origin,
        **{name: getattr(task, name) for name in FIELDS},
    }
