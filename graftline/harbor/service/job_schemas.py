"""What the service takes and gives of jobs: evaluations and prompt optimizations. `schemas` has the rest."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from graftline.harbor.contract import FailureCause, Finite, Seed, SuccessStatus, Text
from graftline.harbor.service.schemas import MAX_INSTANCES, Message, Name, RolloutStatus


class Budget(Message):
    """What a job may use; what is reserved counts until it is known."""

    max_rollouts: int | None = Field(default=None, ge=1, le=10_000_000)
    max_usd: Finite | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1, le=2**53)


class EvalJobCreate(Message):
    """An evaluation: every seed once, at a deployment of this service."""

    task_app_url: Text | None = Field(default=None, max_length=2048)
    """`…/api/harbor/deployments/<id>`; other task apps are evaluated by the SDK itself, without the service."""
    task_app_api_key: Text | None = Field(default=None, max_length=4096, repr=False)
    """Not used and not kept: some clients send it."""
    deployment_id: Name | None = None
    app_id: Name | None = None
    env_name: Name | None = None
    seeds: list[Seed] = Field(min_length=1, max_length=MAX_INSTANCES)
    policy: dict[str, Any] = Field(default={})
    env_config: dict[str, Any] = Field(default={})
    verifier_config: dict[str, Any] = Field(default={})
    max_concurrent: int = Field(default=20, ge=1, le=1000)
    timeout: float = Field(default=600.0, gt=0, le=3600)
    """Seconds, of each rollout."""
    budget: Budget = Budget()
    min_coverage: float = Field(default=0.95, ge=0, le=1)
    """Share of seeds with a valid reward below which the job is `completed_with_errors`."""
    idempotency_key: Text | None = Field(default=None, min_length=1, max_length=255)


class JobStatus(StrEnum):
    """Of a job."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SeedResult(Message):
    """What came of one seed."""

    seed: int
    rollout_id: str
    trace_correlation_id: str
    status: RolloutStatus
    reward: Finite | None = None
    reward_valid: bool = False
    success_status: SuccessStatus | None = None
    failure_cause: FailureCause | None = None
    error: str | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    latency_s: float | None = None


class JobSummary(Message):
    """Of all seeds; the mean is over rewards that count, and None where there is none."""

    mean_reward: Finite | None
    interval: tuple[Finite, Finite] | None
    """95 %, by bootstrap over seeds; None for fewer than two."""
    n_valid: int
    n_infra: int
    """Ended, without a reward that counts."""
    n_total: int
    coverage: float
    total_cost_usd: float | None
    """None where a rollout did not say."""
    total_tokens: int | None


class EvalJobView(Message):
    """An evaluation."""

    job_id: str
    status: JobStatus
    created_at: datetime
    finished_at: datetime | None = None
    error: str | None = None
    num_completed: int
    num_total: int
    summary: JobSummary


class EvalResultsView(EvalJobView):
    """An evaluation with what came of every seed."""

    results: list[SeedResult]


class PromptConfig(Message):
    """The configuration of an optimization; the SDK has checked it."""

    prompt_learning: dict[str, Any]


class PromptJobCreate(Message):
    """A prompt optimization, as `PromptLearningJob` sends it."""

    algorithm: Literal["gepa"] = "gepa"
    auto_start: bool = True
    config_body: PromptConfig
    idempotency_key: Text | None = Field(default=None, min_length=1, max_length=255)


class PromptJobView(Message):
    """A prompt optimization."""

    job_id: str
    status: JobStatus
    algorithm: str
    created_at: datetime
    finished_at: datetime | None = None
    error: str | None = None
    num_completed: int = 0
    """Rollouts so far."""
    num_total: int = 0
    """Rollouts at most; 0 where nothing bounds them."""
    mean_reward: Finite | None = None
    """Of the best prompt, over the seeds that it was judged on."""
    best_score: Finite | None = None
    """Of the same, over the seeds that all prompts are compared on."""
    best_prompt: dict[str, Any] | None = None
    """Text by part."""


class PromptResultsView(PromptJobView):
    """A prompt optimization with all prompts that were found."""

    outcome: dict[str, Any] | None = None
