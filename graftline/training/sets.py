"""What a recipe of the lineage trains on: rows made of verified steps, or of synthetic edits whose right action is known.

The form of a row is that of the recipe: chats, pairs, steps of experts, or tasks. What is looked at, and the tasks that a
model is to solve before and after, are of the splits that nothing is trained on: other repositories.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from graftline.astgrep.action import ACTION
from graftline.astgrep.binding import Language
from graftline.codemod.canonical import canonical
from graftline.core.config import Config
from graftline.core.errors import ConfigError
from graftline.datasets.synthetic.held_out import OF_FAMILY
from graftline.rollouts.answer_grading import first_question
from graftline.rollouts.exports.rows import dpo_rows, sft_rows, srl_rows
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.step import Trajectory
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import Answer, fits, written
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Match

TRAIN, HELD_OUT, TASKS = "train.jsonl", "held_out.jsonl", "tasks.jsonl"
"""What a recipe trains on, what it looks at, and what is to be solved before and after."""

Row = dict[str, Any]
_LONGEST_SIDE, _HEAD, _TAIL = 100, 60, 30
"""Characters of a place in a thought; of a longer one its beginning and its end."""
_THOUGHT_OF = 2
"""Places that a thought tells of."""


class _Source(Config):
    languages: tuple[Language, ...] = Field(default=("python",), min_length=1)
    prompt: str = "brief"
    """Of `configs/teacher_prompts.yaml`: how tasks are asked and answered."""
    examples: int = Field(default=400, ge=1)
    """Rows to train on, at most."""
    held_out: int = Field(default=40, ge=0)
    """Rows to look at, and tasks to solve before and after, at most."""


class SyntheticSource(_Source):
    """Synthetic edits on snippets of the splits, made for the recipe, their actions applied in the sandbox."""

    kind: Literal["synthetic"] = "synthetic"
    templates: tuple[str, ...] = ()
    """Ids of docs/synthetic.md, inverses too; all if there are none."""
    most_characters: int = Field(default=240, ge=40)
    """Of a text before; longer snippets are cut into runs of whole statements."""
    per_snippet: int = Field(default=2, ge=1)
    seed: int = 0

    @model_validator(mode="after")
    def _knows_its_templates(self) -> Self:
        if unknown := sorted({*self.templates} - {*OF_FAMILY}):
            raise ValueError(f"templates: {unknown[0]!r} is unknown; docs/synthetic.md lists them")
        return self


class TrajectorySource(_Source):
    """Verified steps of the trajectories that are stored."""

    kind: Literal["trajectories"] = "trajectories"
    teachers: tuple[str, ...] = ()
    """Those of these teachers alone; of all if there are none."""
    of: Literal["all", "real", "synthetic"] = "all"
    """Kind of the edits."""


class ComposedSource(_Source):
    """Composed edits on pieces of the splits (`datasets.synthetic.composed`): every kind of change."""

    kind: Literal["composed"] = "composed"
    most_characters: int = Field(default=140, ge=40)
    """Of a piece, and of a text before."""
    seed: int = 0


Part = Annotated[SyntheticSource | ComposedSource | TrajectorySource, Field(discriminator="kind")]


class MixtureSource(Config):
    """Several of the others together; what is looked at and solved is theirs, too."""

    kind: Literal["mixture"] = "mixture"
    parts: tuple[Part, ...] = Field(min_length=2)

    @property
    def prompt(self) -> str:
        """That of all parts."""
        return self.parts[0].prompt

    @property
    def languages(self) -> tuple[Language, ...]:
        """Those of any part."""
        return tuple(dict.fromkeys(language for part in self.parts for language in part.languages))

    @model_validator(mode="after")
    def _is_asked_in_one_way(self) -> Self:
        if len(prompts := sorted({part.prompt for part in self.parts})) > 1:
            raise ValueError(f"parts: are asked by {', '.join(prompts)}; name one prompt in all of them")
        return self


Source = Annotated[SyntheticSource | ComposedSource | TrajectorySource | MixtureSource, Field(discriminator="kind")]


def parts_of(source: Source) -> tuple[SyntheticSource | ComposedSource | TrajectorySource, ...]:
    """Return what `source` is put together of; itself where it is no mixture."""
    return source.parts if isinstance(source, MixtureSource) else (source,)


_OF_TRAJECTORIES: Mapping[str, Callable[[Iterable[Trajectory], Prompt], Iterator[Row]]] = {
    "distill": sft_rows,
    "dpo": dpo_rows,
    "sl_basic": sft_rows,
    "srl": srl_rows,
}


def rows_of_trajectories(
    recipe: str, trajectories: Sequence[Trajectory], tasks: Mapping[str, Task], source: TrajectorySource, prompt: Prompt
) -> Iterator[Row]:
    """Yield what a recipe trains on of the attempts that fit `source`; `tasks` are theirs, by id."""
    chosen = [trajectory for trajectory in trajectories if fits_source(trajectory, source)]
    if recipe in _OF_TRAJECTORIES:
        yield from _OF_TRAJECTORIES[recipe](chosen, prompt)
        return
    ids = dict.fromkeys(trajectory.task_id for trajectory in chosen if trajectory.is_verified)
    yield from (tasks[id].model_dump(mode="json") for id in ids if id in tasks)


def rows_of_tasks(recipe: str, tasks: Sequence[Task], prompt: Prompt, thoughts: Sequence[str] = ()) -> Iterator[Row]:
    """Yield what a recipe that fits (`check_fits`) trains on, of tasks whose one right action is known.

    `thoughts` are what is to be said before it, one for each task, for a prompt that asks for that.
    """
    said = thoughts or [""] * len(tasks)
    return (_OF_TASKS[recipe](task, prompt, think) for task, think in zip(tasks, said, strict=True))


def thought(before: str, matches: Sequence[Match]) -> str:
    """Return what is said before an action: what becomes of the first place that it changes, and of one that differs.

    What both have is what the pattern holds, and where they differ are its metavariables.
    """
    places = (f"{_on_a_line(before[one.start : one.end])} => {_on_a_line(one.replacement)}" for one in matches)
    return " ; ".join([*dict.fromkeys(places)][:_THOUGHT_OF])


def check_fits(recipe: str, source: Source) -> None:
    """Refuse a source that a recipe cannot be trained on.

    Raises:
        ConfigError: it needs answers that are known to be wrong.
    """
    if recipe not in _OF_TASKS and not all(isinstance(part, TrajectorySource) for part in parts_of(source)):
        raise ConfigError(
            f"recipe {recipe!r} learns from answers that are wrong, and synthetic edits have none; use data.kind:"
            f" trajectories, or one of {', '.join(_OF_TASKS)}"
        )


def is_answerable(task: Task, prompt: Prompt) -> bool:
    """Return whether one action that is known solves `task`, and may be said in answer to `prompt`."""
    return task.gold_action is not None and not task.gold_next and fits(_answer(task), prompt.settings.answer)


def _chat(task: Task, prompt: Prompt, think: str) -> Row:
    answer = replace(_answer(task), think=think)
    said = {"role": "assistant", "content": written(answer, prompt.settings.answer.layout)}
    return {"messages": [*first_question(task, prompt), said], **_origin(task)}


def _expert(task: Task, prompt: Prompt, think: str) -> Row:
    action = ACTION.dump_python(canonical(_answer(task).action), mode="json")
    return {"prompt": first_question(task, prompt), "expert_action": action, **_origin(task)}


def _task(task: Task, prompt: Prompt, think: str) -> Row:
    return task.model_dump(mode="json")


_OF_TASKS: Mapping[str, Callable[[Task, Prompt, str], Row]] = {
    "distill": _chat,
    "rl_grpo": _task,
    "sl_basic": _chat,
    "srl": _expert,
}


def _answer(task: Task) -> Answer:
    assert task.gold_action is not None  # `is_answerable`
    # variables of the same names in the same order: what can be said in one way is learned sooner
    return Answer("", canonical(task.gold_action), StateUpdate(), is_strict=True)


def _on_a_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SIDE else f"{line[:_HEAD]} ... {line[-_TAIL:]}"


def fits_source(trajectory: Trajectory, source: TrajectorySource) -> bool:
    """Return whether an attempt is one of those that `source` asks for, verified or not."""
    is_synthetic = "synthetic" in trajectory.tags
    is_of_kind = source.of == "all" or is_synthetic == (source.of == "synthetic")
    return is_of_kind and (not source.teachers or trajectory.teacher in source.teachers)


def _origin(task: Task) -> Row:
    return {
        "task_id": task.id,
        "dataset": task.dataset,
        "language": task.language,
        "licence": task.licence,
        "origin": task.origin,
    }
