"""How a queue of jobs is configured; `open.py` opens what is configured here."""

from typing import Annotated, Literal

from pydantic import Field

from graftline.core.config import Config


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
