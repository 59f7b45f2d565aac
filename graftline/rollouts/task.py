"""A task: an instruction, the text before, and what counts as done.

A task is sound only if its gold passes and the unedited text fails; everything else is counted and left out, for it
would teach that nothing, or anything, is right.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language
from graftline.codemod.equality import equality
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.datasets.edit import Edit
from graftline.sandbox.base import Sandbox, Verdict, ensure_decided


class Task(BaseModel):
    """One checkable edit."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    id: str
    """That of the edit."""
    dataset: str
    language: Language
    instruction: str
    before: str
    wanted: str
    """The text that counts as done; for grading and privileged teachers, never part of a prompt."""
    gold_action: Action | None = None
    """The action that makes it, or the first of several, where it is known."""
    gold_next: tuple[Action, ...] = ()
    """The actions after that, each on what the one before made."""
    licence: str
    group: str
    origin: str
    """The row it comes from, as the edit names it."""
    tags: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """What tells the task, as it is, from all others."""
        return digest(self.model_dump(mode="json"))


@dataclass
class Soundness:
    """The sound tasks and, by reason, the number of edits that make none."""

    tasks: list[Task] = field(default_factory=list)
    unsound: Counter[str] = field(default_factory=Counter)


def sound_tasks(edits: Iterable[Edit], sandbox: Sandbox) -> Soundness:
    """Return the tasks of `edits` whose gold passes and whose unedited text fails.

    Raises:
        SandboxError: the sandbox failed.
    """
    soundness = Soundness()
    for edit in edits:
        task = task_of(edit)
        fault = unsoundness(task, sandbox)
        if fault:
            soundness.unsound[fault] += 1
        else:
            soundness.tasks.append(task)
    return soundness


def task_of(edit: Edit) -> Task:
    """Return `edit` as a task, unchecked."""
    return Task(
        id=edit.id,
        dataset=edit.dataset,
        language=edit.language,
        instruction=edit.instruction,
        before=edit.pre,
        wanted=edit.post,
        gold_action=edit.gold_action,
        gold_next=edit.gold_next,
        licence=edit.licence,
        group=edit.group,
        origin=edit.origin,
        tags=edit.tags,
    )


def unsoundness(task: Task, sandbox: Sandbox) -> str:
    """Return why `task` is not sound; empty when it is."""
    gold = task.wanted if task.gold_action is None else task.before
    for action in () if task.gold_action is None else (task.gold_action, *task.gold_next):
        result = ensure_decided(sandbox.apply_many(gold, task.language, [action])[0])
        if result.verdict is not Verdict.OK or result.after is None:
            return f"gold_{result.verdict}"
        gold = result.after
    try:
        if not equality(gold, task.wanted, task.language).is_verified:
            return "gold_fails"
        if equality(task.before, task.wanted, task.language).is_verified:
            return "unedited_passes"
    except DataError:
        return "ungradable"
    return ""
