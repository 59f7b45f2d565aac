"""Metrics of attempts: how many are right, how sure that is, what they cost, and which of two solvers is better.

An attempt is right if its text counts as the target; of a solver, the mean over tasks. pass@k is the unbiased estimator of
Chen et al., "Evaluating Large Language Models Trained on Code" (https://arxiv.org/abs/2107.03374), over tasks with k attempts
that count or more. Attempts of which nothing is known are in none of the shares. Intervals are those of `harbor.coverage`: a
bootstrap over tasks, for attempts at one task are alike.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any, Literal, TypeVar, get_args

from graftline.codemod.equality import Level
from graftline.codemod.place_score import PlaceScore
from graftline.evals.attempt import Attempt
from graftline.evals.place_metrics import PlaceMetrics, summarize_places
from graftline.harbor.coverage import interval_of

ALL = "all"
LEAST_TASKS = 5
"""Of fewer, a bootstrap resamples too little to say who is better."""

Measure = Literal["verified", "exact", "over_application", "right_on_unseen", "reward"]
"""What attempts are compared by; of over-application less is better."""
MEASURES: tuple[Measure, ...] = get_args(Measure)

_T = TypeVar("_T", int, float)
_MEDIAN, _P95 = 0.5, 0.95
_AGREEMENT = 0.75


@dataclass(frozen=True, slots=True)
class Metrics:
    """Of one solver at the tasks of one group; None where nothing is known."""

    solver: str
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
    """Of the attempts at tasks with a held-out example."""
    reward: float | None
    cost_usd: float | None
    tokens: int | None
    latency_median_s: float | None
    latency_p95_s: float | None
    levels: Mapping[str, int] = field(default_factory=dict)
    """Of attempts that count, how many came how near to the target."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """Of attempts that count, how many ended by what."""

    def as_dict(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        return {**asdict(self), "pass_at": {str(k): value for k, value in self.pass_at.items()}}


@dataclass(frozen=True, slots=True)
class Selection:
    """Of one solver, what comes of several attempts at a task where one is chosen."""

    solver: str
    of: str
    attempts: int
    tasks: int
    """With so many attempts that count."""
    single: float | None
    """pass@1."""
    chosen: float | None
    """Share of the tasks whose attempt is right that most others do the same as; without the target."""
    best: float | None
    """Share of the tasks of which some attempt is right; who chooses it knows the target."""
    agreed: int
    """Tasks of which at least three of four attempts do the same."""
    agreed_right: int
    places: Mapping[str, float] | None = None
    """R@P90 of `single`, `chosen` and `best`, of changes of whole repositories."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ChangeMetrics:
    """Of one solver at changes of whole repositories."""

    solver: str
    places: PlaceMetrics
    tokens: float | None
    """Of an attempt, the mean; None where one is not known."""
    seconds: float | None
    """From the question to the answer, the mean."""

    def as_dict(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first solver less the second, at the tasks of which both have attempts that count."""

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


def summarize(attempts: Sequence[Attempt], group_name: str = ALL) -> list[Metrics]:
    """Return the metrics of every solver over all `attempts`, in the order they come in."""
    ks = ks_of(max((attempt.attempt for attempt in attempts), default=1))
    return [_summarize(name, group_name, group, ks) for name, group in _by_solver(attempts).items()]


def summarize_by(attempts: Sequence[Attempt], key: Callable[[Attempt], str]) -> list[Metrics]:
    """Return the metrics of every solver by the `key` of an attempt, in alphabetical order."""
    groups = sorted(_group(attempts, key).items())
    return [metrics for name, group in groups for metrics in summarize(group, name)]


def summarize_changes(attempts: Sequence[Attempt]) -> list[ChangeMetrics]:
    """Return the metrics of every solver over the changes of whole repositories; none where there are no such attempts."""
    rows = []
    for name, group in _by_solver([a for a in attempts if a.places is not None]).items():
        latencies = [attempt.latency_s for attempt in group if attempt.latency_s is not None]
        tokens = _total([attempt.tokens for attempt in group])
        mean_tokens = None if tokens is None else tokens / len(group)
        rows.append(ChangeMetrics(name, summarize_places(_scores_of_places(group)), mean_tokens, _mean(latencies)))
    return rows


def choose_by_agreement(attempts: Sequence[Attempt]) -> tuple[Attempt | None, int]:
    """Return the first attempt that most others do the same as, and how many do; None where none changes anything."""
    counts = Counter(attempt.effect for attempt in attempts if attempt.effect)
    if not counts:
        return None, 0
    effect, votes = max(counts.items(), key=lambda item: item[1])
    return next(attempt for attempt in attempts if attempt.effect == effect), votes


def summarize_selections(attempts: Sequence[Attempt]) -> list[Selection]:
    """Return by solver and class what is gained by choosing of several attempts; none of solvers that made one at each task."""
    return [
        selection
        for solver, own in _by_solver(attempts).items()
        for name, group in sorted(_group(own, lambda attempt: attempt.edit_class).items())
        if (selection := _select(solver, name, group)) is not None
    ]


def _select(solver: str, name: str, attempts: Sequence[Attempt]) -> Selection | None:
    number = max(attempt.attempt for attempt in attempts)
    counting = _group([attempt for attempt in attempts if not attempt.is_infra], lambda attempt: attempt.task_id)
    tasks = {id: group for id, group in counting.items() if len(group) == number}
    if number == 1 or not tasks:
        return None
    chosen = {id: choose_by_agreement(group) for id, group in tasks.items()}
    picks = {id: attempt or tasks[id][0] for id, (attempt, _) in chosen.items()}
    best = {id: max(group, key=lambda a: (a.is_verified, a.reward or 0)) for id, group in tasks.items()}
    agreed = [attempt for attempt, votes in chosen.values() if attempt and votes >= _AGREEMENT * number]
    places = None
    if any(attempt.places is not None for attempt in attempts):
        sides = {
            "single": [a for group in tasks.values() for a in group],
            "chosen": picks.values(),
            "best": best.values(),
        }
        places = {
            side: summarize_places(_scores_of_places(members)).of_attempts["recall_at_p90"]
            for side, members in sides.items()
        }
    return Selection(
        solver=solver,
        of=name,
        attempts=number,
        tasks=len(tasks),
        single=_mean([float(attempt.is_verified) for group in tasks.values() for attempt in group]),
        chosen=_mean([float(attempt.is_verified) for attempt in picks.values()]),
        best=_mean([float(attempt.is_verified) for attempt in best.values()]),
        agreed=len(agreed),
        agreed_right=sum(attempt.is_verified for attempt in agreed),
        places=places,
    )


def _scores_of_places(attempts: Iterable[Attempt]) -> dict[str, list[PlaceScore]]:
    scores: dict[str, list[PlaceScore]] = defaultdict(list)
    for attempt in attempts:
        if attempt.places is not None:
            scores[attempt.task_id].append(attempt.places)
    return scores


def compare(
    attempts: Sequence[Attempt], first: str, second: str, measure: Measure = "verified", group_name: str = ALL
) -> Comparison:
    """Return how much better `first` is than `second` at the tasks of which both have attempts that count.

    Raises:
        ValueError: one of them made no attempt.
    """
    by_solver = _by_solver(attempts)
    if missing := [name for name in (first, second) if name not in by_solver]:
        raise ValueError(f"solver {missing[0]!r} made no attempt; known: {', '.join(by_solver) or 'none'}")
    scores, baseline = (_scores(by_solver[name], measure) for name in (first, second))
    ids = [id for id in scores if id in baseline]
    total = len({attempt.task_id for name in (first, second) for attempt in by_solver[name]})
    # what is a difference of nothing must not be one of 1e-17
    differences = [round(scores[id] - baseline[id], 12) for id in ids]
    return Comparison(
        first=first,
        second=second,
        of=group_name,
        measure=measure,
        tasks=len(ids),
        coverage=len(ids) / total if total else 0.0,
        of_first=_mean([scores[id] for id in ids]),
        of_second=_mean([baseline[id] for id in ids]),
        difference=_mean(differences),
        interval=interval_of(differences),
    )


def _summarize(name: str, group_name: str, attempts: Sequence[Attempt], ks: Sequence[int]) -> Metrics:
    counting = [attempt for attempt in attempts if not attempt.is_infra]
    by_task = _group(counting, lambda attempt: attempt.task_id).values()
    right = [(len(group), sum(attempt.is_verified for attempt in group)) for group in by_task]
    # an answer is paid for, whether it could be graded or not
    usd = [attempt.cost_usd for attempt in attempts if not attempt.is_infra or attempt.cost_usd is not None]
    tokens = [attempt.tokens for attempt in attempts if not attempt.is_infra or attempt.tokens is not None]
    latencies = sorted(attempt.latency_s for attempt in counting if attempt.latency_s is not None)
    return Metrics(
        solver=name,
        of=group_name,
        tasks=len({attempt.task_id for attempt in attempts}),
        n=len(counting),
        n_infra=len(attempts) - len(counting),
        coverage=len(counting) / len(attempts) if attempts else 0.0,
        pass_at={k: _mean([pass_at_k(n, c, k) for n, c in right if n >= k]) for k in ks},
        interval=interval_of([c / n for n, c in right]),
        exact=_mean(_values(counting, "exact")),
        over_application=_mean(_values(counting, "over_application")),
        right_on_unseen=_mean(_values(counting, "right_on_unseen")),
        reward=_mean(_values(counting, "reward")),
        cost_usd=_total(usd),
        tokens=_total(tokens),
        latency_median_s=_quantile(latencies, _MEDIAN),
        latency_p95_s=_quantile(latencies, _P95),
        levels=dict(Counter(str(level) for level in sorted(attempt.level for attempt in counting))),
        causes=dict(sorted(Counter(attempt.cause for attempt in counting).items())),
    )


def _scores(attempts: Sequence[Attempt], measure: Measure) -> dict[str, float]:
    """Return the mean of a measure over the attempts that count, by task; tasks of which nothing is known are left out."""
    counting = [attempt for attempt in attempts if not attempt.is_infra]
    means = {id: _mean(_values(group, measure)) for id, group in _group(counting, lambda a: a.task_id).items()}
    return {id: mean for id, mean in means.items() if mean is not None}


def _values(attempts: Sequence[Attempt], measure: Measure) -> list[float]:
    """Return a measure of the attempts that it is known of."""
    match measure:
        case "verified":
            return [float(attempt.is_verified) for attempt in attempts]
        case "exact":
            return [float(attempt.level is Level.EXACT) for attempt in attempts]
        case _:
            values = [getattr(attempt, measure) for attempt in attempts]
            return [float(value) for value in values if value is not None]


def _group(attempts: Iterable[Attempt], key: Callable[[Attempt], str]) -> dict[str, list[Attempt]]:
    groups: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        groups[key(attempt)].append(attempt)
    return groups


def _by_solver(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    return _group(attempts, lambda attempt: attempt.solver)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _total(values: Sequence[_T | None]) -> _T | None:
    """Return the sum; None where one of them is not known, for that is not 0."""
    known_values = [value for value in values if value is not None]
    return sum(known_values) if values and len(known_values) == len(values) else None


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the least of the `ordered` values that so many are not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None
