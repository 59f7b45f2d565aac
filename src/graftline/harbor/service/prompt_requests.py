"""What the routes of prompt optimisations call: jobs are accepted and kept, `pending` until an optimiser takes them."""

from typing import Any

from sqlalchemy import Row

from graftline.harbor.service import deployments as stored
from graftline.harbor.service import jobs as stored_jobs
from graftline.harbor.service import views
from graftline.harbor.service.job_schemas import JobStatus, PromptJobCreate, PromptJobView
from graftline.harbor.service.lookups import Parts, job_of, mismatch
from graftline.hashing import digest


class PromptJobs:
    """Prompt optimisations; safe to be called from many threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def add(self, asked: PromptJobCreate) -> PromptJobView:
        """Accept a job, or find the one that was asked for with the same key."""
        sha256 = digest(asked.model_dump(mode="json", exclude={"idempotency_key"}))
        key = asked.idempotency_key if asked.idempotency_key is not None else stored.new_id("key")
        with self._parts.database.writing() as connection:
            known = stored_jobs.find_key(connection, key)
            if known is not None and known.request_digest != sha256:
                raise mismatch(key)
            job_id = known.id if known is not None else stored_jobs.add(connection, _row(asked, key, sha256))
            return _view(job_of(connection, job_id, stored_jobs.PROMPT_LEARNING))

    def get(self, job_id: str) -> PromptJobView:
        """Return a job."""
        with self._parts.database.reading() as connection:
            return _view(job_of(connection, job_id, stored_jobs.PROMPT_LEARNING))

    def cancel(self, job_id: str) -> PromptJobView:
        """End a job; one that has ended stays as it is."""
        with self._parts.database.writing() as connection:
            job = job_of(connection, job_id, stored_jobs.PROMPT_LEARNING)
            if job.status in stored_jobs.OPEN:
                stored_jobs.stop(connection, job_id, JobStatus.CANCELLED, None)
        return self.get(job_id)


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
    return PromptJobView(
        job_id=job.id,
        status=job.status,
        algorithm=job.config["algorithm"],
        created_at=views.time_at(job.created_at),
        finished_at=views.time_of(job.finished_at),
        error=job.error,
    )
