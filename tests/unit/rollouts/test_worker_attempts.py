"""Attempts in worker processes: the same results, and what the death of a worker or of the parent leaves."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from graftline.core.errors import SandboxError
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.collect_many import JOURNAL_NAME, collect_many, worker_attempts
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import InductionTeacherConfig
from graftline.rollouts.teachers.induction import InductionTeacher
from graftline.sandbox import MemorySandboxConfig, ProcessSandboxConfig
from graftline.sandbox.actions.memory import MemorySandbox
from tests.processes import children_with

TEACHER = InductionTeacherConfig()


@pytest.fixture
def tasks(task_of: Callable[..., Task]) -> list[Task]:
    texts = [(f"old({number}, a)\nx = {number}\n", f"new({number}, a)\nx = {number + 1}\n") for number in range(10)]
    return [task_of(before, wanted, id=f"d:{number}") for number, (before, wanted) in enumerate(texts)]


def test_one_worker_and_two_make_what_none_makes_in_the_order_of_the_tasks(tasks: list[Task]) -> None:
    sandbox = MemorySandbox()
    here = [collect(task, InductionTeacher(sandbox), sandbox, RolloutConfig()) for task in tasks]
    assert [trajectory.task_id for trajectory in here] == [task.id for task in tasks]
    for count in (1, 2):
        with worker_attempts(count, MemorySandboxConfig(), TEACHER, RolloutConfig()) as attempts:
            assert list(attempts(tasks)) == here


def workers() -> list[psutil.Process]:
    return children_with("spawn_main")


def test_a_worker_that_dies_stops_the_run_and_what_was_made_is_kept(tasks: list[Task], tmp_path: Path) -> None:
    many = [task.model_copy(update={"id": f"{task.id}-{turn}"}) for turn in range(200) for task in tasks]
    with worker_attempts(2, MemorySandboxConfig(), TEACHER, RolloutConfig()) as attempts:
        collected = collect_many(many, attempts, tmp_path)
        first = next(collected)
        for worker in workers():
            # the pool ends the others as soon as it misses one
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        with pytest.raises(SandboxError) as caught:
            list(collected)
    assert str(caught.value) == "a worker process died; what was collected is kept, start again to go on"
    lines = (tmp_path / JOURNAL_NAME).read_bytes().splitlines()
    assert (lines[0], 1 <= len(lines) < len(many)) == (first.model_dump_json().encode(), True)


def test_workers_that_cannot_open_their_sandbox_are_an_error(tasks: list[Task]) -> None:
    config = ProcessSandboxConfig(required_level="full")
    with (
        worker_attempts(1, config, TEACHER, RolloutConfig()) as attempts,
        pytest.raises(SandboxError, match=r"reaches .*; 'full' is required"),
    ):
        list(attempts(tasks))
