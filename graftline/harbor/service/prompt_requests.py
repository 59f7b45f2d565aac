"""What the routes of prompt optimizations call. Without an optimizer jobs are accepted and kept, `pending` until there is one."""

from typing import Any

from sqlalchemy import Row

from graftline.core.errors import ConfigError
from graftline.core.hashing import digest
from graftline.harbor.refusal import RequestError
from graftline.harbor.service import deployments as stored
from graftline.harbor.service import jobs as stored_jobs
from graftline.harbor.service import prompt_queue, views
from graftline.harbor.service.job_schemas import JobStatus, PromptJobCreate, PromptJobView, PromptResultsView
from graftline.harbor.service.lookups import Parts, check_runs, deployment_of, job_of, mismatch
from graftline.harbor.service.prompt_workers import PromptWorkers

_RESUMED = (JobStatus.FAILED, JobStatus.CANCELLED)


class PromptJobs:
    """Prompt optimizations; safe to be called from many threads."""

    def __init__(self, parts: Parts, workers: PromptWorkers | None = None) -> None:
        self._parts, self._workers = parts, workers

    def add(self, asked: PromptJobCreate) -> PromptJobView:
        """Accept a job, or find the one that was asked for with the same key."""
        sha256 = digest(asked.model_dump(mode="json", exclude={"idempotency_key"}))
        key = asked.idempotency_key if asked.idempotency_key is not None else stored.new_id("key")
        deployment = self._deployment(asked.config_body.prompt_learning)
        with self._parts.database.writing() as connection:
            known = stored_jobs.find_key(connection, key)
            if known is not None and known.request_digest != sha256:
                raise mismatch(key)
            if known is None and deployment is not None:
                check_runs(connection, deployment_of(connection, deployment))
            job_id = known.id if known is not None else stored_jobs.add(connection, _row(asked, key, sha256))
            view = _view(job_of(connection, job_id, stored_jobs.PROMPT_LEARNING))
        self._wake()
        return view

    def get(self, job_id: str) -> PromptJobView:
        """Return a job."""
        with self._parts.database.reading() as connection:
            return _view(job_of(connection, job_id, stored_jobs.PROMPT_LEARNING))

    def results(self, job_id: str) -> PromptResultsView:
        """Return a job with all prompts that were found, once it has ended."""
        with self._parts.database.reading() as connection:
            job = job_of(connection, job_id, stored_jobs.PROMPT_LEARNING)
            return PromptResultsView(**_view(job).model_dump(), outcome=(job.result or {}).get("outcome"))

    def events(self, job_id: str) -> tuple[PromptJobView, list[dict[str, Any]]]:
        """Return a job, and what happened to it."""
        with self._parts.database.reading() as connection:
            job = job_of(connection, job_id, stored_jobs.PROMPT_LEARNING)
            return _view(job), prompt_queue.lines(connection, job_id, "event")

    def resume(self, job_id: str) -> PromptJobView:
        """Go on with a job that failed or was cancelled; of any other nothing changes."""
        with self._parts.database.writing() as connection:
            job = job_of(connection, job_id, stored_jobs.PROMPT_LEARNING)
            if job.status in _RESUMED:
                prompt_queue.reopen(connection, job_id)
        self._wake()
        return self.get(job_id)

    def cancel(self, job_id: str) -> PromptJobView:
        """End a job; one that has ended stays as it is."""
        with self._parts.database.writing() as connection:
            job = job_of(connection, job_id, stored_jobs.PROMPT_LEARNING)
            if job.status in stored_jobs.OPEN:
                stored_jobs.stop(connection, job_id, JobStatus.CANCELLED, None)
                told = {"status": JobStatus.CANCELLED, "error": None}
                prompt_queue.append(connection, job_id, "event", {"kind": "cancelled", "data": told})
        if self._workers is not None:
            self._workers.cancel(job_id)
        return self.get(job_id)

    def _deployment(self, config: dict[str, Any]) -> str | None:
        """Return the deployment that a configuration is about; None where nobody is there who would know."""
        if self._workers is None:
            return None
        try:
            return self._workers.optimizer.deployment(config)
        except ConfigError as error:
            raise RequestError("prompt_learning", str(error)) from None

    def _wake(self) -> None:
        if self._workers is not None:
            self._workers.wake()


def _row(asked: PromptJobCreate, key: str, sha256: str) -> dict[str, Any]:
    return {
        "kind": stored_jobs.PROMPT_LEARNING,
        "key": key,
        "request_digest": sha256,
        "config": {"algorithm": asked.algorithm, "auto_start": asked.auto_start, **asked.config_body.model_dump()},
        "status": JobStatus.PENDING,
        "max_concurrent": 1,
        "total": 0,
    }


def _view(job: Row[Any]) -> PromptJobView:
    result = job.result or {}
    return PromptJobView(
        job_id=job.id,
        status=job.status,
        algorithm=job.config["algorithm"],
        created_at=views.time_at(job.created_at),
        finished_at=views.time_of(job.finished_at),
        error=job.error,
        num_completed=job.progress,
        num_total=job.total,
        **{name: result.get(name) for name in ("mean_reward", "best_score", "best_prompt")},
    )
