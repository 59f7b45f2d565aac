"""The `memory` teacher: proposes the gold actions of a task where they are known, and gives up elsewhere."""

import re
from collections.abc import Sequence

from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import GaveUp, Proposal, Turn

_STEP = re.compile(r"step (\d+): ")


class MemoryTeacher:
    """Answers from the task itself, each gold action once; the state says how many there were."""

    name = "memory"
    listens = False

    def propose(
        self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1
    ) -> Proposal | GaveUp:
        if task.gold_action is None:
            return GaveUp("no_gold")
        actions = (task.gold_action, *task.gold_next)
        last = _STEP.match(state.history[-1]) if state.history else None
        step = int(last[1]) + 1 if last else 1
        if step > len(actions):
            return GaveUp("done" if text == task.wanted else "partial")
        update = StateUpdate(
            history=[f"step {step}: applied the gold action"],
            open_issues=[],
            next_focus="done" if step == len(actions) else "the next gold action",
        )
        return Proposal("I apply the action that is known to be right.", actions[step - 1], update)
