"""From what happened to a number, or to none: a broken machine is never a wrong answer.

A reward is `float | None`. None says that nothing is known about the action; the cause says why, in both cases.
Readers test `is None`; `or` would take 0.0 for it.
"""

from pydantic import BaseModel, ConfigDict, Field

from graftline.codemod.equality import Level
from graftline.core.config import Config
from graftline.sandbox.base import Verdict

BAD_FORMAT = "bad_format"
"""Cause of an answer that cannot be read: tags are missing, or the JSON is no action."""

# on a machine that is too busy even a right action runs into the wall clock; a sandbox may lack what an action needs
SAYS_NOTHING = frozenset((Verdict.WALL_TIMEOUT, Verdict.NEEDS_CLI, Verdict.RUNNER_ERROR))
"""Verdicts from which nothing is known about an action."""


class RewardWeights(Config):
    """How measures are blended into a reward between 0 and 1."""

    verified_general: float = Field(default=1.0, ge=0, le=1)
    verified_literal: float = Field(default=0.8, ge=0, le=1)
    """An action without a metavariable memorises its example."""
    verified_broad: float = Field(default=0.6, ge=0, le=1)
    """A general action that changes foreign code more often than `most_over_out`."""
    most_over_out: float = Field(default=1.0, ge=0)
    """Places per 100,000 characters of the background corpus; for a task with a gold action, beyond those of the gold."""
    progress: float = Field(default=0.6, ge=0, le=1)
    """Times the share of the difference that is gone, less the share of wrong matches, while the text is not the target."""


class Reward(BaseModel):
    """A reward and its cause."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    value: float | None = Field(ge=0, le=1)
    cause: str
    """`verified`, `verified_literal`, `verified_broad`, `partial`, `no_progress`, the verdict of the sandbox, how an attempt
    without steps ended, or, where the tests of the task say nothing, `tests_` and why; of a whole repository `places`, or
    `tests` where there are only those."""


def reward(
    verdict: Verdict,
    level: Level,
    progress: float,
    is_all_general: bool,
    weights: RewardWeights,
    *,
    is_broad: bool = False,
    wrong_share: float = 0.0,
) -> Reward:
    """Return the reward of a text that was reached.

    `is_all_general` and `is_broad` look at every action on the way: whether each leaves something free, and whether one
    changes foreign code too often. `wrong_share` is the share of the matches of the last one that change something wrongly.
    """
    if verdict in SAYS_NOTHING:
        return Reward(value=None, cause=str(verdict))
    if verdict is not Verdict.OK:
        return Reward(value=0.0, cause=str(verdict))
    if level.is_verified:
        if not is_all_general:
            return Reward(value=weights.verified_literal, cause="verified_literal")
        if is_broad:
            return Reward(value=weights.verified_broad, cause="verified_broad")
        return Reward(value=weights.verified_general, cause="verified")
    if progress > 0:
        return Reward(value=round(weights.progress * progress * (1 - wrong_share), 6), cause="partial")
    return Reward(value=0.0, cause="no_progress")


def rl_reward(is_well_formed: bool, reward: Reward) -> float | None:
    """Return the reward as reinforcement learning takes it: -1 for an answer that cannot be read, None as it is.

    As in SRL (https://arxiv.org/abs/2510.25992) and SWE-RL (https://arxiv.org/abs/2502.18449).
    """
    return reward.value if is_well_formed else -1.0
