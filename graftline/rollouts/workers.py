"""Attempts in several processes: each has a sandbox and a teacher of its own, and results come in the order of tasks."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from graftline.core.errors import SandboxError
from graftline.core.processes import WorkerDied, Workers
from graftline.rollouts.collect import Collecting, attempt
from graftline.rollouts.step import Trajectory
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.settings import TeacherConfig
from graftline.sandbox.actions import SandboxConfig, open_sandbox

Attempts = Callable[[Iterable[Task]], Iterator[Trajectory]]


@contextmanager
def worker_attempts(
    count: int, sandbox: SandboxConfig, teacher: TeacherConfig, collecting: Collecting
) -> Iterator[Attempts]:
    """Start `count` workers, and stop them at the end.

    Raises:
        SandboxError: a worker cannot open its sandbox, or dies.
    """
    with Workers(count, partial(_opened, sandbox, teacher, collecting)) as workers:
        yield partial(_attempts, workers)


def _attempts(workers: Workers[Task, Trajectory], tasks: Iterable[Task]) -> Iterator[Trajectory]:
    try:
        yield from workers.map(tasks)
    except WorkerDied as error:
        raise SandboxError("a worker process died; what was collected is kept, start again to go on") from error


def _opened(sandbox: SandboxConfig, teacher: TeacherConfig, collecting: Collecting) -> Callable[[Task], Trajectory]:
    from graftline.rollouts.teachers.open import open_teacher  # of use to the worker alone

    opened = open_sandbox(sandbox)
    return partial(attempt, teacher=open_teacher(teacher, opened), sandbox=opened, collecting=collecting)
