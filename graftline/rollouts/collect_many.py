"""Many attempts with a journal: after a kill, those that are in it are not made again.

How long attempts took goes to a log, not to the journal: it differs from run to run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.astgrep.binding import Language
from graftline.core.errors import DataError, RecordError, SandboxError
from graftline.core.processes import WorkerDied, Workers
from graftline.datasets.splits import Split
from graftline.rollouts.collect import RolloutConfig, collect_with_retry
from graftline.rollouts.queue.base import Job
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import TeacherConfig
from graftline.rollouts.trajectory import AttemptTime, Trajectory, attempt_key
from graftline.sandbox.actions import SandboxConfig, open_sandbox

JOURNAL_NAME = ".journal.jsonl"


def collect_many(
    tasks: Sequence[Task],
    attempts: Callable[[Iterable[Task]], Iterator[Trajectory]],
    folder: Path,
    times: Path | None = None,
) -> Iterator[Trajectory]:
    """Yield the trajectory of every task, in order; those that a killed run left in `folder`'s journal are not redone.

    `attempts` makes the trajectories of the tasks it is given, in their order. `times` is the file for how long each of
    them took (`AttemptTime`), which is no part of the artifact: it differs from run to run.
    """
    journal = folder / JOURNAL_NAME
    finished = {trajectory.task_id: trajectory for trajectory in _journalled(journal)}
    with ExitStack() as stack:
        stream = stack.enter_context(journal.open("a", encoding="utf-8", newline=""))
        log = None
        if times is not None:
            times.parent.mkdir(parents=True, exist_ok=True)
            _whole_lines(times)
            log = stack.enter_context(times.open("a", encoding="utf-8", newline=""))
        made = attempts(task for task in tasks if task.id not in finished)
        for task in tasks:
            trajectory = finished.get(task.id)
            if trajectory is None:
                trajectory = next(made)
                stream.write(trajectory.model_dump_json() + "\n")
                stream.flush()
                if log is not None:
                    log.write(_time(trajectory).model_dump_json() + "\n")
            yield trajectory


def times_folder(logs: Path, language: Language, split: str) -> Path:
    """Return where it is written down, in a file for each teacher, how long the attempts of one partition took."""
    return logs / "attempts" / language / split


def _time(trajectory: Trajectory) -> AttemptTime:
    return AttemptTime(
        task_id=trajectory.task_id,
        dataset=trajectory.dataset,
        language=trajectory.language,
        teacher=trajectory.teacher,
        attempt_ms=trajectory.timings.attempt_ms,
        answers_ms=trajectory.timings.answers_ms,
    )


def _journalled(journal: Path) -> Iterator[Trajectory]:
    """Yield the trajectories in a journal."""
    for number, line in enumerate(_whole_lines(journal).splitlines(), 1):
        try:
            yield Trajectory.model_validate_json(line)
        except ValidationError as error:
            raise RecordError(f"{journal}: line {number} is no trajectory; delete the file and start again") from error


def _whole_lines(path: Path) -> bytes:
    """Return the whole lines of a file, and cut off a last one that a kill left half written."""
    if not path.exists():
        return b""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("r+b") as stream:
            stream.truncate(len(whole))
    return whole


Attempts = Callable[[Iterable[Task]], Iterator[Trajectory]]


@contextmanager
def worker_attempts(
    count: int, sandbox: SandboxConfig, teacher: TeacherConfig, collecting: RolloutConfig
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


def _opened(sandbox: SandboxConfig, teacher: TeacherConfig, collecting: RolloutConfig) -> Callable[[Task], Trajectory]:
    from graftline.rollouts.teachers.open import open_teacher  # of use to the worker alone

    opened = open_sandbox(sandbox)
    return partial(collect_with_retry, teacher=open_teacher(teacher, opened), sandbox=opened, collecting=collecting)


class AttemptJob(BaseModel):
    """One attempt of one teacher at one task."""

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
