"""Many attempts: with a journal, so that a kill loses none; in worker processes; as jobs of a queue.

How long attempts took goes to a log, not to the journal: it differs from run to run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.astgrep.binding import Language
from graftline.core.errors import DataError, SandboxError
from graftline.core.jsonl import Journal, cut_to_whole_lines
from graftline.core.processes import WorkerDied, Workers
from graftline.datasets.splits import Split
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.queue.base import Job
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import TeacherConfig
from graftline.rollouts.trajectory import AttemptTime, Trajectory, attempt_key
from graftline.sandbox.actions import SandboxConfig, open_sandbox
from graftline.sandbox.jail.open import JailConfig

JOURNAL_NAME = ".journal.jsonl"

Attempts = Callable[[Iterable[Task]], Iterator[Trajectory]]
"""Makes the trajectories of tasks, in their order."""


def collect_many(
    tasks: Sequence[Task], attempts: Attempts, folder: Path, times: Path | None = None
) -> Iterator[Trajectory]:
    """Yield the trajectory of every task, in order; those that a killed run left in `folder`'s journal are not redone.

    How long each of them took is appended to the file `times` (`AttemptTime`).

    Raises:
        SandboxError: the sandbox failed twice running; start again to go on.
    """
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(folder / JOURNAL_NAME, Trajectory))
        log = None
        if times is not None:
            times.parent.mkdir(parents=True, exist_ok=True)
            cut_to_whole_lines(times)
            log = stack.enter_context(times.open("a", encoding="utf-8", newline=""))
        finished = {trajectory.task_id: trajectory for trajectory in journal.rows}
        remaining = attempts(task for task in tasks if task.id not in finished)
        for task in tasks:
            trajectory = finished.get(task.id)
            if trajectory is None:
                trajectory = next(remaining)
                journal.append(trajectory)
                if log is not None:
                    log.write(AttemptTime.of(trajectory).model_dump_json() + "\n")
            yield trajectory


def times_folder(logs: Path, language: Language, split: str) -> Path:
    """Return where it is logged, in a file for each teacher, how long the attempts of one partition took."""
    return logs / "attempts" / language / split


@contextmanager
def worker_attempts(
    count: int, sandbox: SandboxConfig, teacher: TeacherConfig, config: RolloutConfig, tests: JailConfig | None = None
) -> Iterator[Attempts]:
    """Start `count` processes, each with a sandbox and a teacher of its own, and stop them at the end.

    The tests of tasks run in jails of `tests` (see `open_sandbox`).

    Raises:
        SandboxError: a worker cannot open its sandbox, or dies.
    """

    def attempts(tasks: Iterable[Task]) -> Iterator[Trajectory]:
        try:
            yield from workers.map(tasks)
        except WorkerDied as error:
            raise SandboxError("a worker process died; what was collected is kept, start again to go on") from error

    with Workers[Task, Trajectory](count, partial(_open_worker, sandbox, teacher, config, tests)) as workers:
        yield attempts


def _open_worker(
    sandbox_config: SandboxConfig, teacher: TeacherConfig, config: RolloutConfig, tests: JailConfig | None
) -> Callable[[Task], Trajectory]:
    from graftline.rollouts.teachers.open import open_teacher  # of use to the worker alone

    sandbox = open_sandbox(sandbox_config, tests)
    return partial(collect, teacher=open_teacher(teacher, sandbox), sandbox=sandbox, config=config)


class AttemptJob(BaseModel):
    """One attempt of one teacher at one task, as a job of the queue."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    task: Task
    split: Split
    teacher: str
    made_by: str
    attempt: int = Field(default=1, ge=1)
    attempts: int = Field(default=1, ge=1)
    """How many are made at most, until one is verified."""

    @property
    def key(self) -> str:
        """That of the trajectory it becomes."""
        return attempt_key(self.task.digest, self.teacher, self.made_by, self.attempt)

    def job(self) -> Job:
        """Return what a queue carries."""
        return Job(self.key, self.model_dump_json())

    @classmethod
    def of(cls, job: Job) -> Self:
        """Return what `job` carries.

        Raises:
            DataError: it carries something else.
        """
        try:
            return cls.model_validate_json(job.body)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise DataError(
                f"job {job.key!r}: is no assignment of this version ({'.'.join(map(str, fault['loc']))}: {fault['msg']});"
                " let the asset put it again"
            ) from None

    def next(self) -> Self | None:
        """Return the attempt after this one; None after the last."""
        return self.model_copy(update={"attempt": self.attempt + 1}) if self.attempt < self.attempts else None
