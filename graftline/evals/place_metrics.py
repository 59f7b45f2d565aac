"""Metrics of attempts at changes of whole repositories: how many places come out, at which precision, and what else is changed.

Of a change, recall and precision are the means over the attempts at it of which they are known; of a solver, all are means over
changes. Where all places of a change were shown, there is none to bring about: its recall is not known, and recall, R@P90 and
solved leave it out.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graftline.codemod.place_score import PlaceScore

LEAST_SHARE = 0.9
"""Precision, and recall, that a change has to have to be of use."""


@dataclass(frozen=True, slots=True)
class PlaceMetrics:
    """Of one solver."""

    tasks: int
    """Changes that were attempted."""
    recall_at_p90: float
    """Recall, counted as 0 where precision is below 0.9 or nothing is changed."""
    solved: float
    """Share of the changes with both of at least 0.9."""
    recall: float
    precision: float
    """Of those where anything is changed."""
    false_per_1000: float
    """Changes in a thousand files that are to stay as they are."""
    of_attempts: Mapping[str, float]
    """The first two, of single attempts."""

    def as_dict(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        return asdict(self)


def summarize_places(scores: Mapping[str, Sequence[PlaceScore]]) -> PlaceMetrics:
    """Return the metrics of the attempts at changes, by the ids of those."""
    means = [(_mean(s.recall for s in group), _mean(s.precision for s in group)) for group in scores.values()]
    changes = [(recall, precision) for recall, precision in means if recall is not None]
    attempts = [
        (recall, score.precision)
        for group in scores.values()
        for score in group
        if (recall := score.recall) is not None
    ]
    false = [_mean([1000 * s.false / s.untouched for s in group if s.untouched]) for group in scores.values()]
    return PlaceMetrics(
        tasks=len(scores),
        recall_at_p90=_share([recall * is_enough(precision) for recall, precision in changes]),
        solved=_share([is_enough(recall) and is_enough(precision) for recall, precision in changes]),
        recall=_share([recall for recall, _ in changes]),
        precision=round(_mean([precision for _, precision in means]) or 0, 3),
        false_per_1000=round(_mean(false) or 0, 1),
        of_attempts={
            "recall_at_p90": _share([recall * is_enough(precision) for recall, precision in attempts]),
            "solved": _share([is_enough(recall) and is_enough(precision) for recall, precision in attempts]),
        },
    )


def is_of_use(score: PlaceScore) -> bool:
    """Return whether recall and precision of an attempt are at least 0.9."""
    return is_enough(score.recall) and is_enough(score.precision)


def is_enough(value: float | None) -> bool:
    """Return whether a share is there and at least 0.9."""
    return value is not None and value >= LEAST_SHARE


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


def _share(values: Sequence[float]) -> float:
    return round(statistics.fmean(values), 3) if values else 0.0
