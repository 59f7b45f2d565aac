"""A task: an instruction, the text before, and what counts as done.

A task is sound only if its gold passes and the unedited text fails; everything else is counted and left out, for it
would teach that nothing, or anything, is right.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language
from graftline.codemod.equality import compare_texts
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.datasets.edit import Edit, Label
from graftline.sandbox.base import Sandbox, Verdict, ensure_decided


class Task(BaseModel):
    """One checkable edit."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_by_name=True, serialize_by_alias=True
    )

    id: str
    """That of the edit."""
    dataset: str
    language: Language
    instruction: str
    before: str
    target: str = Field(validation_alias="wanted", serialization_alias="wanted")
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
class TaskValidation:
    """The sound tasks and, by reason, the number of edits that make none."""

    tasks: list[Task] = field(default_factory=list)
    invalid: Counter[str] = field(default_factory=Counter)


def validate_tasks(edits: Iterable[Edit], sandbox: Sandbox) -> TaskValidation:
    """Return the tasks of `edits` whose gold passes and whose unedited text fails."""
    soundness = TaskValidation()
    for edit in edits:
        task = task_of(edit)
        fault = invalid_reason(task, sandbox)
        if fault:
            soundness.invalid[fault] += 1
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
        target=edit.post,
        gold_action=edit.gold_action,
        gold_next=edit.gold_next,
        licence=edit.licence,
        group=edit.group,
        origin=edit.origin,
        tags=edit.tags,
    )


def invalid_reason(task: Task, sandbox: Sandbox) -> str:
    """Return why `task` is not sound; empty when it is."""
    gold = task.target if task.gold_action is None else task.before
    for action in () if task.gold_action is None else (task.gold_action, *task.gold_next):
        result = ensure_decided(sandbox.apply_many(gold, task.language, [action])[0])
        if result.verdict is not Verdict.OK or result.after is None:
            return f"gold_{result.verdict}"
        gold = result.after
    try:
        if not compare_texts(gold, task.target, task.language).is_verified:
            return "gold_fails"
        if compare_texts(task.before, task.target, task.language).is_verified:
            return "unedited_passes"
    except DataError:
        return "ungradable"
    return ""


class OpenTask(BaseModel):
    """One thing to be done to a text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    id: str
    """That of the label."""
    dataset: str
    language: Language
    instruction: str
    before: str
    label: str
    """What is said of the text: a smell that should go, or a refactoring that should be done."""
    holds: bool | None
    """Whether people agree on it; of a disputed refactoring the known text after is not one that counts as done."""
    subject: str = ""
    """What in the text it is said of; empty for the whole."""
    licence: str
    group: str
    origin: str
    tags: tuple[str, ...] = ()


def open_task_of(label: Label) -> OpenTask:
    """Return the task of `label`."""
    return OpenTask(
        id=label.id,
        dataset=label.dataset,
        language=label.language,
        instruction=label.instruction,
        before=label.pre,
        label=label.label,
        holds=label.holds,
        subject=label.subject,
        licence=label.licence,
        group=label.group,
        origin=label.origin,
        tags=label.tags,
    )
