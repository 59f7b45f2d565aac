"""From what happened to a number, or to none: a broken machine is never a wrong answer.

A reward is `float | None`. None says that nothing is known about the action; the cause says why, in both cases.
Readers test `is None`; `or` would take 0.0 for it.
"""

from pydantic import BaseModel, ConfigDict, Field

from graftline.config import Config
from graftline.rules.equality import Level
from graftline.sandbox.base import Verdict

# on a machine that is too busy even a right action runs into the wall clock; a sandbox may lack what an action needs
_SAYS_NOTHING = {Verdict.WALL_TIMEOUT, Verdict.NEEDS_CLI, Verdict.RUNNER_ERROR}


class RewardWeights(Config):
    """How measures are blended into a reward between 0 and 1."""

    verified_general: float = Field(default=1.0, ge=0, le=1)
    verified_literal: float = Field(default=0.8, ge=0, le=1)
    """An action without a metavariable memorises its example."""
    progress: float = Field(default=0.6, ge=0, le=1)
    """Times the share of the difference that is gone, while the text is not the wanted one."""


class Reward(BaseModel):
    """A reward and its cause."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    value: float | None = Field(ge=0, le=1)
    cause: str
    """`verified`, `verified_literal`, `partial`, `no_progress`, the verdict of the sandbox, or how an attempt without
    steps ended."""


def reward(verdict: Verdict, level: Level, progress: float, is_all_general: bool, weights: RewardWeights) -> Reward:
    """Return the reward of a text that was reached; `is_all_general` looks at every action on the way."""
    if verdict in _SAYS_NOTHING:
        return Reward(value=None, cause=str(verdict))
    if verdict is not Verdict.OK:
        return Reward(value=0.0, cause=str(verdict))
    if level.is_verified:
        if is_all_general:
            return Reward(value=weights.verified_general, cause="verified")
        return Reward(value=weights.verified_literal, cause="verified_literal")
    if progress > 0:
        return Reward(value=round(weights.progress * progress, 6), cause="partial")
    return Reward(value=0.0, cause="no_progress")
