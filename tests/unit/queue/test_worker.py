"""What a worker does with the jobs of a queue, and how it ends."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from graftline.core.errors import ActorError, DataError
from graftline.rollouts.queue.base import DeadLetter, Delivery, Depth, Job, MemoryQueueConfig
from graftline.rollouts.queue.memory import MemoryJobQueue
from graftline.rollouts.queue.worker import Handler, JobOutcome, StopRequest, WorkerSettings, run_worker

SHORT = WorkerSettings(until_empty=True, concurrency=4)
SOON_S = 20.0


def queue_of(count: int, **rules: float) -> MemoryJobQueue:
    queue = MemoryJobQueue(MemoryQueueConfig(**{"retry_s": 0.0, **rules}))
    queue.put(jobs(count))
    return queue


def jobs(count: int) -> list[Job]:
    return [Job(f"job {number}", "{}") for number in range(count)]


@contextmanager
def working(
    queue: MemoryJobQueue, handle: Handler, settings: WorkerSettings
) -> Iterator[tuple[StopRequest, list[object]]]:
    """A worker in a thread; the list holds what it returned, once it did."""
    stop, returned = StopRequest(), []
    thread = threading.Thread(target=lambda: returned.append(run_worker(queue, handle, settings, stop, "w")))
    thread.start()
    try:
        yield stop, returned
    finally:
        if not stop.is_asked:
            stop.ask()
        thread.join(SOON_S)
        assert not thread.is_alive()


def test_every_job_is_done() -> None:
    queue, done = queue_of(50), []
    ended = run_worker(queue, lambda job, _: done.append(job), SHORT, StopRequest(), "w")
    assert sorted(done, key=lambda job: job.key) == sorted(jobs(50), key=lambda job: job.key)
    assert (ended, queue.depth()) == ({"finished": 50}, Depth(0, 0, 50, 0))


def test_no_more_jobs_are_taken_than_run() -> None:
    queue, gate, in_flight = queue_of(9), threading.Barrier(3), []

    def handle(_job: Job, _is_mine: Callable[[], bool]) -> None:
        in_flight.append(queue.depth().in_flight)
        gate.wait(SOON_S)

    ended = run_worker(queue, handle, WorkerSettings(until_empty=True, concurrency=3), StopRequest(), "w")
    assert (ended, max(in_flight)) == ({"finished": 9}, 3)


ENDS = {
    "what is outside failed: again, until it was tried often enough": (
        ActorError("nobody answered"),
        {"given_back": 2},
        [DeadLetter(jobs(1)[0], 2, "ActorError: nobody answered")],
    ),
    "the job is unfit: no second time": (
        DataError("no such task"),
        {"dead": 1},
        [DeadLetter(jobs(1)[0], 1, "DataError: no such task")],
    ),
    "a fault of ours: again, it may be one of the moment": (
        KeyError("x"),
        {"given_back": 2},
        [DeadLetter(jobs(1)[0], 2, "KeyError: 'x'")],
    ),
    "an exit is not the worker's": (SystemExit(3), {"given_back": 2}, [DeadLetter(jobs(1)[0], 2, "SystemExit: 3")]),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_error_decides_whether_a_job_is_tried_again(name: str) -> None:
    error, counts, letters = ENDS[name]
    queue = queue_of(1, max_tries=2)

    def handle(_job: Job, _is_mine: Callable[[], bool]) -> None:
        raise error

    assert (run_worker(queue, handle, SHORT, StopRequest(), "w"), queue.dead()) == (counts, letters)


def test_secrets_are_taken_out_of_reasons() -> None:
    queue = queue_of(1, max_tries=1)

    def handle(_job: Job, _is_mine: Callable[[], bool]) -> None:
        raise ActorError("key 1234 was refused")

    run_worker(queue, handle, SHORT, StopRequest(), "w", redact=lambda text: text.replace("1234", "[secret]"))
    assert queue.dead() == [DeadLetter(jobs(1)[0], 1, "ActorError: key [secret] was refused")]


def test_a_long_job_stays_with_its_worker() -> None:
    # it is held every second, and may be held two seconds late on a busy machine
    queue, calls = queue_of(2, visibility_s=3.0), []

    def handle(job: Job, is_mine: Callable[[], bool]) -> None:
        calls.append(job.key)
        time.sleep(4)
        assert is_mine()

    with working(queue, handle, WorkerSettings(concurrency=1)):
        assert run_worker(queue, handle, WorkerSettings(concurrency=1, until_empty=True), StopRequest(), "other") == {
            "finished": 1
        }
    assert sorted(calls) == ["job 0", "job 1"]


@pytest.mark.parametrize(("asked", "drain_s"), [(1, 0.0), (2, 3600.0)], ids=["time to drain is over", "asked twice"])
def test_what_cannot_be_finished_is_given_back(asked: int, drain_s: float) -> None:
    queue, begun, go_on, answers = queue_of(1), threading.Event(), threading.Event(), []

    def handle(_job: Job, is_mine: Callable[[], bool]) -> None:
        begun.set()
        assert go_on.wait(SOON_S)
        answers.append(is_mine())

    with working(queue, handle, WorkerSettings(drain_s=drain_s)) as (stop, returned):
        assert begun.wait(SOON_S)
        stop.ask()
        if asked == 2:
            stop.ask()
    assert (returned, queue.depth()) == ([{"given_back": 1}], Depth(1, 0, 0, 0))
    go_on.set()
    [again] = queue.take("other", 1, 0)
    assert again.tries == 2
    while not answers:
        time.sleep(0.01)
    assert (answers, queue.hold([again])) == ([False], [again])


def test_an_observer_sees_every_job_begin_and_end() -> None:
    queue, seen = queue_of(2, max_tries=1), []

    class Observer:
        def on_start(self, delivery: Delivery) -> None:
            seen.append(("taken", delivery.job.key))

        def on_end(self, delivery: Delivery, outcome: JobOutcome, seconds: float) -> None:
            seen.append((outcome, delivery.job.key, seconds < SOON_S))

    def handle(job: Job, _is_mine: Callable[[], bool]) -> None:
        if job.key == "job 1":
            raise DataError("no")

    run_worker(queue, handle, WorkerSettings(concurrency=1, until_empty=True), StopRequest(), "w", Observer())
    assert seen == [("taken", "job 0"), ("finished", "job 0", True), ("taken", "job 1"), ("dead", "job 1", True)]
