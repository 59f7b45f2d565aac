"""The `JobQueue` port: jobs, each under a unique key, that are delivered at least once.

A job that its worker does not finish, and does not hold any longer, is delivered to another one; after so many
deliveries it becomes a dead letter, with its reason. What has to be there exactly once is therefore kept under the key
of its job, written before the job is finished. A full queue and an empty one are results; an error is raised only where
the queue cannot be reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field

from graftline.core.config import Config


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be done once."""

    key: str
    """Two jobs of one key are the same job: the second is not taken in, whatever became of the first."""
    body: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job in the hands of a worker."""

    job: Job
    tries: int
    """How many times it was delivered, this one included."""
    receipt: str
    """What the queue knows this delivery by."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that is not delivered any more."""

    job: Job
    tries: int
    reason: str


@dataclass(frozen=True, slots=True)
class Depth:
    """How many jobs there are, by what became of them."""

    waiting: int
    """Those that were given back included."""
    in_flight: int
    """Those of workers that died included, until another one takes them."""
    done: int
    """Since the queue was made."""
    dead: int


class JobQueue(Protocol):
    """Holds jobs until they are done; safe to use from many threads until `close`."""

    @property
    def visibility_s(self) -> float:
        """How long a delivery is its worker's if nothing is heard of it; hold it several times as often."""

    def put(self, jobs: Sequence[Job]) -> int:
        """Take in jobs, in order, while there is room; return how many of `jobs`, from the first, need not be put again.

        Jobs whose key is known count as taken in. Fewer than all means that the queue is full: wait, and put the rest.
        """

    def take(self, worker: str, most: int, wait_s: float) -> list[Delivery]:
        """Return up to `most` jobs, those of dead workers first; empty if there are none for `wait_s` seconds."""

    def hold(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Say that the work goes on; return those deliveries that are still this worker's."""

    def finish(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Say that the jobs are done; return those deliveries whose job was not done before, under another delivery.

        Done is done, also where the delivery is another worker's by now, or the job a dead letter.
        """

    def give_back(self, delivery: Delivery, reason: str) -> None:
        """Let another worker try after a pause, or make a dead letter of the job if it was tried often enough.

        `reason` is kept. Does nothing where the delivery is another worker's by now.
        """

    def reject(self, delivery: Delivery, reason: str) -> None:
        """Make a dead letter of the job at once; does nothing where the delivery is another worker's by now."""

    def revive(self, keys: Sequence[str]) -> int:
        """Let dead letters wait again, as if they had never been tried; return how many of `keys` were dead letters."""

    def depth(self) -> Depth:
        """Return how many jobs there are."""

    def dead(self) -> list[DeadLetter]:
        """Return the dead letters, oldest first."""

    def close(self) -> None:
        """Let go of the connection; jobs in flight stay with their worker until its time is up."""


class QueueRules(Config):
    """What every queue keeps to."""

    max_waiting: int = Field(default=100_000, ge=1)
    """Jobs that wait at most; producers wait for room."""
    visibility_s: float = Field(default=60.0, ge=0.05, le=86_400)
    """How long a job is its worker's if nothing is heard of it. A worker that lives holds its jobs three times as
    often, so that this says how soon the jobs of a dead one go on, and not how long a job may take."""
    max_tries: int = Field(default=5, ge=1)
    """Deliveries of a job before it becomes a dead letter."""
    retry_s: float = Field(default=5.0, ge=0)
    """Pause after a job was given back for the first time. It doubles with every try, up to `visibility_s`."""

    def pause_s(self, tries: int) -> float:
        """Return how long a job rests that was given back in its `tries`-th delivery."""
        return min(self.visibility_s, self.retry_s * 2.0 ** min(tries - 1, 64))

    @property
    def silence(self) -> str:
        """Why a job is delivered again whose worker says nothing."""
        return f"its worker was not heard of for {self.visibility_s:g} s"


class RedisQueueConfig(QueueRules):
    """Redis 7 or later, or Valkey: any number of processes on any number of machines."""

    kind: Literal["redis"] = "redis"
    url: str = "GRAFTLINE_REDIS_URL"
    """Name of the secret that holds the address: `redis://host:6379/0`, `rediss://…` for TLS, or `unix:///path`."""
    is_cluster: bool = False
    """The address is that of a node of a Redis cluster; a queue is on one of its nodes."""
    name: str = Field(default="teacher", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """Queues of other names on the same server are other queues."""
    done_days: float = Field(default=30.0, gt=0, le=36_500)
    """How long the key of a job that is done is known, so that the job is not taken in again; costs the server about
    200 bytes for each."""
    patience_s: float = Field(default=30.0, ge=0, le=300)
    """How long one call goes on trying while the server cannot be reached."""


class MemoryQueueConfig(QueueRules):
    """In this process, for its threads only; everything is gone with the process."""

    kind: Literal["memory"] = "memory"


QueueConfig = Annotated[RedisQueueConfig | MemoryQueueConfig, Field(discriminator="kind")]
