"""From rows to what is answered."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from graftline.harbor.contract import counts
from graftline.harbor.coverage import summary_of
from graftline.harbor.service import deployments as stored
from graftline.harbor.service.job_rollouts import SoFar
from graftline.harbor.service.job_schemas import EvalJobView, EvalResultsView, JobSummary, SeedResult
from graftline.harbor.service.rollout_queue import OPEN
from graftline.harbor.service.schemas import (
    AttemptView,
    BuildView,
    DeploymentStatusView,
    DeploymentView,
    InstanceView,
    RolloutView,
    Status,
)

Found = Row[Any]
_TAIL = 4000


def time_of(seconds: float | None) -> datetime | None:
    """Return seconds since 1970 as a time; None where there is none."""
    return None if seconds is None else time_at(seconds)


def time_at(seconds: float) -> datetime:
    """Return seconds since 1970 as a time."""
    return datetime.fromtimestamp(seconds, UTC)


def build_view(build: Found) -> BuildView:
    """Return a build as it is shown."""
    return BuildView(
        id=build.id,
        build_id=build.id,
        status=build.status,
        snapshot_id=build.snapshot_id,
        error_message=build.error,
        log_tail=build.log[-_TAIL:],
        created_at=time_at(build.created_at),
        started_at=time_of(build.started_at),
        finished_at=time_of(build.finished_at),
    )


def deployment_view(deployment: Found, known: Mapping[str, Found]) -> DeploymentView:
    """Return a deployment as it is shown; `known` are its builds."""
    build = known.get(deployment.build_id)
    return DeploymentView(
        id=deployment.id,
        name=deployment.name,
        version=deployment.version,
        digest=deployment.digest,
        status=stored.status_of(deployment, known),
        snapshot_id=build.snapshot_id if build is not None else None,
        latest_build=None if build is None else build_view(build),
        build_id=deployment.build_id,
        description=deployment.description,
        entrypoint=deployment.entrypoint,
        entrypoint_mode=deployment.entrypoint_mode,
        limits=deployment.limits,
        metadata=deployment.metadata,
        error=error_of(deployment, known),
        created_at=time_at(deployment.created_at),
    )


def deployment_status_view(deployment: Found, known: Mapping[str, Found]) -> DeploymentStatusView:
    """Return what a deployment waits for."""
    build = known.get(deployment.build_id)
    return DeploymentStatusView(
        id=deployment.id,
        name=deployment.name,
        version=deployment.version,
        status=stored.status_of(deployment, known),
        snapshot_id=build.snapshot_id if build is not None else None,
        error=error_of(deployment, known),
        builds=[build_view(one) for one in known.values()],
    )


def error_of(deployment: Found, known: Mapping[str, Found]) -> str | None:
    """Return why a deployment cannot be built; None where nothing says so."""
    if stored.status_of(deployment, known) is not Status.FAILED:
        return None
    return next((one.error for one in known.values() if one.error), None)


def instance_view(instance: Found, status: Status, error: str | None) -> InstanceView:
    """Return an instance as it is shown; it is at what its deployment is at."""
    return InstanceView(
        id=stored.instance_id(instance.deployment_id, instance.seed),
        deployment_id=instance.deployment_id,
        seed=instance.seed,
        task_id=instance.task_id,
        status=status,
        error=error,
    )


def rollout_view(rollout: Found, attempts: Sequence[Found] = (), is_whole: bool = True) -> RolloutView:
    """Return a rollout as it is shown; in lists without attempts, lock and response."""
    return RolloutView(
        rollout_id=rollout.id,
        deployment_id=rollout.deployment_id,
        instance_id=stored.instance_id(rollout.deployment_id, rollout.seed),
        job_id=rollout.job_id,
        trace_correlation_id=rollout.trace_correlation_id,
        seed=rollout.seed,
        task_id=rollout.task_id,
        status=rollout.status,
        reward=rollout.reward,
        reward_valid=counts(rollout.reward, rollout.failure_cause),
        success_status=rollout.success_status,
        failure_cause=rollout.failure_cause,
        error=rollout.error,
        created_at=time_at(rollout.created_at),
        started_at=time_of(rollout.started_at),
        finished_at=time_of(rollout.finished_at),
        cost_usd=rollout.cost_usd,
        tokens=rollout.tokens,
        attempts=[_attempt_view(one) for one in attempts],
        lock=rollout.lock if is_whole and rollout.lock is not None else {},
        response=rollout.response if is_whole else None,
    )


def _attempt_view(attempt: Found) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        executor=attempt.executor,
        started_at=time_at(attempt.started_at),
        finished_at=time_of(attempt.finished_at),
        success_status=attempt.success_status,
        failure_cause=attempt.failure_cause,
        error=attempt.error,
        reward=attempt.reward,
        agent_s=attempt.agent_s,
        verify_s=attempt.verify_s,
        cost_usd=attempt.cost_usd,
        tokens=attempt.tokens,
        log_tail=attempt.log[-_TAIL:],
    )


def seed_result(rollout: Found) -> SeedResult:
    """Return what came of one seed of a job."""
    is_over = rollout.finished_at is not None and rollout.started_at is not None
    return SeedResult(
        seed=rollout.seed,
        rollout_id=rollout.id,
        trace_correlation_id=rollout.trace_correlation_id,
        status=rollout.status,
        reward=rollout.reward,
        reward_valid=counts(rollout.reward, rollout.failure_cause),
        success_status=rollout.success_status,
        failure_cause=rollout.failure_cause,
        error=rollout.error,
        cost_usd=rollout.cost_usd,
        tokens=rollout.tokens,
        latency_s=rollout.finished_at - rollout.started_at if is_over else None,
    )


def eval_results_view(job: Found, rollouts: Sequence[Found]) -> EvalResultsView:
    """Return an evaluation with what came of every seed so far."""
    results = [seed_result(one) for one in rollouts]
    return EvalResultsView(**eval_job_view(job, results).model_dump(), results=results)


def eval_job_view(job: Found, results: Sequence[SeedResult]) -> EvalJobView:
    """Return an evaluation as it is shown."""
    ended = [one for one in results if one.status not in OPEN]
    found = summary_of(ended, job.total)
    summary = JobSummary(
        mean_reward=found.mean_reward,
        interval=found.interval,
        n_valid=found.n_valid,
        n_infra=found.n_infra,
        n_total=found.n_total,
        coverage=found.coverage,
        total_cost_usd=found.total_cost_usd,
        total_tokens=found.total_tokens,
    )
    return _eval_job_view(job, len(ended), summary)


def running_job_view(job: Found, so_far: SoFar) -> EvalJobView:
    """Return an evaluation that goes on, without looking at each of its rollouts; the interval comes in the end."""
    summary = JobSummary(
        mean_reward=so_far.mean_reward,
        interval=None,
        n_valid=so_far.valid,
        n_infra=so_far.ended - so_far.valid,
        n_total=job.total,
        coverage=so_far.valid / max(1, job.total),
        total_cost_usd=so_far.cost_usd,
        total_tokens=so_far.tokens,
    )
    return _eval_job_view(job, so_far.ended, summary)


def _eval_job_view(job: Found, ended: int, summary: JobSummary) -> EvalJobView:
    return EvalJobView(
        job_id=job.id,
        status=job.status,
        created_at=time_at(job.created_at),
        finished_at=time_of(job.finished_at),
        error=job.error,
        num_completed=ended,
        num_total=job.total,
        summary=summary,
    )
