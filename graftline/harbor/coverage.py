"""What the results of an evaluation come to: a mean over what counts, how sure it is, and how much counts at all."""

import math
from collections.abc import Sequence

from graftline.harbor.messages import RolloutOutcome, Summary

RESAMPLES = 10_000
MOST_RESAMPLED = 1000
"""Of more different rewards the interval is that of the normal distribution, which a bootstrap of so many comes to as well."""
_Z = 1.959964
_TAIL = 0.025
_AT_ONCE = 1 << 21
"""Numbers drawn together: 16 MB."""


def summary_of(results: Sequence[RolloutOutcome], n_total: int | None = None) -> Summary:
    """Return what `results`, of those of `n_total` seeds that have ended, come to; of all of them where that is not given."""
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
    """Return the 95 % interval of the mean by bootstrap, the same for the same rewards in whatever order.

    None for fewer than two. How often each of the different rewards comes in a resample is a draw of the multinomial
    distribution, so that a resample takes as many numbers as there are different rewards.
    """
    # of the processes that load this, few ask for an interval
    import numpy as np

    size = len(rewards)
    if size < 2:
        return None
    values, counts = np.unique(np.asarray(rewards, dtype=np.float64), return_counts=True)
    if len(values) == 1:
        return float(values[0]), float(values[0])
    if len(values) > MOST_RESAMPLED:
        mean = math.fsum(rewards) / size
        error = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / size / size)
        return mean - _Z * error, mean + _Z * error
    # what repeats the rewards of a table; nothing depends on its being hard to guess
    source = np.random.default_rng(0)
    parts = max(1, RESAMPLES * len(values) // _AT_ONCE)
    means = [
        source.multinomial(size, counts / size, len(part)) @ values for part in np.array_split(range(RESAMPLES), parts)
    ]
    ordered = np.sort(np.concatenate(means)) / size
    return float(ordered[math.floor(_TAIL * RESAMPLES)]), float(ordered[math.ceil((1 - _TAIL) * RESAMPLES) - 1])
