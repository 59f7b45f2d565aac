"""The `Teacher` port: propose the next step on a task.

A proposal, however poor, is a result; so is None, by which a teacher gives up. An error is raised only when the
teacher itself cannot answer.
"""

from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from graftline.actions.action import Action, PatternAction, RuleAction
from graftline.state.state import State, StateUpdate
from graftline.tasks.task import Task


class Attempt(BaseModel):
    """An action that was not proposed, because it failed where the teacher tried it, with what it was told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Action
    feedback: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """One step as a teacher would take it."""

    think: str
    action: PatternAction | RuleAction
    state_update: StateUpdate
    attempts: tuple[Attempt, ...] = ()


class Teacher(Protocol):
    """Proposes steps."""

    @property
    def name(self) -> str:
        """What the teacher is called in trajectories and reports."""

    def propose(self, task: Task, text: str, state: State) -> Proposal | None:
        """Return the next step on `task`, whose text is now `text`; None to give up.

        Raises:
            BoundaryError: the teacher cannot answer; nothing is known about the task.
        """
