"""The `Teacher` port: propose the next step on a task.

A proposal, however poor, is a result; so is `GaveUp`, with its cause. An error is raised only when the teacher itself
cannot answer.
"""

from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from graftline.actions.action import Action, PatternAction, RuleAction
from graftline.state.state import State, StateUpdate
from graftline.tasks.task import Task


class Attempt(BaseModel):
    """An action that was not proposed, because it failed where the teacher tried it, with what it was told."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    think: str = ""
    """What is said before the action."""
    action: Action
    feedback: str
    """What the critic answered to it."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One step as a teacher would take it: its attempts first, in order, then what it thinks, then the action."""

    think: str
    action: PatternAction | RuleAction
    state_update: StateUpdate
    attempts: tuple[Attempt, ...] = ()
    alternatives: tuple[PatternAction | RuleAction, ...] = ()
    """Other actions that would be right at this place, from literal to general."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Says that a teacher has no next step."""

    cause: str
    """`done` where the text counts as the wanted one; else why there is none, as `rules.induction.Unsolved` has it, or
    `no_gold` where nothing is known about the task."""


class Teacher(Protocol):
    """Proposes steps."""

    @property
    def name(self) -> str:
        """What the teacher is called in trajectories and reports."""

    def propose(self, task: Task, text: str, state: State) -> Proposal | GaveUp:
        """Return the next step on `task`, whose text is now `text`.

        Raises:
            BoundaryError: the teacher cannot answer; nothing is known about the task.
        """
