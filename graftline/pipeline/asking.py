"""How a teacher that asks a language model is put to work, and where it stops."""

from pydantic import Field

from graftline.core.config import Config


class Budget(Config):
    """Where making attempts stops; what is in flight comes to its end."""

    tokens: int | None = None
    """Read and written ones together."""
    usd: float | None = None
    steps: int | None = None


class Asking(Config):
    """How a teacher that asks a language model is put to work."""

    attempts: int = Field(default=1, ge=1, le=64)
    """At a task, until one is verified."""
    at_once: int = Field(default=16, ge=1, le=4096)
    """Attempts at a time in this process; as many as the actors have slots, or somewhat more."""
    most_tasks: int | None = Field(default=None, ge=1)
    """Of a partition, from the first; all where it is not given."""
    budget: Budget = Budget()
    """Of one run over one partition, in this process."""
