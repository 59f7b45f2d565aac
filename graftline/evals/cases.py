"""What an evaluation asks about: tasks, each with the class of its edit, and for some another text that must come right too."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from graftline.core.hashing import digest
from graftline.rollouts.task import Task
from graftline.rollouts.task_selection import template_of


class Unseen(BaseModel):
    """Code that nobody is shown: an action that is right says what it is about, and is right here as well."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pre: str
    post: str


class Case(BaseModel):
    """A task as it is evaluated."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    task: Task
    edit_class: str = Field(min_length=1)
    """What figures are told apart by beside the language: a template, a class of edits, or a dataset."""
    unseen: Unseen | None = None

    @property
    def id(self) -> str:
        """That of the task."""
        return self.task.id


@dataclass(frozen=True, slots=True)
class Question:
    """An attempt that is to be made."""

    case: Case
    attempt: int
    """From 1."""


def case_of(task: Task) -> Case:
    """Return a task of the lineage: the class of a synthetic one is its template, that of any other its dataset."""
    is_synthetic = any(tag.startswith("template:") for tag in task.tags)
    return Case(task=task, edit_class=template_of(task) if is_synthetic else task.dataset)


def digest_of(cases: Sequence[Case]) -> str:
    """Return what tells these cases, as they are, from all others."""
    return digest([case.model_dump(mode="json") for case in cases])
