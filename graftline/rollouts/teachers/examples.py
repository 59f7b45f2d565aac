"""Examples for a prompt: steps of verified trajectories that are like the task.

Two steps are alike by their instructions above all, and by the code before them. Never shown: what is not of the training
split, what is of the same task or the same group, and a second step with the same action. They are shown briefly, since
teachers think at different lengths: as a thought, what the first place becomes and what varies; of the state, what was
done.
"""

import json
from array import array
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from math import sqrt

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.astgrep.action import ACTION, rule_of
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.cost import patterns_of
from graftline.core.errors import DataError, RecordError
from graftline.core.hashing import digest
from graftline.rollouts.retrieval.base import Embedder, Vector, VectorEntry, VectorStore
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import Answer, AnswerFormat, fits_format
from graftline.rollouts.teachers.prompt import FewShots, Shot
from graftline.rollouts.teachers.wording import quote

_VERSION = 1
_OF_CODE = 0.4
"""Weight of the code, to 1 of the instruction."""
_MAX_CODE = 800
"""Characters; prompts have no room for more."""
_SPARE = 8
"""Looked at for one that is shown, since many have the same action or do not fit the answer that is asked for."""


class VerifiedStep(BaseModel):
    """One step of a verified trajectory."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    id: str
    """Of the step: no two have the same."""
    task_id: str
    group: str
    split: str
    shot: Shot
    """What was asked, and what was answered; its code is the text before the step."""
    after: str = ""
    """The text after the step; where it is not given, what a place becomes is not shown."""


class Examples:
    """Verified steps in a store."""

    def __init__(self, embedder: Embedder, store: VectorStore) -> None:
        self._embedder, self._store = embedder, store

    def rebuild(self, identity: str, steps: Iterable[VerifiedStep]) -> bool:
        """Put `steps` in the place of what is stored, unless that was made from the same; return whether it was done.

        Args:
            identity: What the steps come from, e.g. the identities of their records joined.
            steps: Looked at only if they are stored.

        Raises:
            DataError: a step is of another split than `train`.
            RecordError: the store cannot be used.
        """
        made_from = digest([_VERSION, self._embedder.name, identity])
        if self._store.identity == made_from:
            return False
        self._store.replace(made_from, self._entries(steps))
        return True

    def like(self, task: Task, text: str, few_shots: FewShots, answer_format: AnswerFormat) -> list[VerifiedStep]:
        """Return the steps to be shown with `task`, whose text is now `text`; the one that is most like it comes last.

        Raises:
            RecordError: the store cannot be read.
        """
        neighbors = self._store.nearest(
            self._vector(task.instruction, text),
            few_shots.count * _SPARE,
            having={"language": task.language},
            lacking={"task": task.id, "origin_group": task.group},
        )
        chosen = dict[str, VerifiedStep]()
        for neighbor in neighbors:
            if neighbor.distance > few_shots.most_distance or len(chosen) == few_shots.count:
                break
            step = _parse_stored(neighbor.content)
            shot = step.shot
            if shot.code != text and fits_format(
                Answer(shot.think, shot.action, shot.state_update, True), answer_format
            ):
                chosen.setdefault(json.dumps(ACTION.dump_python(shot.action, mode="json"), sort_keys=True), step)
        return [*chosen.values()][::-1]

    def _entries(self, steps: Iterable[VerifiedStep]) -> Iterator[VectorEntry]:
        for step in steps:
            if step.split != "train":
                raise DataError(f"step {step.id!r} is of split {step.split!r}; only those of 'train' may be shown")
            shot = step.shot
            if len(shot.code) <= _MAX_CODE:
                labels = {"language": shot.language, "task": step.task_id, "origin_group": step.group}
                vector = self._vector(shot.instruction, shot.code)
                content = step.model_copy(update={"shot": _brief(step), "after": ""}).model_dump_json()
                yield VectorEntry(step.id, vector, content, labels)

    def _vector(self, instruction: str, code: str) -> Vector:
        about, written = self._embedder.embed([instruction, code[:_MAX_CODE]])
        length = sqrt(any(about) + _OF_CODE**2 * any(written)) or 1
        return array("f", [*(value / length for value in about), *(_OF_CODE * value / length for value in written)])


def _brief(step: VerifiedStep) -> Shot:
    shot = step.shot
    patterns = patterns_of(rule_of(shot.action)["rule"])
    free = dict.fromkeys(name for pattern in patterns for name in VARIABLE.findall(pattern))
    update = StateUpdate(history=(shot.state_update.history or [])[-1:], next_focus=shot.state_update.next_focus)
    stands = (
        f"{', '.join(free)} {'stands' if len(free) == 1 else 'stand'} for what varies." if free else "Nothing varies."
    )
    think = f"{_first_change(shot.code, step.after)} {stands}".strip()
    return shot.model_copy(update={"think": think, "state_update": update})


def _first_change(before: str, after: str) -> str:
    if not after:
        return ""
    old, new = before.splitlines(), after.splitlines()
    for kind, *lines in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = (quote(" ".join(side)) for side in (old[lines[0] : lines[1]], new[lines[2] : lines[3]]))
        if kind != "equal":
            return {"replace": f"{gone} becomes {come}.", "delete": f"{gone} goes.", "insert": f"{come} comes."}[kind]
    return ""


def _parse_stored(content: str) -> VerifiedStep:
    try:
        return VerifiedStep.model_validate_json(content)
    except ValidationError as error:
        raise RecordError("the store of examples holds something else; delete it, and it is made again") from error
