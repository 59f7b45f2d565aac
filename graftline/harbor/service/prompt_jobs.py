"""Prompt optimizations as jobs: accepted, kept until an optimizer carries them out, and shown."""

from datetime import datetime
from enum import Enum
from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Row, update

from graftline.core.errors import ConfigError
from graftline.core.hashing import digest
from graftline.harbor.contract import Finite
from graftline.harbor.refusal import RequestError
from graftline.harbor.service import queue
from graftline.harbor.service.builds import check_runs
from graftline.harbor.service.deployments import find_deployment
from graftline.harbor.service.http import STREAMED, Events, LastEvent, problems, stream_events
from graftline.harbor.service.optimizer import Optimizer, append_line, read_lines
from graftline.harbor.service.schemas import OPEN_JOBS, JobStatus, Key, Message
from graftline.harbor.service.state import Service
from graftline.harbor.service.tables import jobs, new_id

_AT = "/api/prompt-learning/online/jobs"


class PromptConfig(Message):
    """The configuration of an optimization; the SDK has checked it."""

    prompt_learning: dict[str, Any]


class PromptJobCreate(Message):
    """A prompt optimization, as `PromptLearningJob` sends it."""

    algorithm: Literal["gepa"] = "gepa"
    auto_start: bool = True
    config_body: PromptConfig
    idempotency_key: Key | None = None


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
    """A prompt optimization with all prompts that it came to."""

    outcome: dict[str, Any] | None = None


def prompt_job_routes(service: Service, optimizer: Optimizer | None) -> APIRouter:
    """Return the routes of prompt optimizations; without an optimizer jobs are kept, `pending` until there is one."""
    router, database = APIRouter(), service.database
    tags: list[str | Enum] = ["prompt optimization"]

    @router.post(_AT, tags=tags, responses=problems(404))
    def create(body: PromptJobCreate) -> PromptJobView:
        """Accept a prompt optimization."""
        config = body.config_body.prompt_learning
        try:
            deployment = None if optimizer is None else optimizer.deployment(config)
        except ConfigError as error:
            raise RequestError("prompt_learning", str(error)) from None
        sha256 = digest(body.model_dump(mode="json", exclude={"idempotency_key"}))
        key = body.idempotency_key if body.idempotency_key is not None else new_id("key")
        config = {"algorithm": body.algorithm, "auto_start": body.auto_start, "prompt_learning": config}
        values = {"kind": queue.PROMPT_LEARNING, "config": config, "status": JobStatus.PENDING}
        with database.writing() as connection:
            job, is_new = queue.find_or_add_job(connection, key, sha256, {**values, "max_concurrent": 1, "total": 0})
            if is_new and deployment is not None:
                check_runs(connection, find_deployment(connection, deployment))
        service.work.set()
        return _view(job)

    @router.get(f"{_AT}/{{job_id}}", tags=tags, responses=problems(404))
    def one(job_id: str) -> PromptJobView:
        """Return a prompt optimization."""
        with database.reading() as connection:
            return _view(queue.find_job(connection, job_id, queue.PROMPT_LEARNING))

    @router.get(f"{_AT}/{{job_id}}/events/stream", tags=tags, **STREAMED)
    async def events(job_id: str, last: LastEvent = 0) -> Response:
        """Send what becomes of a prompt optimization, from the event after `Last-Event-ID` on."""
        await run_in_threadpool(one, job_id)

        def look() -> Events:
            with database.reading() as connection:
                view = _view(queue.find_job(connection, job_id, queue.PROMPT_LEARNING))
                lines = read_lines(connection, job_id, "event")
            created = ("prompt_learning.created", {"at": view.created_at.isoformat()})
            events = [(f"prompt_learning.{line['kind']}", line["data"]) for line in lines]
            return Events([created, *events], view.status not in OPEN_JOBS)

        return stream_events(look, last, service.listeners.listen(job_id))

    @router.get(f"{_AT}/{{job_id}}/results", tags=tags, responses=problems(404))
    def results(job_id: str) -> PromptResultsView:
        """Return a prompt optimization with all prompts that it came to, once it has ended."""
        with database.reading() as connection:
            job = queue.find_job(connection, job_id, queue.PROMPT_LEARNING)
        return PromptResultsView(**_view(job).model_dump(), outcome=(job.result or {}).get("outcome"))

    @router.post(f"{_AT}/{{job_id}}/resume", tags=tags, responses=problems(404))
    def resume(job_id: str) -> PromptJobView:
        """Go on with a prompt optimization that failed or was cancelled; what is paid is not paid again."""
        with database.writing() as connection:
            job = queue.find_job(connection, job_id, queue.PROMPT_LEARNING)
            if job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
                values = {"status": JobStatus.PENDING, "error": None, "finished_at": None}
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))
        service.work.set()
        return one(job_id)

    @router.post(f"{_AT}/{{job_id}}/cancel", tags=tags, responses=problems(404))
    def cancel(job_id: str) -> PromptJobView:
        """End a prompt optimization; what it came to stays."""
        with database.writing() as connection:
            job = queue.find_job(connection, job_id, queue.PROMPT_LEARNING)
            if job.status in OPEN_JOBS:
                queue.stop_job(connection, job_id, JobStatus.CANCELLED, None)
                data = {"status": JobStatus.CANCELLED, "error": None}
                append_line(connection, job_id, "event", {"kind": "cancelled", "data": data})
        service.end_soon([job_id])
        return one(job_id)

    return router


def _view(job: Row[Any]) -> PromptJobView:
    result = job.result or {}
    fields = {name: result.get(name) for name in ("mean_reward", "best_score", "best_prompt")}
    fields |= {"algorithm": job.config["algorithm"], "num_completed": job.progress, "num_total": job.total}
    return PromptJobView.from_row(job, job_id=job.id, **fields)
