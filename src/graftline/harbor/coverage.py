"""What the results of an evaluation come to: a mean over what counts, how sure it is, and how much counts at all."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

RESAMPLES = 1000
MOST_RESAMPLED = 200
"""Of more rewards the interval is that of the normal distribution, which a bootstrap of so many comes to as well."""
_Z = 1.959964
_TAIL = 0.025


class Ended(Protocol):
    """What came of one seed."""

    @property
    def reward(self) -> float | None:
        """None where nothing is known."""

    @property
    def reward_valid(self) -> bool:
        """Whether it counts."""

    @property
    def cost_usd(self) -> float | None:
        """None where nobody said."""

    @property
    def tokens(self) -> int | None:
        """None where nobody said."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What results come to."""

    mean_reward: float | None
    """Over rewards that count; None where there is none."""
    interval: tuple[float, float] | None
    """95 % of the mean, by bootstrap over seeds; None for fewer than two."""
    n_valid: int
    n_infra: int
    """Ended, without a reward that counts."""
    n_total: int
    coverage: float
    """Share of all seeds, ended or not, with a reward that counts."""
    total_cost_usd: float | None
    """None where one did not say: what is not known is not 0."""
    total_tokens: int | None


def summary_of(results: Sequence[Ended], n_total: int | None = None) -> Summary:
    """Return what `results`, of the seeds that have ended, come to.

    Args:
        results: In any order.
        n_total: Seeds altogether; as many as there are results where it is not given.
    """
    total = len(results) if n_total is None else n_total
    rewards = sorted(result.reward for result in results if result.reward is not None and result.reward_valid)
    costs = [result.cost_usd for result in results]
    tokens = [result.tokens for result in results]
    known_costs = [cost for cost in costs if cost is not None]
    known_tokens = [count for count in tokens if count is not None]
    return Summary(
        mean_reward=math.fsum(rewards) / len(rewards) if rewards else None,
        interval=interval_of(rewards),
        n_valid=len(rewards),
        n_infra=len(results) - len(rewards),
        n_total=total,
        coverage=len(rewards) / total if total else 0.0,
        total_cost_usd=math.fsum(known_costs) if costs and len(known_costs) == len(costs) else None,
        total_tokens=sum(known_tokens) if tokens and len(known_tokens) == len(tokens) else None,
    )


def interval_of(rewards: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean, the same for the same rewards in whatever order."""
    size = len(rewards)
    if size < 2:
        return None
    ordered = sorted(rewards)
    if size > MOST_RESAMPLED:
        mean = math.fsum(ordered) / size
        error = math.sqrt(math.fsum((reward - mean) ** 2 for reward in ordered) / size / size)
        return mean - _Z * error, mean + _Z * error
    # what repeats the rewards of a table; nothing depends on its being hard to guess
    source = random.Random(0)
    means = sorted(math.fsum(source.choices(ordered, k=size)) / size for _ in range(RESAMPLES))
    return means[math.floor(_TAIL * RESAMPLES)], means[math.ceil((1 - _TAIL) * RESAMPLES) - 1]
