"""Limits of one application of actions, and the order of isolation levels."""

from typing import get_args

from pydantic import Field

from graftline.core.config import Config
from graftline.sandbox.base import IsolationLevel

LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)


class Limits(Config):
    """What ast-grep may use while it applies one batch of actions to one source."""

    cpu_s: int = Field(default=5, ge=1, le=600)
    wall_s: float = Field(default=30.0, gt=0, le=3600)
    """A back-stop with a wide margin over `cpu_s`: verdicts should not depend on a busy machine."""
    memory_mb: int = Field(default=2048, ge=256)
    output_mb: int = Field(default=32, ge=1, le=1024)
    """Of the matches as JSON; a few kilobytes of nested calls can make gigabytes."""


def is_at_least(achieved: IsolationLevel, required: IsolationLevel) -> bool:
    """Return whether `achieved` is as strong as `required`."""
    return LEVELS.index(achieved) >= LEVELS.index(required)
