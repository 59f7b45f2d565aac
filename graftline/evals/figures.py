"""What the attempts of an evaluation come to, and which of two contestants is better.

pass@1 of a task is the share of its attempts whose text counts as the wanted one; of a contestant, the mean over tasks.
pass@k is the unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code"
(https://arxiv.org/abs/2107.03374), over tasks with k attempts that count or more. Attempts of which nothing is known are
in none of the shares. Intervals are those of `harbor.coverage`: a bootstrap over tasks, for attempts at one task are alike.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any, Literal, TypeVar, get_args

from graftline.evals.attempt import Attempt
from graftline.harbor.coverage import interval_of

ALL = "all"
LEAST_TASKS = 5
"""Of fewer, a bootstrap resamples too little to say who is better."""

Measure = Literal["verified", "exact", "over_application", "right_on_unseen", "reward"]
"""What attempts are compared by; of over-application less is better."""
MEASURES: tuple[Measure, ...] = get_args(Measure)

_T = TypeVar("_T", int, float)
_MIDDLE, _TAIL = 0.5, 0.95


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one contestant at the tasks of one group; None where nothing is known."""

    contestant: str
    of: str
    """`all`, a language, or a class of edits."""
    tasks: int
    n: int
    """Attempts that count."""
    n_infra: int
    """Attempts of which nothing is known."""
    coverage: float
    """Share of attempts that count."""
    pass_at: Mapping[int, float | None]
    interval: tuple[float, float] | None
    """95 % of pass@1."""
    exact: float | None
    over_application: float | None
    """Of the attempts whose action was applied."""
    right_on_unseen: float | None
    """Of the attempts at tasks with code that was not shown."""
    reward: float | None
    cost_usd: float | None
    tokens: int | None
    latency_median_s: float | None
    latency_p95_s: float | None
    causes: Mapping[str, int] = field(default_factory=dict)
    """Of attempts that count, how many ended by what."""

    def as_dict(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        return {**asdict(self), "pass_at": {str(k): value for k, value in self.pass_at.items()}}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first contestant less the second, at the tasks of which both have attempts that count."""

    first: str
    second: str
    of: str
    measure: Measure
    tasks: int
    coverage: float
    """Share of all tasks of the group that these are."""
    of_first: float | None
    of_second: float | None
    difference: float | None
    interval: tuple[float, float] | None
    """95 % of the difference, by paired bootstrap over tasks; None for fewer than two."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def pass_at_k(n: int, right: int, k: int) -> float:
    """Return the chance that of `k` attempts, taken of `n` of which so many are right, one is right or more."""
    if not 1 <= k <= n or not 0 <= right <= n:
        raise ValueError(f"pass@{k} of {n} attempts, {right} of them right: 1 to {n} can be taken")
    return 1 - math.comb(n - right, k) / math.comb(n, k)


def ks_of(attempts: int) -> list[int]:
    """Return the k that are shown for so many attempts: powers of two, and all of them."""
    powers = takewhile(lambda power: power < attempts, (1 << number for number in range(attempts)))
    return [*powers, attempts]


def figures(attempts: Sequence[Attempt], of: str = ALL) -> list[Figures]:
    """Return the figures of every contestant over all `attempts`, in the order they come in."""
    most = max((attempt.attempt for attempt in attempts), default=1)
    return [_figures(name, of, some, ks_of(most)) for name, some in _grouped(attempts, _contestant).items()]


def figures_by(attempts: Sequence[Attempt], group: Callable[[Attempt], str]) -> list[Figures]:
    """Return the figures of every contestant by what `group` says of an attempt, groups in alphabetical order."""
    parts = sorted(_grouped(attempts, group).items())
    return [found for name, some in parts for found in figures(some, name)]


def compared(
    attempts: Sequence[Attempt], first: str, second: str, measure: Measure = "verified", of: str = ALL
) -> Comparison:
    """Return how much better `first` is than `second` at the tasks of which both have attempts that count.

    Raises:
        ValueError: one of them made no attempt.
    """
    by = _grouped(attempts, _contestant)
    if missing := [name for name in (first, second) if name not in by]:
        raise ValueError(f"contestant {missing[0]!r} made no attempt; known: {', '.join(by) or 'none'}")
    scores = [_scores(by[name], measure) for name in (first, second)]
    both = [id for id in scores[0] if id in scores[1]]
    total = len({attempt.task_id for name in (first, second) for attempt in by[name]})
    ours, theirs = ([of_task[id] for id in both] for of_task in scores)
    # what is a difference of nothing must not be one of 1e-17
    differences = [round(a - b, 12) for a, b in zip(ours, theirs, strict=True)]
    coverage = len(both) / total if total else 0.0
    return Comparison(
        first, second, of, measure, len(both), coverage, _mean(ours), _mean(theirs), _mean(differences),
        interval_of(differences),
    )  # fmt: skip


def _figures(name: str, of: str, attempts: Sequence[Attempt], ks: Sequence[int]) -> Figures:
    counting = [attempt for attempt in attempts if not attempt.is_infra]
    by_task = [*_grouped(counting, lambda attempt: attempt.task_id).values()]
    right = [(len(some), sum(one.is_verified for one in some)) for some in by_task]
    pass_at = {k: _mean([pass_at_k(n, c, k) for n, c in right if n >= k]) for k in ks}
    latencies = [one.latency_s for one in counting]
    return Figures(
        contestant=name,
        of=of,
        tasks=len({attempt.task_id for attempt in attempts}),
        n=len(counting),
        n_infra=len(attempts) - len(counting),
        coverage=len(counting) / len(attempts) if attempts else 0.0,
        pass_at=pass_at,
        interval=interval_of([c / n for n, c in right]),
        exact=_share(one.is_exact for one in counting),
        over_application=_share(one.over_application for one in counting),
        right_on_unseen=_share(one.right_on_unseen for one in counting),
        reward=_mean([one.reward for one in counting if one.reward is not None]),
        # an answer is paid for, whether it could be graded or not
        cost_usd=_total([one.cost_usd for one in attempts if not one.is_infra or one.cost_usd is not None]),
        tokens=_total([one.tokens for one in attempts if not one.is_infra or one.tokens is not None]),
        latency_median_s=_quantile(latencies, _MIDDLE),
        latency_p95_s=_quantile(latencies, _TAIL),
        causes=dict(sorted(Counter(one.cause for one in counting).items())),
    )


def _scores(attempts: Iterable[Attempt], measure: Measure) -> dict[str, float]:
    """Return the mean of a measure over the attempts that count, by task; tasks of which nothing is known are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    for attempt in attempts:
        value = None if attempt.is_infra else _value(attempt, measure)
        if value is not None:
            found[attempt.task_id].append(float(value))
    return {id: math.fsum(values) / len(values) for id, values in found.items()}


def _value(attempt: Attempt, measure: Measure) -> float | None:
    match measure:
        case "verified":
            return attempt.is_verified
        case "exact":
            return attempt.is_exact
        case "over_application":
            return attempt.over_application
        case "right_on_unseen":
            return attempt.right_on_unseen
        case "reward":
            return attempt.reward


def _grouped(attempts: Iterable[Attempt], group: Callable[[Attempt], str]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        found[group(attempt)].append(attempt)
    return found


def _contestant(attempt: Attempt) -> str:
    return attempt.contestant


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _share(values: Iterable[bool | None]) -> float | None:
    return _mean([float(value) for value in values if value is not None])


def _total(values: Sequence[_T | None]) -> _T | None:
    """Return the sum; None where one of them is not known, for that is not 0."""
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _quantile(values: Sequence[float | None], share: float) -> float | None:
    """Return the least of the known `values` that so many are not above."""
    known = sorted(value for value in values if value is not None)
    return known[max(0, math.ceil(share * len(known)) - 1)] if known else None
