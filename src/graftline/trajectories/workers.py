"""Attempts in several processes: each has a sandbox and a teacher of its own, and results come in the order of tasks.

Workers end with the pool, and one whose parent was killed ends by itself; so nothing is left behind by a `kill -9`.
"""

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache, partial

from graftline.errors import SandboxError
from graftline.sandbox.open import SandboxConfig, open_sandbox
from graftline.tasks.task import Task
from graftline.teachers.open import TeacherConfig, open_teacher
from graftline.trajectories.collect import Collecting, attempt
from graftline.trajectories.step import Trajectory

_PR_SET_PDEATHSIG = 1
_TASKS_AT_ONCE = 4

Attempts = Callable[[Iterable[Task]], Iterator[Trajectory]]

_settings: tuple[SandboxConfig, TeacherConfig, Collecting] | None = None  # of a worker, which serves one pool only


def default_workers() -> int:
    """Return the number of cores this process may use, and 8 at most: a worker takes some 50 MB before its first task."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8)


@contextmanager
def worker_attempts(
    count: int, sandbox: SandboxConfig, teacher: TeacherConfig, collecting: Collecting
) -> Iterator[Attempts]:
    """Start `count` workers, and stop them at the end.

    Raises:
        SandboxError: a worker cannot open its sandbox, or dies.
    """
    # spawned, not forked: the parent has threads (Dagster's), and a fork would copy their locks as they are
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, _begin, (os.getpid(), (sandbox, teacher, collecting)))
    try:
        yield partial(_attempts, pool)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _attempts(pool: ProcessPoolExecutor, tasks: Iterable[Task]) -> Iterator[Trajectory]:
    try:
        yield from pool.map(_in_worker, tasks, chunksize=_TASKS_AT_ONCE)
    except BrokenProcessPool as error:
        raise SandboxError("a worker process died; what was collected is kept, start again to go on") from error


def _begin(parent: int, settings: tuple[SandboxConfig, TeacherConfig, Collecting]) -> None:
    global _settings
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    _settings = settings


def _in_worker(task: Task) -> Trajectory:
    return _opened()(task)


@cache
def _opened() -> Callable[[Task], Trajectory]:
    # with the first task, not when the worker begins: what fails there breaks the pool without a word of why
    if _settings is None:
        raise RuntimeError("a worker was called before it began")
    sandbox, teacher, collecting = _settings
    opened = open_sandbox(sandbox)
    return partial(attempt, teacher=open_teacher(teacher, opened), sandbox=opened, collecting=collecting)


def _die_with(parent: int) -> None:
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before we could ask to be told
