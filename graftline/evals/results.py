"""What an evaluation came to, seed by seed and altogether."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graftline.harbor.coverage import summary_of
from graftline.harbor.messages import EvalResultsAnswer, JobStatus, SeedResult, read

EvalStatus = JobStatus
"""Of an evaluation."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """An evaluation, as far as it is. A mean of 0.0 is a number; None is that nothing is known."""

    job_id: str
    status: EvalStatus
    mean_reward: float | None
    """Over the seeds whose reward counts."""
    interval: tuple[float, float] | None
    """95 % of the mean, by bootstrap over seeds; None for fewer than two."""
    n_valid: int
    n_infra: int
    """Seeds that ended without a reward that counts."""
    num_completed: int
    """Seeds that ended, however."""
    num_total: int
    coverage: float
    total_tokens: int | None
    """None where one seed did not say; so is the cost."""
    total_cost_usd: float | None
    seed_results: Sequence[SeedResult] = ()
    error: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the service answered; empty where seeds were run from here."""

    @property
    def succeeded(self) -> bool:
        """Whether enough seeds have a reward that counts, so that the mean says something."""
        return self.status is EvalStatus.COMPLETED

    @property
    def failed(self) -> bool:
        """Whether the evaluation as a whole failed."""
        return self.status is EvalStatus.FAILED

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""
        return self.status.is_terminal


def result_of_answer(content: Any, title: str) -> EvalResult:
    """Return an evaluation from the answer of the service.

    Raises:
        HarborError: it is no evaluation.
    """
    answer = read(EvalResultsAnswer, content, title)
    return EvalResult(
        job_id=answer.job_id,
        status=answer.status,
        num_completed=answer.num_completed,
        num_total=answer.num_total,
        seed_results=_by_seed(answer.results),
        error=answer.error,
        raw=content,
        **answer.summary.model_dump(exclude={"n_total"}),
    )


def result_of_seeds(
    job_id: str, status: EvalStatus, results: Sequence[SeedResult], num_total: int, error: str | None
) -> EvalResult:
    """Return the evaluation that the results of the seeds which have ended make."""
    summary = summary_of(results, num_total).model_dump(exclude={"n_total"})
    return EvalResult(
        job_id=job_id,
        status=status,
        num_completed=len(results),
        num_total=num_total,
        seed_results=_by_seed(results),
        error=error,
        **summary,
    )


def _by_seed(results: Sequence[SeedResult]) -> list[SeedResult]:
    return sorted(results, key=lambda result: result.seed)
