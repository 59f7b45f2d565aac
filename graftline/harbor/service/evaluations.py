"""Evaluations: a rollout per seed of a deployment, within a budget; their messages, routes, and what they come to."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection, Row, and_, func, insert, or_, select

from graftline.core.hashing import digest
from graftline.harbor.contract import OF_THE_AGENT, counts
from graftline.harbor.coverage import summary_of
from graftline.harbor.messages import (
    OPEN_JOBS,
    OPEN_ROLLOUTS,
    EvalJobAnswer,
    EvalJobCreate,
    EvalResultsAnswer,
    JobStatus,
    RolloutStatus,
    SeedResult,
    Summary,
)
from graftline.harbor.refusal import RequestError
from graftline.harbor.service import queue
from graftline.harbor.service.builds import check_runs
from graftline.harbor.service.deployments import find_deployment, task_ids
from graftline.harbor.service.http import RETRY_AFTER_S, STREAMED, Events, LastEvent, problems, stream_events
from graftline.harbor.service.rollouts import new_rollout
from graftline.harbor.service.state import Service
from graftline.harbor.service.tables import new_id, rollouts

_AT = "/api/eval/jobs"
_SHOWN_COLUMNS = (
    *("id", "trace_correlation_id", "seed", "status", "reward", "success_status", "failure_cause", "error"),
    *("cost_usd", "tokens", "started_at", "finished_at"),
)
"""Without what was asked and answered, for it may be much."""


def evaluation_routes(service: Service) -> APIRouter:
    """Return the routes of evaluations."""
    router, database = APIRouter(), service.database
    tags: list[str | Enum] = ["evaluations"]

    @router.post(_AT, tags=tags, responses=problems(404, 429))
    def create(body: EvalJobCreate) -> EvalJobAnswer:
        """Queue a rollout per seed."""
        return _create(service, body)

    @router.get(f"{_AT}/{{job_id}}", tags=tags, responses=problems(404))
    def one(job_id: str) -> EvalJobAnswer:
        """Return an evaluation."""
        with database.reading() as connection:
            return _view(connection, queue.find_job(connection, job_id, queue.EVALUATION))

    @router.get(f"{_AT}/{{job_id}}/results", tags=tags, responses=problems(404))
    def results(job_id: str) -> EvalResultsAnswer:
        """Return an evaluation with what came of every seed."""
        with database.reading() as connection:
            job = queue.find_job(connection, job_id, queue.EVALUATION)
            rows = _seed_results(connection, job_id)
        return EvalResultsAnswer(**_view_of_results(job, rows).model_dump(), results=rows)

    @router.get(f"{_AT}/{{job_id}}/events/stream", tags=tags, **STREAMED)
    async def events(job_id: str, last: LastEvent = 0) -> Response:
        """Send how far an evaluation is, from the event after `Last-Event-ID` on."""
        await run_in_threadpool(one, job_id)
        return stream_events(lambda: _events_of(one(job_id)), last, service.listeners.listen(job_id))

    @router.post(f"{_AT}/{{job_id}}/cancel", tags=tags, responses=problems(404))
    def cancel(job_id: str) -> EvalJobAnswer:
        """End an evaluation; what has ended of it stays."""
        is_running = (rollouts.c.job_id == job_id, rollouts.c.status == RolloutStatus.RUNNING)
        with database.writing() as connection:
            job = queue.find_job(connection, job_id, queue.EVALUATION)
            if job.status in OPEN_JOBS:
                queue.stop_job(connection, job_id, JobStatus.CANCELLED, None)
            running: list[str] = list(connection.execute(select(rollouts.c.id).where(*is_running)).scalars())
        service.end_soon(running)
        return one(job_id)

    return router


def _create(service: Service, body: EvalJobCreate) -> EvalJobAnswer:
    """Queue a rollout per seed."""
    if len(set(body.seeds)) < len(body.seeds):
        raise RequestError("seeds", "seeds: one of them is named twice; each counts once")
    name = body.deployment_id if body.deployment_id is not None else _deployment_in(body.task_app_url)
    sha256 = digest(body.model_dump(mode="json", exclude={"task_app_api_key", "idempotency_key"}))
    key = body.idempotency_key if body.idempotency_key is not None else new_id("key")
    config = body.model_dump(mode="json", exclude={"task_app_api_key", "seeds", "budget", "idempotency_key"})
    values: dict[str, Any] = {
        "kind": queue.EVALUATION,
        "status": JobStatus.RUNNING,
        "max_concurrent": body.max_concurrent,
        "total": len(body.seeds),
        **body.budget.model_dump(),
    }
    with service.database.writing() as connection:
        deployment = find_deployment(connection, name)
        values["config"] = {**config, "deployment_id": deployment.id}
        job, is_new = queue.find_or_add_job(connection, key, sha256, values)
        if is_new:
            tasks = task_ids(deployment, body.seeds)
            check_runs(connection, deployment)
            total, _ = queue.count_waiting(connection, "")
            if total + len(body.seeds) > service.settings.queued:
                message = f"the queue is full: {total} rollouts wait, and these are {len(body.seeds)} more"
                raise RequestError("queue_full", message, retry_after_s=RETRY_AFTER_S)
            turns = queue.next_turns(connection, job.id, len(body.seeds))
            rows = [
                {"deployment_id": deployment.id, "task_id": task, "turn": turn, **_rollout_values(body, job.id, seed)}
                for seed, task, turn in zip(body.seeds, tasks, turns, strict=True)
            ]
            connection.execute(insert(rollouts), rows)
        view = _view(connection, job)
    service.work.set()
    return view


def _rollout_values(body: EvalJobCreate, job_id: str, seed: int) -> dict[str, Any]:
    name = f"{job_id}-s{seed}"
    request = {
        "trace_correlation_id": name,
        "env": {"env_name": body.env_name, "config": body.env_config, "seed": seed},
        "policy": {"config": body.policy},
        "safety": {"max_time_s": body.timeout},
        "verifier_config": body.verifier_config,
        "run_id": job_id,
    }
    values = {"job_id": job_id, "flow": job_id, "key": name, "trace_correlation_id": name, "seed": seed}
    return {**values, **new_rollout(request, "")}


def _deployment_in(url: str | None) -> str:
    _, is_ours, path = (url or "").partition("/api/harbor/deployments/")
    name = path.strip("/")
    if not is_ours or not name or "/" in name:
        raise RequestError(
            "task_app_url",
            "task_app_url: names no deployment of this service (…/api/harbor/deployments/<id>); other task apps are"
            " evaluated by the SDK itself",
        )
    return name


def _seed_results(connection: Connection, job_id: str) -> list[SeedResult]:
    """Return what came of every seed so far."""
    columns = (rollouts.c[name] for name in _SHOWN_COLUMNS)
    query = select(*columns).where(rollouts.c.job_id == job_id).order_by(rollouts.c.seed, rollouts.c.id)
    results = []
    for row in connection.execute(query):
        is_over = row.finished_at is not None and row.started_at is not None
        latency_s = row.finished_at - row.started_at if is_over else None
        is_valid = counts(row.reward, row.failure_cause)
        results.append(SeedResult.from_row(row, rollout_id=row.id, reward_valid=is_valid, latency_s=latency_s))
    return results


def _view(connection: Connection, job: Row[Any]) -> EvalJobAnswer:
    if job.status not in OPEN_JOBS:
        return _view_of_results(job, _seed_results(connection, job.id))
    # of one that goes on, worked out where its rows are; the interval comes in the end
    is_valid = and_(
        rollouts.c.reward.is_not(None),
        or_(rollouts.c.failure_cause.is_(None), rollouts.c.failure_cause.in_(OF_THE_AGENT)),
    )
    query = select(
        func.count().label("ended"),
        func.count().filter(is_valid).label("valid"),
        func.avg(rollouts.c.reward).filter(is_valid).label("mean_reward"),
        func.count(rollouts.c.cost_usd).label("priced"),
        func.sum(rollouts.c.cost_usd).label("cost_usd"),
        func.count(rollouts.c.tokens).label("counted"),
        func.sum(rollouts.c.tokens).label("tokens"),
    ).where(rollouts.c.job_id == job.id, rollouts.c.status.not_in(OPEN_ROLLOUTS))
    row = connection.execute(query).one()
    summary = Summary(
        mean_reward=row.mean_reward,
        interval=None,
        n_valid=row.valid,
        n_infra=row.ended - row.valid,
        n_total=job.total,
        coverage=row.valid / max(1, job.total),
        total_cost_usd=row.cost_usd if row.ended and row.priced == row.ended else None,
        total_tokens=int(row.tokens) if row.ended and row.counted == row.ended else None,
    )
    return EvalJobAnswer.from_row(job, job_id=job.id, num_completed=row.ended, num_total=job.total, summary=summary)


def _view_of_results(job: Row[Any], results: Sequence[SeedResult]) -> EvalJobAnswer:
    ended = [result for result in results if result.status not in OPEN_ROLLOUTS]
    summary = summary_of(ended, job.total)
    return EvalJobAnswer.from_row(job, job_id=job.id, num_completed=len(ended), num_total=job.total, summary=summary)


def _events_of(view: EvalJobAnswer) -> Events:
    """Return how far an evaluation is; the number of an event is one more than that of the seeds that have ended."""
    progress = {"num_completed": view.num_completed, "num_total": view.num_total}
    events: list[tuple[str, dict[str, Any]]] = [("eval.progress", progress)]
    is_over = view.status not in OPEN_JOBS
    if is_over:
        end = {"status": view.status, "error": view.error, "mean_reward": view.summary.mean_reward}
        events.append((f"eval.{view.status}", {**progress, **end}))
    return Events(events, is_over, (view.num_completed + 1, view.num_total + 2)[: len(events)])
