"""Work in several processes: order, how far it reads ahead, faults, and what is left when somebody dies."""

import math
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from graftline.core.errors import BoundaryError
from graftline.core.processes import WorkerDied, Workers
from tests.processes import children_with, wait_until_ended

# what a worker does has to be importable in a new process
SQUARE_ROOT = partial(partial, math.sqrt)
PROCESS = partial(partial, os.getpgid)
END = partial(partial, os._exit)
DIVIDE = partial(partial, operator.floordiv, 60)
SLEEP = partial(partial, time.sleep)


def running() -> list[psutil.Process]:
    return children_with("spawn_main")


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("items", [0, 1, 40])
def test_results_come_in_the_order_of_the_items(count: int, items: int) -> None:
    with Workers[int, float](count, SQUARE_ROOT) as workers:
        assert list(workers.map(number * number for number in range(items))) == list(range(items))


@pytest.mark.parametrize(("count", "ahead", "read"), [(0, 4, 1), (1, 0, 2), (1, 4, 6), (2, 1, 5)])
def test_items_are_read_only_a_little_ahead(count: int, ahead: int, read: int) -> None:
    # every worker has one item to work on and some that wait; the one too many is what the result is asked for
    consumed = []

    def items() -> Iterator[int]:
        for number in range(1000):
            consumed.append(number)
            yield number

    with Workers[int, float](count, SQUARE_ROOT, ahead) as workers:
        results = workers.map(items())
        assert (next(results), len(consumed)) == (0.0, read)
        assert (next(results), len(consumed)) == (1.0, read + 1)


def test_without_workers_everything_is_done_here() -> None:
    with Workers[int, int](0, PROCESS) as workers:
        assert list(workers.map([0])) == [os.getpgid(0)]
        assert running() == []


@pytest.mark.parametrize("count", [0, 1])
def test_a_fault_in_the_work_is_raised_where_its_result_is_asked_for(count: int) -> None:
    with Workers[int, int](count, DIVIDE) as workers:
        results = workers.map([1, 0, 2])
        assert next(results) == 60
        with pytest.raises(ZeroDivisionError):
            next(results)


@pytest.mark.parametrize("count", [0, 1])
def test_a_fault_in_what_makes_the_work_is_raised_as_it_is(count: int) -> None:
    with Workers[int, int](count, partial(int, "no number")) as workers, pytest.raises(ValueError, match="no number"):
        list(workers.map([1]))


@pytest.mark.parametrize("count", [0, 1])
def test_a_fault_in_the_items_is_raised_as_it_is(count: int) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise FileNotFoundError("rows.jsonl")

    with Workers[int, float](count, SQUARE_ROOT) as workers, pytest.raises(FileNotFoundError, match="rows"):
        list(workers.map(items()))


@pytest.mark.parametrize("items", [[1], [1] * 30])
def test_a_worker_that_ends_is_an_error_that_says_what_to_do(items: list[int]) -> None:
    with Workers[int, None](2, END) as workers, pytest.raises(WorkerDied) as error:
        list(workers.map(items))
    assert isinstance(error.value, BoundaryError)
    assert str(error.value) == "a worker process ended; start again, with fewer workers if memory is short"
    assert running() == []


def test_a_worker_that_the_machine_kills_is_an_error() -> None:
    with Workers[float, None](2, SLEEP) as workers:
        results = workers.map([0.0, 60.0])
        next(results)
        for worker in running():
            # the pool ends the others as soon as it misses one
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        with pytest.raises(WorkerDied):
            next(results)


def test_leaving_early_leaves_no_worker_behind() -> None:
    with Workers[float, None](2, SLEEP) as workers:
        next(workers.map([0.0] * 100))
        assert len(running()) == 2
    assert running() == []


def test_an_interrupt_is_for_the_parent_alone() -> None:
    with Workers[float, None](1, SLEEP) as workers:
        results = workers.map([0.0, 0.3])
        next(results)
        [worker] = running()
        worker.send_signal(signal.SIGINT)
        assert list(results) == [None]


def test_workers_do_not_outlive_a_parent_that_is_killed() -> None:
    program = """
import time
from functools import partial
import psutil
from graftline.core.processes import Workers
with Workers(2, partial(partial, time.sleep)) as workers:
    results = workers.map([0.0, 0.0, 60.0, 60.0])
    next(results), next(results)
    print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
    next(results)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        below = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    # two workers, and the process in which Python counts what they share
    assert len(below) == 3
    for pid in below:
        wait_until_ended(pid)


UNGUARDED = """
import math
from functools import partial
from graftline.core.processes import Workers

print("begun", flush=True)
with Workers(2, partial(partial, math.sqrt)) as workers:
    print(list(workers.map([4, 9])))
"""


def test_workers_do_not_begin_the_program_anew(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED, "utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.returncode) == ("begun\n[2.0, 3.0]\n", 0)
