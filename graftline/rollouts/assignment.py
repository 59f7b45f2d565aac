"""An assignment: one attempt to be made, as a job of the queue (`graftline.rollouts.queue`)."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.core.errors import DataError
from graftline.datasets.division import Split
from graftline.rollouts.queue.base import Job
from graftline.rollouts.step import attempt_key
from graftline.rollouts.task import Task


class Assignment(BaseModel):
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
