"""The `memory` teacher: proposes the gold action of a task where it is known, and gives up elsewhere."""

from graftline.state.state import State, StateUpdate
from graftline.tasks.task import Task
from graftline.teachers.base import Proposal


class MemoryTeacher:
    """Answers from the task itself, once per task."""

    name = "memory"

    def propose(self, task: Task, text: str, state: State) -> Proposal | None:
        if task.gold_action is None or state.history:
            return None
        update = StateUpdate(history=["step 1: applied the gold action"], open_issues=[], next_focus="done")
        return Proposal("I apply the action that is known to be right.", task.gold_action, update)
