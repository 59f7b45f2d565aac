"""Small tasks, and the simplest teachers there can be."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import NoProposal, Proposal, Teacher
from tests.tasks import make_task

Action = PatternAction | RuleAction


class ReadingTeacher:
    """Proposes the actions it was given, one after the other, and then gives up."""

    name = "reading"
    uses_feedback = False

    def __init__(self, actions: Sequence[Action]) -> None:
        self._actions = list(actions)
        self.asked: list[tuple[str, State]] = []

    def propose(self, task: Task, text: str, state: State, *_: Any) -> Proposal | NoProposal:
        self.asked.append((text, state))
        if not self._actions:
            return NoProposal("no_candidate")
        number = len(self.asked)
        return Proposal(f"thought {number}", self._actions.pop(0), StateUpdate(history=[f"step {number}"]))


@pytest.fixture
def reading() -> Callable[[Sequence[Action]], Teacher]:
    """A function of actions that returns a teacher which proposes them in order."""
    return ReadingTeacher


@pytest.fixture
def task_of() -> Callable[..., Task]:
    """A function of the texts before and wanted that returns a task."""
    return partial(make_task, tags=("a", "b"))
