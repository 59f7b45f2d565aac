"""The loop of a worker: jobs off the queue, attempts, trajectories into the store.

Of one job: the steps of the attempt so far are loaded from the state store, the teacher asks and is answered, the
sandbox applies, what comes of it is graded, and the step and the state after it are saved. The whole attempt is appended
to a shard, and only then is the job done. A worker that dies leaves its jobs to others, which go on after the last step
that was saved; what it had stored in a shard by then is stored once more, under the same key.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from graftline.core.errors import ActorError, BoundaryError, ConfigError, SandboxError
from graftline.core.hashing import digest
from graftline.core.metrics import Metrics
from graftline.core.paths import Paths, file_name
from graftline.llm.member import PoolStats
from graftline.pipeline.settings import Budget
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.collect_many import AttemptJob
from graftline.rollouts.queue.base import Delivery, Job, JobQueue
from graftline.rollouts.queue.worker import JobOutcome
from graftline.rollouts.shards import ShardWriter
from graftline.rollouts.state.attempts import AttemptLog, Claim, Phase
from graftline.rollouts.state.state import State
from graftline.rollouts.state.store import StateStore
from graftline.rollouts.teachers.base import Teacher
from graftline.rollouts.trajectory import Trajectory, TrajectoryStep
from graftline.sandbox.base import Sandbox, SharedSandbox, Verdict

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Spent:
    """What attempts took."""

    tokens: int = 0
    usd: float = 0.0
    steps: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    """`verified`, `failed`, and `unknown` for those of which nothing is known."""

    def add_step(self, step: TrajectoryStep) -> None:
        """Count `step`, in the process that asked for it."""
        self.steps += 1
        if (generation := step.model_output.generation) is not None:
            self.tokens += generation.prompt_tokens + generation.completion_tokens
            self.usd += generation.cost_usd or 0.0

    def add_attempt(self, trajectory: Trajectory) -> None:
        """Count `trajectory`, whose steps are counted by themselves."""
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

    def add(self, assignment: AttemptJob, trajectory: Trajectory) -> None:
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


class SavedSteps:
    """The steps of one attempt in the state store, a `rollouts.collect.Progress`; `count` is called with new ones."""

    def __init__(
        self, states: StateStore, assignment: AttemptJob, code_version: str, count: Callable[[TrajectoryStep], None]
    ) -> None:
        self._states, self._log, self._count = states, AttemptLog(states), count
        self._key = f"{assignment.task.id}#{assignment.attempt}"
        self._teacher = assignment.teacher
        # what other code came to may be no way that this one would go
        self._identity = digest([assignment.key, code_version])
        self._claim: Claim | None = None

    def load(self) -> list[TrajectoryStep]:
        self._claim, texts = self._log.begin(self._identity, self._key, self._teacher)
        try:
            steps = [TrajectoryStep.model_validate_json(text) for text in texts]
        except ValidationError as error:
            logger.warning("%s: its saved steps are no steps, so that it begins anew: %s", self._key, error)
            self._log.discard(self._claim)
            steps = []
        self._states.save(self._key, steps[-1].state_after if steps else State())
        return steps

    def save(self, step: TrajectoryStep) -> None:
        self._count(step)
        self._log.add(self._claimed, step.step, step.model_dump_json())
        self._states.save(self._key, step.state_after)

    def interrupt(self, reason: str) -> None:
        """Note why the attempt does not go on for now."""
        if self._claim is not None:
            self._log.interrupt(self._claim, reason)

    def end(self, trajectory: Trajectory) -> None:
        """Note how the attempt ended, once it is stored."""
        phase: Phase = "verified" if trajectory.is_verified else "failed"
        self._log.end(self._claimed, phase, len(trajectory.steps), _reason(trajectory))

    @property
    def _claimed(self) -> Claim:
        if self._claim is None:
            raise ValueError("steps are loaded before any is saved")
        return self._claim


@dataclass
class AttemptMaker:
    """Does the jobs of a queue; a handler of `rollouts.queue.worker.run_worker`, to be called by several threads.

    `counted` is told what was spent after every attempt that was stored, before its job ends. `code_version` is that of
    the code that makes attempts: what another one saved of them is not resumed. `redact` takes secrets out of reasons.
    """

    queue: JobQueue
    teacher: Teacher
    sandbox: Sandbox
    collecting: RolloutConfig
    states: StateStore
    store: Store
    metrics: Metrics
    made_by: str
    code_version: str
    counted: Callable[[Spent], None] = lambda spent: None
    redact: Callable[[str], str] = str
    spent: Spent = field(default_factory=Spent)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.sandbox = SharedSandbox(
            self.sandbox, lambda verdict, seconds: self.metrics.count_action(str(verdict), seconds)
        )

    def __call__(self, job: Job, is_still_mine: Callable[[], bool]) -> None:
        """Make the attempt that `job` asks for."""
        assignment = AttemptJob.of(job)
        if assignment.teacher != self.teacher.name:
            raise ConfigError(
                f"job {job.key!r}: is for teacher {assignment.teacher!r}, but this worker is {self.teacher.name!r};"
                " give each teacher a queue of its own"
            )
        if assignment.made_by != self.made_by:
            raise ConfigError(
                f"job {job.key!r}: was put by other settings of prompts, collecting or sandbox than those of this worker;"
                " start workers with the configuration of the lineage, then `graftline worker retry`"
            )
        steps = SavedSteps(self.states, assignment, self.code_version, self._count_step)
        trajectory = self._attempt(assignment, steps)
        if not is_still_mine():
            return
        self.store.add(assignment, trajectory)
        self._count_attempt(trajectory)
        following = None if trajectory.is_verified else assignment.next()
        # room is made for it by the job that ends; a full queue is waited for
        while following is not None and not self.queue.put([following.job()]):
            threading.Event().wait(0.1)
        steps.end(trajectory)

    def _attempt(self, assignment: AttemptJob, steps: SavedSteps) -> Trajectory:
        try:
            return collect(
                assignment.task, self.teacher, self.sandbox, self.collecting, assignment.attempt,
                assignment.made_by, steps,
            )  # fmt: skip
        except BoundaryError as error:
            if isinstance(error, ActorError):
                self.metrics.count_unanswered()
            if isinstance(error, SandboxError):
                self.metrics.count_action(str(Verdict.RUNNER_ERROR), 0.0)
            steps.interrupt(self.redact(f"{type(error).__name__}: {error}"))
            raise

    def _count_step(self, step: TrajectoryStep) -> None:
        with self._lock:
            self.spent.add_step(step)
        self.metrics.count_step(self.teacher.name, step.format_ok)
        if (answer := step.model_output.generation) is not None:
            self.metrics.count_answer(
                answer.actor, answer.latency_s, answer.tries, answer.prompt_tokens, answer.completion_tokens,
                answer.cached_tokens, answer.cost_usd,
            )  # fmt: skip

    def _count_attempt(self, trajectory: Trajectory) -> None:
        with self._lock:
            self.spent.add_attempt(trajectory)
            self.counted(self.spent)
        self.metrics.count_trajectory(trajectory.teacher, trajectory.is_verified)


@dataclass
class WorkMetrics:
    """Counts in `metrics` what the worker does; an observer of `rollouts.queue.worker.run_worker`."""

    metrics: Metrics
    ended: Callable[[JobOutcome], None] = lambda outcome: None
    in_flight: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_start(self, delivery: Delivery) -> None:
        with self._lock:
            self.in_flight += 1
        self.metrics.count_job_start()

    def on_end(self, delivery: Delivery, outcome: JobOutcome, seconds: float) -> None:
        with self._lock:
            self.in_flight -= 1
        self.metrics.count_job_end(outcome, seconds)
        self.ended(outcome)


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
    metrics.set_queue_depth(depth.waiting, depth.in_flight, depth.dead)
    if stats is None:
        return
    pool_stats = stats()
    metrics.set_waiting(pool_stats.waiting)
    for actor in pool_stats.actors:
        faults: Mapping[str, int] = {str(kind): count for kind, count in actor.faults.items()}
        metrics.set_actor_state(actor.name, actor.is_in_service, actor.in_flight, actor.limit, faults, actor.ejections)


def _reason(trajectory: Trajectory) -> str:
    """Return why `trajectory` failed: the class of failure, and what was said to the last step; empty where it did not."""
    if trajectory.is_verified or not trajectory.steps:
        return trajectory.failure
    step = trajectory.steps[-1]
    feedback = step.feedback or (step.sandbox_result.error if step.sandbox_result is not None else "")
    return f"{trajectory.failure}: {feedback}" if feedback else trajectory.failure


def open_states(paths: Paths, stack: ExitStack) -> StateStore:
    """Return the store of states, closed with `stack`."""
    return stack.enter_context(StateStore(paths.data / "state" / "state.sqlite"))
