"""Which of all the attempts that were ever stored count: those at the tasks as they are, the latest of each teacher."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graftline.rollouts.step import Trajectory
from graftline.rollouts.task import Task


@dataclass(frozen=True, slots=True)
class Current:
    """The attempts that count, in the order of tasks, teachers and attempts, and how many others there are."""

    attempts: list[Trajectory]
    left_out: dict[str, int]
    """`not_kept.other_task`: the task is gone, or has changed; `not_kept.superseded`: made again since."""


def current_attempts(attempts: Iterable[Trajectory], tasks: Sequence[Task]) -> Current:
    """Return those of `attempts`, which stand in the order in which they were made, that count for `tasks`."""
    order = {task.digest: number for number, task in enumerate(tasks)}
    latest: dict[tuple[int, str, int], Trajectory] = {}
    left_out: Counter[str] = Counter()
    for attempt in attempts:
        number = order.get(attempt.task_digest)
        if number is None:
            left_out["not_kept.other_task"] += 1
            continue
        place = number, attempt.teacher, attempt.attempt
        left_out["not_kept.superseded"] += place in latest
        latest[place] = attempt
    return Current(
        [latest[place] for place in sorted(latest)], {name: count for name, count in left_out.items() if count}
    )
