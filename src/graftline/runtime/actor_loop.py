"""The loop of an actor: assignments off the queue, attempts, trajectories into the store.

Of one assignment: the state of the attempt is kept in the state store as it goes, the teacher asks and is answered, the
sandbox applies, what comes of it is graded and appended to a shard, and only then is the job done. A worker that dies
leaves its jobs to others; what it had stored by then is stored once more, under the same key.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from graftline.actors.stats import PoolStats
from graftline.errors import ActorError, ConfigError, SandboxError
from graftline.jobs.base import Delivery, Job, JobQueue
from graftline.jobs.worker import Outcome
from graftline.paths import Paths, file_name
from graftline.runtime.asking import Budget
from graftline.sandbox.base import Sandbox, Verdict
from graftline.sandbox.shared import SharedSandbox
from graftline.state.store import StateStore
from graftline.teachers.base import Teacher
from graftline.telemetry.metrics import Metrics
from graftline.trajectories.assignment import Assignment
from graftline.trajectories.collect import Collecting, attempt
from graftline.trajectories.shards import ShardWriter
from graftline.trajectories.step import Trajectory

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Spent:
    """What attempts took."""

    tokens: int = 0
    usd: float = 0.0
    steps: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    """`verified`, `failed`, and `unknown` for those of which nothing is known."""

    def add(self, trajectory: Trajectory) -> None:
        """Count `trajectory`."""
        asked = [step.model_output.generation for step in trajectory.steps if step.model_output.generation]
        self.tokens += sum(generation.prompt_tokens + generation.completion_tokens for generation in asked)
        self.usd += sum(generation.cost_usd for generation in asked if generation.cost_usd is not None)
        self.steps += len(trajectory.steps)
        self.attempts[
            "unknown" if trajectory.reward.value is None else "verified" if trajectory.is_verified else "failed"
        ] += 1

    def exceeds(self, budget: Budget) -> bool:
        """Return whether one of the limits is reached."""
        pairs = ((self.tokens, budget.tokens), (self.usd, budget.usd), (self.steps, budget.steps))
        return any(limit is not None and spent >= limit for spent, limit in pairs)


class Store:
    """Where the attempts of a worker go: a shard for every partition, below `data/trajectories/attempts`."""

    def __init__(self, paths: Paths, writer: str) -> None:
        self._paths, self._writer = paths, file_name(writer)
        self._writers: dict[Path, ShardWriter] = {}
        self._lock = threading.Lock()

    def add(self, assignment: Assignment, trajectory: Trajectory) -> None:
        """Store `trajectory`; it is on disk when this returns."""
        folder = spool(self._paths, assignment.task.language, assignment.split, assignment.teacher)
        with self._lock:
            writer = self._writers.setdefault(folder, ShardWriter(folder, self._writer))
        writer.add(trajectory)

    def seal(self) -> bool:
        """Let readers see what was added; return whether anything was."""
        with self._lock:
            writers = [*self._writers.values()]
        sealed = [writer.seal() for writer in writers]
        return any(sealed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.seal()


def spool(paths: Paths, language: str, split: str, teacher: str) -> Path:
    """Return where workers append the attempts of one partition, before they are those of the asset."""
    return paths.partition("trajectories/attempts", language, split) / file_name(teacher)


class AttemptMaker:
    """Does the jobs of a queue; a handler of `jobs.worker.work`, to be called by several threads.

    `counted` is told what was spent after every attempt that was stored, before its job ends.
    """

    def __init__(
        self,
        queue: JobQueue,
        teacher: Teacher,
        sandbox: Sandbox,
        collecting: Collecting,
        states: StateStore,
        store: Store,
        metrics: Metrics,
        made_by: str,
        counted: Callable[[Spent], None] = lambda spent: None,
    ) -> None:
        self._made_by, self._counted = made_by, counted
        self._queue, self._teacher, self._collecting = queue, teacher, collecting
        self._sandbox = SharedSandbox(sandbox, partial(_answered, metrics))
        self._states, self._store, self._metrics = states, store, metrics
        self._lock = threading.Lock()
        self.spent = Spent()

    def __call__(self, job: Job, is_still_mine: Callable[[], bool]) -> None:
        """Make the attempt that `job` asks for.

        Raises:
            DataError: it asks for nothing that is known here.
            ConfigError: it asks for another teacher.
            BoundaryError: teacher or sandbox cannot answer; nothing is known about the attempt.
        """
        assignment = Assignment.of(job)
        if assignment.teacher != self._teacher.name:
            raise ConfigError(
                f"job {job.key!r}: is for teacher {assignment.teacher!r}, but this worker is {self._teacher.name!r};"
                " give each teacher a queue of its own"
            )
        if assignment.made_by != self._made_by:
            raise ConfigError(
                f"job {job.key!r}: was put by other settings of prompts, collecting or sandbox than those of this worker;"
                " start workers with the configuration of the lineage, then `graftline actor revive`"
            )
        key = f"{assignment.task.id}#{assignment.attempt}"
        try:
            trajectory = attempt(
                assignment.task,
                self._teacher,
                self._sandbox,
                self._collecting,
                assignment.attempt,
                assignment.made_by,
                partial(self._states.save, key),
            )
        except ActorError:
            self._metrics.unanswered()
            raise
        except SandboxError:
            self._metrics.sandbox_answered(str(Verdict.RUNNER_ERROR), 0.0)
            raise
        if not is_still_mine():
            return
        self._store.add(assignment, trajectory)
        self._count(trajectory)
        following = None if trajectory.is_verified else assignment.next()
        # room is made for it by the job that ends; a full queue is waited for
        while following is not None and not self._queue.put([following.job()]):
            threading.Event().wait(0.1)

    def _count(self, trajectory: Trajectory) -> None:
        with self._lock:
            self.spent.add(trajectory)
            self._counted(self.spent)
        self._metrics.trajectory(trajectory.teacher, trajectory.is_verified)
        for step in trajectory.steps:
            self._metrics.step(trajectory.teacher, step.format_ok)
            asked = step.model_output.generation
            if asked is not None:
                self._metrics.answered(
                    asked.actor,
                    asked.latency_s,
                    asked.tries,
                    asked.prompt_tokens,
                    asked.completion_tokens,
                    asked.cached_tokens,
                    asked.cost_usd,
                )


class WorkMetrics:
    """Tells the figures what the worker does; an observer of `jobs.worker.work`."""

    def __init__(self, metrics: Metrics, ended: Callable[[Outcome], None] = lambda outcome: None) -> None:
        self._metrics, self._ended = metrics, ended
        self._lock = threading.Lock()
        self.in_flight = 0

    def taken(self, delivery: Delivery) -> None:
        with self._lock:
            self.in_flight += 1
        self._metrics.job_taken()

    def ended(self, delivery: Delivery, outcome: Outcome, seconds: float) -> None:
        with self._lock:
            self.in_flight -= 1
        self._metrics.job_ended(outcome, seconds)
        self._ended(outcome)


class Ticker:
    """Calls `tick` at once and every `seconds` in a thread of its own, until the block ends, and once more then."""

    def __init__(self, seconds: float, tick: Callable[[], None]) -> None:
        self._seconds, self._tick, self._is_over = seconds, tick, threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._tick()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._tick()
            except Exception:  # the next time it may work; the work itself goes on
                logger.exception("what is done every %g s failed", self._seconds)
            self._is_over.wait(self._seconds)


def look(metrics: Metrics, queue: JobQueue, stats: Callable[[], PoolStats] | None) -> None:
    """Bring what is looked at from time to time into the figures: the queue, and the pool of actors if there is one."""
    depth = queue.depth()
    metrics.queue_depth(depth.waiting, depth.in_flight, depth.dead)
    if stats is None:
        return
    found = stats()
    metrics.questions_waiting(found.waiting)
    for actor in found.actors:
        faults: Mapping[str, int] = {str(kind): count for kind, count in actor.faults.items()}
        metrics.actor_state(actor.name, actor.is_in_service, actor.in_flight, actor.limit, faults, actor.ejections)


def _answered(metrics: Metrics, verdict: Verdict, seconds: float) -> None:
    metrics.sandbox_answered(str(verdict), seconds)


def open_states(paths: Paths, stack: ExitStack) -> StateStore:
    """Return the store of states, closed with `stack`."""
    return stack.enter_context(StateStore(paths.data / "state" / "state.sqlite"))
