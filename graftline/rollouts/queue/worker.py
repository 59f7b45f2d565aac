"""Works through a queue of jobs, several at a time, and loses none whatever becomes of it.

What a job means is the handler's: it writes its result under the key of the job, and only then returns, so that a job is
never done without a result. It may be called again for a job that has one, and returns then.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal, Protocol

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import BoundaryError, GraftlineError, QueueError
from graftline.rollouts.queue.base import Delivery, Job, JobQueue

logger = logging.getLogger(__name__)

_MAX_WAIT_S = 1.0  # for a job; then a worker looks whether it shall stop
_POLL_S = 0.1
_REASON_CHARACTERS = 2000

JobOutcome = Literal["finished", "given_back", "dead", "lost"]
"""`lost`: the job was another worker's by then, or nobody could tell the queue."""

Handler = Callable[[Job, Callable[[], bool]], None]
"""Does a job. The second argument says whether the job is still this worker's: ask before the result is written, and
return without writing where it is not. A `BoundaryError` gives the job back, any other `GraftlineError` makes a dead
letter of it, and whatever else is raised gives it back too."""


class WorkerSettings(Config):
    """How a worker works."""

    concurrency: int = Field(default=8, ge=1, le=4096)
    """Jobs at a time, each in a thread; no more are taken from the queue."""
    drain_s: float = Field(default=30.0, ge=0)
    """How long jobs in flight may go on when the worker is asked to stop; the rest is given back."""
    until_empty: bool = False
    """Stop when no job waits and none is in flight, here or elsewhere."""


class WorkObserver(Protocol):
    """Is told what happens, from many threads."""

    def on_start(self, delivery: Delivery) -> None:
        """A job begins."""

    def on_end(self, delivery: Delivery, outcome: JobOutcome, seconds: float) -> None:
        """A job ended, `seconds` after it began."""


class StopRequest:
    """Asked once: finish what is in flight. Asked twice: leave at once."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def is_asked(self) -> bool:
        return self._count > 0

    @property
    def is_urgent(self) -> bool:
        return self._count > 1

    def ask(self) -> None:
        """Ask once more."""
        self._count += 1


@contextmanager
def stop_on_signals(notice: str = "") -> Iterator[StopRequest]:
    """Ask to stop at SIGTERM and SIGINT; from the second one on they also end what the main thread waits for.

    `notice` is written to standard error at the first one.
    """
    stop = StopRequest()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        stop.ask()
        if stop.is_urgent:
            raise KeyboardInterrupt
        # not by a stream: this may have interrupted a write of whoever has it
        os.write(2, notice.encode())

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def worker_name() -> str:
    """Return what this process is called among the workers of a queue."""
    return f"{socket.gethostname()}:{os.getpid()}"


def run_worker(
    queue: JobQueue,
    handle: Handler,
    settings: WorkerSettings,
    stop: StopRequest,
    name: str,
    observer: WorkObserver | None = None,
    redact: Callable[[str], str] = str,
) -> Counter[JobOutcome]:
    """Do jobs until `stop` is asked, or the queue is empty; return how many came to which end.

    `redact` takes secrets out of the reasons that the queue stores.

    Raises:
        QueueError: the queue cannot be reached any more; what was in flight came to its end first.
    """
    worker = _Worker(queue, handle, settings, stop, name, observer, redact)
    try:
        threading.Thread(target=worker.hold, daemon=True, name="hold").start()
        with suppress(KeyboardInterrupt):  # the second signal
            worker.take()
    finally:
        worker.drain()
    counts = ", ".join(f"{count} {outcome}" for outcome, count in worker.outcomes.items())
    logger.info("worker %s: %s", name, counts or "no job")
    return worker.outcomes


@dataclass(eq=False, slots=True)
class _Running:
    delivery: Delivery
    began: float
    is_lost: bool = False
    """The handler knows that the job is not its own any more."""


@dataclass(eq=False, slots=True)
class _Worker:
    _queue: JobQueue
    _handle: Handler
    _settings: WorkerSettings
    _stop: StopRequest
    _name: str
    _observer: WorkObserver | None
    _redact: Callable[[str], str]
    outcomes: Counter[JobOutcome] = field(default_factory=Counter)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _running: list[_Running] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def take(self) -> None:
        """Start jobs as long as there is a reason to."""
        wait_s = _POLL_S if self._settings.until_empty else _MAX_WAIT_S
        while not self._stop.is_asked:
            with self._changed:
                free = self._settings.concurrency - len(self._running)
                if not free:
                    self._changed.wait(_POLL_S)
                    continue
            deliveries = self._queue.take(self._name, free, wait_s)
            for delivery in deliveries:
                self._start(_Running(delivery, time.monotonic()))
            if not deliveries and self._settings.until_empty:
                depth = self._queue.depth()
                if not depth.waiting and not depth.in_flight:
                    return

    def hold(self) -> None:
        """Hold what is in flight, until the end."""
        while not self._is_over.wait(self._queue.visibility_s / 3):
            with self._changed:
                deliveries = [running.delivery for running in self._running]
            try:
                self._queue.hold(deliveries)
            except QueueError as error:
                logger.warning("worker %s: cannot hold its %d jobs: %s", self._name, len(deliveries), error)

    def drain(self) -> None:
        """Wait for what is in flight, and give back what takes too long."""
        deadline = time.monotonic() + self._settings.drain_s
        with self._changed:
            with suppress(KeyboardInterrupt):  # the second signal
                while self._running and not self._stop.is_urgent and time.monotonic() < deadline:
                    self._changed.wait(_POLL_S)
            remaining = [*self._running]
        self._is_over.set()
        for running in remaining:
            running.is_lost = True
            if self._end(running, "given_back", "its worker was stopped") == "lost":
                return  # whoever gets no answer for one job need not wait for the next

    def _start(self, running: _Running) -> None:
        with self._changed:
            self._running.append(running)
        if self._observer:
            self._observer.on_start(running.delivery)
        # a daemon, so that a job that is stuck does not keep the process from its end
        threading.Thread(target=self._run, args=(running,), daemon=True, name=running.delivery.job.key).start()

    def _run(self, running: _Running) -> None:
        job = running.delivery.job

        def is_still_mine() -> bool:
            if not running.is_lost:
                running.is_lost = not self._queue.hold([running.delivery])
            return not running.is_lost

        outcome: JobOutcome = "finished"
        reason = ""
        try:
            self._handle(job, is_still_mine)
        except GraftlineError as error:
            outcome, reason = ("given_back" if isinstance(error, BoundaryError) else "dead"), _describe(error)
        except BaseException as error:  # a SystemExit too: it would end this thread alone, and keep its place
            logger.exception("worker %s: job %r: failed in a way that it should not", self._name, job.key)
            outcome, reason = "given_back", _describe(error)
        # who was told that the job is another one's has written nothing, and has nothing to say
        self._end(running, "lost" if running.is_lost else outcome, reason)

    def _end(self, running: _Running, outcome: JobOutcome, reason: str = "") -> JobOutcome:
        """Tell the queue what became of a job, and make room for another one."""
        try:
            outcome = self._report(running.delivery, outcome, self._redact(reason)[:_REASON_CHARACTERS])
        except QueueError as error:
            logger.warning(
                "worker %s: job %r: is %s, but will be delivered again: %s",
                *(self._name, running.delivery.job.key, outcome, error),
            )
            outcome = "lost"
        with self._changed:
            if running not in self._running:  # it ended while it was given back
                return outcome
            self._running.remove(running)
            self.outcomes[outcome] += 1
            self._changed.notify()
        if self._observer:
            self._observer.on_end(running.delivery, outcome, time.monotonic() - running.began)
        return outcome

    def _report(self, delivery: Delivery, outcome: JobOutcome, reason: str) -> JobOutcome:
        match outcome:
            case "finished":
                return "finished" if self._queue.finish([delivery]) else "lost"
            case "given_back":
                self._queue.give_back(delivery, reason)
            case "dead":
                self._queue.reject(delivery, reason)
        return outcome


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
