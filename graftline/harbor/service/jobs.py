"""Jobs: evaluations, each a rollout per seed; and prompt optimizations, which are kept until something carries them out."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from graftline.harbor.service import deployments as stored
from graftline.harbor.service import job_rollouts, rollout_queue
from graftline.harbor.service.job_schemas import EvalJobCreate, JobStatus
from graftline.harbor.service.schemas import RolloutStatus
from graftline.harbor.service.tables import jobs, rollouts

OPEN = (JobStatus.PENDING, JobStatus.RUNNING)
EVALUATION, PROMPT_LEARNING = "evaluation", "prompt_learning"


def find(connection: Connection, job_id: str, kind: str) -> Row[Any] | None:
    """Return a job by its id."""
    return connection.execute(select(jobs).where(jobs.c.id == job_id, jobs.c.kind == kind)).first()


def find_key(connection: Connection, key: str) -> Row[Any] | None:
    """Return the job that was asked for with this key."""
    return connection.execute(select(jobs).where(jobs.c.key == key)).first()


def add(connection: Connection, values: Mapping[str, Any]) -> str:
    """Add a job and return its id.

    Raises:
        IntegrityError: another one has its key.
    """
    row = {"id": stored.new_id("job"), "created_at": time.time(), **values}
    connection.execute(insert(jobs).values(**row))
    return str(row["id"])


def evaluation_row(asked: EvalJobCreate, deployment_id: str, key: str, request_digest: str) -> dict[str, Any]:
    """Return the row of an evaluation."""
    config = asked.model_dump(mode="json", exclude={"task_app_api_key", "seeds", "budget", "idempotency_key"})
    return {
        "kind": EVALUATION,
        "key": key,
        "request_digest": request_digest,
        "config": {**config, "deployment_id": deployment_id},
        "status": JobStatus.RUNNING,
        "max_concurrent": asked.max_concurrent,
        "total": len(asked.seeds),
        "max_rollouts": asked.budget.max_rollouts,
        "max_usd": asked.budget.max_usd,
        "max_tokens": asked.budget.max_tokens,
    }


def rollout_rows(
    asked: EvalJobCreate, job_id: str, deployment: Row[Any], task_ids: Sequence[str], turns: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the rows of the rollouts of an evaluation, one per seed."""
    now = time.time()
    rows = []
    for seed, task_id, turn in zip(asked.seeds, task_ids, turns, strict=True):
        correlation_id = f"{job_id}-s{seed}"
        rows.append(
            {
                "id": stored.new_id("rol"),
                "deployment_id": deployment.id,
                "job_id": job_id,
                "key": correlation_id,
                "request_digest": "",
                "trace_correlation_id": correlation_id,
                "seed": seed,
                "task_id": task_id,
                "request": {
                    "trace_correlation_id": correlation_id,
                    "env": {"env_name": asked.env_name, "config": asked.env_config, "seed": seed},
                    "policy": {"config": asked.policy},
                    "safety": {"max_time_s": asked.timeout},
                    "verifier_config": asked.verifier_config,
                    "run_id": job_id,
                },
                "status": RolloutStatus.QUEUED,
                "flow": job_id,
                "turn": turn,
                "created_at": now,
            }
        )
    return rows


def stop(connection: Connection, job_id: str, status: JobStatus, error: str | None) -> None:
    """End a job before its rollouts have: what waits is cancelled, what runs is ended."""
    reason = error if error is not None else "its job was cancelled"
    rollout_queue.cancel(connection, rollouts.c.job_id == job_id, reason)
    open_job = update(jobs).where(jobs.c.id == job_id, jobs.c.status.in_(OPEN))
    connection.execute(open_job.values(status=status, error=error, finished_at=time.time()))


def stop_beginning(connection: Connection, job_id: str, reason: str) -> None:
    """Begin nothing more of a job: what waits is cancelled, what runs is finished and counts; the job ends after it."""
    rollout_queue.cancel_waiting(connection, rollouts.c.job_id == job_id, reason)
    open_job = update(jobs).where(jobs.c.id == job_id, jobs.c.status.in_(OPEN))
    connection.execute(open_job.values(error=reason))
    end_if_done(connection, job_id)


def end_if_done(connection: Connection, job_id: str) -> bool:
    """End a job whose rollouts all have ended; return whether it has."""
    # the job first: of two whose rollouts end at the same time, the second has to see the first one's
    job = connection.execute(select(jobs).where(jobs.c.id == job_id).with_for_update()).one()
    if job.status not in OPEN:
        return True
    if job_rollouts.is_open(connection, job_id):
        return False
    counts = job_rollouts.counts_of(connection, job_id)
    coverage = counts.get(RolloutStatus.COMPLETED, 0) / max(1, job.total)
    is_whole = job.error is None and coverage >= job.config.get("min_coverage", 1.0)
    status = JobStatus.COMPLETED if is_whole else JobStatus.COMPLETED_WITH_ERRORS
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(status=status, finished_at=time.time()))
    return True


def open_ids(connection: Connection) -> list[str]:
    """Return the evaluations that have not ended."""
    query = select(jobs.c.id).where(jobs.c.status.in_(OPEN), jobs.c.kind == EVALUATION)
    return list(connection.execute(query).scalars())
