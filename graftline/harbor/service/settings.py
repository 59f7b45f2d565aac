"""What the service is told: how much it does at the same time, how long it waits, how often it tries."""

from pydantic import Field

from graftline.core.config import Config


class ServiceSettings(Config):
    """One service process."""

    rollouts_at_once: int = Field(default=4, ge=1, le=4096)
    """Of this process, whatever they are of."""
    rollouts_of_one: int = Field(default=64, ge=1, le=4096)
    """Of one deployment outside of jobs; a job says its own `max_concurrent`."""
    builds_at_once: int = Field(default=1, ge=1, le=64)
    """In slots of their own: a build never waits for rollouts, nor they for it."""
    optimizations_at_once: int = Field(default=1, ge=1, le=64)
    """Prompt optimizations, in slots of their own; their rollouts wait with all others."""
    queued: int = Field(default=20_000, ge=1, le=10_000_000)
    """Rollouts that wait; more are refused by 429."""
    queued_of_one: int = Field(default=10_000, ge=1, le=10_000_000)
    """The same of one deployment outside of jobs."""
    attempts: int = Field(default=5, ge=1, le=100)
    """At one rollout, or build, that the machine failed."""
    backoff_s: float = Field(default=1.0, gt=0, le=60)
    """Before the second attempt, at most; twice as long before each after that, up to `longest_backoff_s`."""
    longest_backoff_s: float = Field(default=30.0, gt=0, le=3600)
    lease_s: float = Field(default=15.0, ge=0.2, le=3600)
    """For how long a worker that says nothing keeps what it has; it says something three times as often."""
    archive_mb: int = Field(default=100, ge=1, le=1024)
    """Of one context, compressed."""
    pass_on: tuple[str, ...] = Field(default=(), strict=False)
    """Names of secrets that boxes get as variables."""
