"""Compares prompts of which not every one has a reward on every seed.

A seed without a reward says nothing: prompts are compared on the seeds that both have one on, and a mean over other seeds than
those of the prompt beside it is never looked at. A prompt that is known on fewer than half of the seeds of another one is not
called better than it: few seeds are easily lucky.
"""

import math
from collections.abc import Mapping, Sequence

from graftline.harbor.coverage import interval_of

Scores = Mapping[int, float]
"""Reward by seed; a seed that is not there has none."""


def mean(scores: Scores) -> float | None:
    """Return the mean; None where nothing is known."""
    return math.fsum(scores.values()) / len(scores) if scores else None


def differences(scores: Scores, other: Scores) -> list[float]:
    """Return by how much `scores` are above those of `other`, on the seeds of both."""
    return [scores[seed] - other[seed] for seed in sorted(scores.keys() & other.keys())]


def is_better(scores: Scores, other: Scores) -> bool:
    """Return whether the mean on the seeds of both is above that of `other`; not where those are few of the seeds of it."""
    gains = differences(scores, other)
    return bool(gains) and 2 * len(gains) >= len(other) and math.fsum(gains) > 0


def best_of(scores: Sequence[Scores]) -> int:
    """Return which is the best: the first, and in its place whichever later one is better than it."""
    best = 0
    for number in range(1, len(scores)):
        if is_better(scores[number], scores[best]) or (scores[number] and not scores[best]):
            best = number
    return best


def rank(scores: Sequence[Scores]) -> list[int]:
    """Return all of them, the best first, by how many of the others each is better than."""
    wins = [sum(is_better(by_seed, other) for other in scores) for by_seed in scores]
    return sorted(range(len(scores)), key=lambda number: (-wins[number], number))


def best_by_seed(scores: Sequence[Scores], margin: float = 0.0) -> dict[int, set[int]]:
    """Return for every seed which prompts have the highest reward there, or one within `margin` of it."""
    best: dict[int, set[int]] = {}
    for seed in sorted({seed for by_seed in scores for seed in by_seed}):
        rewards = {number: by_seed[seed] for number, by_seed in enumerate(scores) if seed in by_seed}
        highest = max(rewards.values())
        best[seed] = {number for number, reward in rewards.items() if reward >= highest - margin}
    return best


def gain(scores: Scores, other: Scores) -> tuple[float, tuple[float, float] | None, int] | None:
    """Return the mean difference on the seeds of both, its 95 % interval, and how many seeds they are."""
    gains = differences(scores, other)
    return (math.fsum(gains) / len(gains), interval_of(gains), len(gains)) if gains else None
