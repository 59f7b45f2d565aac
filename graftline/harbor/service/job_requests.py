"""What the routes of evaluations call."""

from typing import Any

from sqlalchemy import Connection, Row

from graftline.core.hashing import digest
from graftline.harbor.refusal import RequestError
from graftline.harbor.service import deployments as stored
from graftline.harbor.service import job_rollouts, rollout_queue, views
from graftline.harbor.service import jobs as stored_jobs
from graftline.harbor.service.job_schemas import EvalJobCreate, EvalJobView, EvalResultsView, JobStatus
from graftline.harbor.service.lookups import (
    RETRY_AFTER_S,
    Parts,
    check_runs,
    deployment_of,
    job_of,
    mismatch,
    task_ids,
)
from graftline.harbor.service.schemas import RolloutStatus


class Evaluations:
    """Evaluations; safe to be called from many threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def add(self, asked: EvalJobCreate) -> EvalJobView:
        """Queue a rollout per seed."""
        if len(set(asked.seeds)) < len(asked.seeds):
            raise RequestError("seeds", "seeds: one of them is named twice; each counts once")
        named = asked.deployment_id if asked.deployment_id is not None else _deployment_of_url(asked.task_app_url)
        sha256 = digest(asked.model_dump(mode="json", exclude={"task_app_api_key", "idempotency_key"}))
        key = asked.idempotency_key if asked.idempotency_key is not None else stored.new_id("key")
        with self._parts.database.writing() as connection:
            known = stored_jobs.find_key(connection, key)
            if known is not None:
                if known.request_digest != sha256:
                    raise mismatch(key)
                return self._view(connection, known)
            deployment = deployment_of(connection, named)
            tasks = task_ids(deployment, asked.seeds)
            check_runs(connection, deployment)
            everyone, _ = rollout_queue.counts_of_waiting(connection, "")
            if everyone + len(asked.seeds) > self._parts.settings.queued:
                message = f"the queue is full: {everyone} rollouts wait, and these are {len(asked.seeds)} more"
                raise RequestError("queue_full", message, retry_after_s=RETRY_AFTER_S)
            job_id = stored_jobs.add(connection, stored_jobs.evaluation_row(asked, deployment.id, key, sha256))
            turns = rollout_queue.next_turns(connection, job_id, len(asked.seeds))
            rollout_queue.add(connection, stored_jobs.rollout_rows(asked, job_id, deployment, tasks, turns))
            job = stored_jobs.find(connection, job_id, stored_jobs.EVALUATION)
            assert job is not None
            view = self._view(connection, job)
        self._parts.workers.wake()
        return view

    def get(self, job_id: str) -> EvalJobView:
        """Return an evaluation."""
        with self._parts.database.reading() as connection:
            return self._view(connection, job_of(connection, job_id, stored_jobs.EVALUATION))

    def results(self, job_id: str) -> EvalResultsView:
        """Return an evaluation with what came of every seed."""
        with self._parts.database.reading() as connection:
            job = job_of(connection, job_id, stored_jobs.EVALUATION)
            return views.eval_results_view(job, job_rollouts.of_job(connection, job_id))

    def cancel(self, job_id: str) -> EvalJobView:
        """End an evaluation; what has ended of it stays."""
        with self._parts.database.writing() as connection:
            job = job_of(connection, job_id, stored_jobs.EVALUATION)
            if job.status in stored_jobs.OPEN:
                stored_jobs.stop(connection, job_id, JobStatus.CANCELLED, None)
            running = [row.id for row in job_rollouts.of_job(connection, job_id) if row.status == RolloutStatus.RUNNING]
        self._parts.workers.cancel(running)
        return self.get(job_id)

    def _view(self, connection: Connection, job: Row[Any]) -> EvalJobView:
        if job.status in stored_jobs.OPEN:
            return views.running_job_view(job, job_rollouts.so_far(connection, job.id))
        return views.eval_job_view(job, [views.seed_result(one) for one in job_rollouts.of_job(connection, job.id)])


def _deployment_of_url(url: str | None) -> str:
    _, found, rest = (url or "").partition("/api/harbor/deployments/")
    name = rest.strip("/")
    if not found or not name or "/" in name:
        raise RequestError(
            "task_app_url",
            "task_app_url: names no deployment of this service (…/api/harbor/deployments/<id>); other task apps are"
            " evaluated by the SDK itself",
        )
    return name
