"""Attempts that users of the agent recorded (`graftline refactor --record`), as attempts at the tasks that were made of them."""

from collections.abc import Iterable, Sequence

from graftline.datasets.instruction_source import FIELDS
from graftline.rollouts.task import Task
from graftline.rollouts.trajectory import Trajectory

_OF_TASK = ("dataset", "language", "instruction", "license", "group", "origin", "tags", *FIELDS)


def adopt_recorded(recorded: Iterable[Trajectory], tasks: Sequence[Task]) -> list[Trajectory]:
    """Return the accepted ones of `recorded` as attempts at those of `tasks` that are of the same texts, one a task.

    What a task says of itself counts: its instruction is cleaned, and its license that of its dataset.
    """
    by_texts = {(task.language, task.before, task.target): task for task in tasks}
    attempts: dict[str, Trajectory] = {}
    for trajectory in recorded:
        step = trajectory.steps[0] if len(trajectory.steps) == 1 else None
        after = step.sandbox_result.after if step is not None and step.sandbox_result is not None else None
        if step is None or after is None or trajectory.reward.value != 1:
            continue
        task = by_texts.get((trajectory.language, step.prompt.text, after))
        # of two tasks with these texts, the one that was made of the run
        if task is not None and task.id.rpartition(":")[2] == trajectory.task_id.rpartition(":")[2]:
            own = {"task_id": task.id, "task_digest": task.digest}
            steps = (step.model_copy(update={"task_id": task.id}),)
            update = {**{name: getattr(task, name) for name in _OF_TASK}, **own, "steps": steps}
            attempts[task.id] = trajectory.model_copy(update=update)
    return [*attempts.values()]
