"""Prompt optimizations as jobs: their routes, and how an `Optimizer`, which stands on a floor above, carries them out.

All that an optimizer says is a row before it goes on, so that a process that is killed leaves a job that the next one goes on
with. Without one, jobs are kept.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection, Row, Text, func, insert, select, type_coerce, update

from graftline.core.errors import ConfigError, GraftlineError
from graftline.core.hashing import digest
from graftline.harbor.client import HarborAPIError
from graftline.harbor.contract import RolloutRequest, RolloutResponse, TaskDescription, TaskInfo
from graftline.harbor.messages import OPEN_JOBS, JobStatus, PromptJobAnswer, PromptJobCreate, PromptResultsAnswer
from graftline.harbor.refusal import RequestError
from graftline.harbor.service import queue
from graftline.harbor.service.builds import check_runs
from graftline.harbor.service.database import Database
from graftline.harbor.service.deployments import find_deployment, task_ids
from graftline.harbor.service.http import STREAMED, Events, LastEvent, at, problems, stream_events
from graftline.harbor.service.rollouts import cancel_rollout, is_over, queue_rollout, rollout_response
from graftline.harbor.service.state import Service
from graftline.harbor.service.tables import job_lines, jobs, new_id
from graftline.harbor.task_app_client import TaskAppClient

logger = logging.getLogger(__name__)

_AT = "/api/prompt-learning/online/jobs"
Tell = Callable[[str, Mapping[str, Any]], None]
LineKind = Literal["journal", "event"]
_FIRST_LOOK_S, _LONGEST_S, _GROWTH = 0.02, 0.5, 1.5
_LAST_EVENTS = ("succeeded", "failed", "cancelled")
# as `tables.Json` writes the configuration of a job
_STARTS = type_coerce(jobs.c.config, Text).not_like('{"algorithm":"gepa","auto_start":false,%')


@dataclass(frozen=True, slots=True)
class Optimized:
    """What an optimization came to."""

    result: Mapping[str, Any] = field(default_factory=dict)
    """`best_score`, `mean_reward`, `best_prompt`, and the `outcome` as a whole."""
    error: str = ""
    """What it could not go on with."""
    remark: str = ""
    """What has to be said of one that came to its end."""


class DatabaseJournal:
    """The journal of one job, in rows."""

    def __init__(self, database: Database, job_id: str) -> None:
        self._database, self._job_id = database, job_id

    def lines(self) -> list[dict[str, Any]]:
        with self._database.reading() as connection:
            return read_lines(connection, self._job_id, "journal")

    def append(self, line: Mapping[str, Any]) -> None:
        with self._database.writing() as connection:
            append_line(connection, self._job_id, "journal", line)


class Optimizer(Protocol):
    """Carries out optimizations."""

    def deployment(self, config: Mapping[str, Any]) -> str:
        """Return the deployment that a configuration is about, by its id or name.

        Raises:
            ConfigError: the configuration is not whole, or asks for what a service does not do.
        """

    def run(
        self,
        config: Mapping[str, Any],
        task_app: TaskAppClient,
        journal: DatabaseJournal,
        job_id: str,
        stop: threading.Event,
        tell: Tell,
    ) -> Optimized:
        """Return what one came to; with `stop` set it ends soon.

        Raises:
            GraftlineError: it cannot be carried out.
        """


def prompt_job_routes(service: Service, optimizer: Optimizer | None) -> APIRouter:
    """Return the routes of prompt optimizations; without an optimizer jobs are kept, `pending` until there is one."""
    router, database = APIRouter(), service.database
    tags: list[str | Enum] = ["prompt optimization"]

    @router.post(_AT, tags=tags, responses=problems(404))
    def create(body: PromptJobCreate) -> PromptJobAnswer:
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
    def one(job_id: str) -> PromptJobAnswer:
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
            created = ("prompt_learning.created", at(view.created_at))
            events = [(f"prompt_learning.{line['kind']}", line["data"]) for line in lines]
            return Events([created, *events], view.status not in OPEN_JOBS)

        return stream_events(look, last, service.listeners.listen(job_id))

    @router.get(f"{_AT}/{{job_id}}/results", tags=tags, responses=problems(404))
    def results(job_id: str) -> PromptResultsAnswer:
        """Return a prompt optimization with all prompts that it came to, once it has ended."""
        with database.reading() as connection:
            job = queue.find_job(connection, job_id, queue.PROMPT_LEARNING)
        return PromptResultsAnswer(**_view(job).model_dump(), outcome=(job.result or {}).get("outcome"))

    @router.post(f"{_AT}/{{job_id}}/resume", tags=tags, responses=problems(404))
    def resume(job_id: str) -> PromptJobAnswer:
        """Go on with a prompt optimization that failed or was cancelled; what is paid is not paid again."""
        with database.writing() as connection:
            job = queue.find_job(connection, job_id, queue.PROMPT_LEARNING)
            if job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
                values = {"status": JobStatus.PENDING, "error": None, "finished_at": None}
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))
        service.work.set()
        return one(job_id)

    @router.post(f"{_AT}/{{job_id}}/cancel", tags=tags, responses=problems(404))
    def cancel(job_id: str) -> PromptJobAnswer:
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


def _view(job: Row[Any]) -> PromptJobAnswer:
    result = job.result or {}
    fields = {name: result.get(name) for name in ("mean_reward", "best_score", "best_prompt")}
    fields |= {"algorithm": job.config["algorithm"], "num_completed": job.progress, "num_total": job.total}
    return PromptJobAnswer.from_row(job, job_id=job.id, **fields)


def claim_prompt_job(service: Service, owner: str) -> Row[Any] | None:
    """Take the oldest optimization that waits."""
    is_ours = jobs.c.kind == queue.PROMPT_LEARNING
    lease_s, status = service.settings.lease_s, JobStatus.RUNNING
    with service.database.writing() as connection:
        return queue.claim_oldest(connection, jobs, owner, lease_s, is_ours, _STARTS, status=status)


def run_prompt_job(
    service: Service,
    optimizer: Optimizer,
    job: Row[Any],
    owner: str,
    stop: threading.Event,
    is_stopping: Callable[[], bool],
) -> None:
    """Carry out an optimization that `owner` has claimed, and write down what it came to, if it came to its end."""
    config, database = job.config["prompt_learning"], service.database
    try:
        task_app = DeploymentTaskApp(service, optimizer.deployment(config), lambda: stop.is_set() and not is_stopping())
        tell = _teller(database, job.id, owner)
        outcome = optimizer.run(config, task_app, DatabaseJournal(database, job.id), job.id, stop, tell)
    except GraftlineError as error:
        outcome = Optimized(error=str(error))
    except Exception as error:
        logger.exception("optimization %s broke", job.id)
        reason = f"the optimization broke ({type(error).__name__}); the log of the service says where"
        outcome = Optimized(error=reason)
    if is_stopping():
        return
    status = JobStatus.FAILED if outcome.error else JobStatus.COMPLETED
    values = {"status": status, "error": outcome.error or outcome.remark or None, "finished_at": time.time()}
    with database.writing() as connection:
        is_running = _is_run_by(connection, job.id, owner)
        # one that was cancelled keeps its status
        values = values if is_running else {}
        is_ours = queue.release(connection, jobs, job.id, owner, result=dict(outcome.result), **values)
        if is_ours and is_running:
            kind = "failed" if outcome.error else "succeeded"
            data = {"status": status, "error": outcome.error or None}
            append_line(connection, job.id, "event", {"kind": kind, "data": data})


def _teller(database: Database, job_id: str, owner: str) -> Tell:
    """Return what keeps events; those that an earlier worker told of already are not told again."""
    with database.reading() as connection:
        earlier = [event for event in read_lines(connection, job_id, "event") if event["kind"] not in _LAST_EVENTS]

    def tell(kind: str, data: Mapping[str, Any]) -> None:
        with database.writing() as connection:
            if kind == "progress":
                values = {"progress": data["num_completed"], "total": data["num_total"]}
                held = update(jobs).where(jobs.c.id == job_id, jobs.c.lease_owner == owner)
                connection.execute(held.values(**values))
            elif not _is_run_by(connection, job_id, owner):
                # its last event is told; whoever goes on with it comes to this one again
                return
            elif earlier and earlier[0] == {"kind": kind, "data": dict(data)}:
                earlier.pop(0)
            else:
                earlier.clear()
                append_line(connection, job_id, "event", {"kind": kind, "data": dict(data)})

    return tell


def _is_run_by(connection: Connection, job_id: str, owner: str) -> bool:
    """Return whether an optimization is running, and by `owner`; until the transaction ends, it stays so."""
    query = select(jobs.c.status, jobs.c.lease_owner).where(jobs.c.id == job_id).with_for_update()
    status, holder = connection.execute(query).one()
    return bool(status == JobStatus.RUNNING and holder == owner)


def append_line(connection: Connection, job_id: str, kind: LineKind, line: Mapping[str, Any]) -> None:
    """Add a line to the journal, or the events, of a job."""
    of_kind = (job_lines.c.job_id == job_id, job_lines.c.kind == kind)
    last: int = connection.execute(select(func.coalesce(func.max(job_lines.c.number), 0)).where(*of_kind)).scalar_one()
    connection.execute(insert(job_lines).values(job_id=job_id, kind=kind, number=last + 1, line=dict(line)))


def read_lines(connection: Connection, job_id: str, kind: LineKind) -> list[dict[str, Any]]:
    """Return the lines of one kind, in their order."""
    query = select(job_lines.c.line).where(job_lines.c.job_id == job_id, job_lines.c.kind == kind)
    return list(connection.execute(query.order_by(job_lines.c.number)).scalars())


class DeploymentTaskApp:
    """A deployment of this service as a task app, asked without going through HTTP.

    Args:
        service: Whose queue is asked.
        deployment: Its id or name.
        is_cancelled: Whether a rollout that nobody waits for any more is to be ended; else it goes on, and whoever asks for it
            again gets it.
    """

    url = ""

    def __init__(self, service: Service, deployment: str, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        self._service, self._deployment, self._is_cancelled = service, deployment, is_cancelled

    async def rollout(self, request: RolloutRequest) -> RolloutResponse:
        try:
            view = await asyncio.to_thread(queue_rollout, self._service, self._deployment, request, None)
        except RequestError as error:
            raise HarborAPIError(error.status, str(error), error.details, error.code) from None
        pause_s = _FIRST_LOOK_S
        try:
            while not await asyncio.to_thread(is_over, self._service, view.rollout_id):
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_S, pause_s * _GROWTH)
        except asyncio.CancelledError:
            if self._is_cancelled():
                cancel_rollout(self._service, view.rollout_id)
            raise
        response = await asyncio.to_thread(rollout_response, self._service, view.rollout_id)
        return RolloutResponse.model_validate(response)

    async def task_info(self, seeds: Sequence[int]) -> list[TaskInfo]:
        return await asyncio.to_thread(self._task_info, seeds)

    async def health(self) -> Mapping[str, Any]:
        await asyncio.to_thread(self._task_info, ())
        return {"status": "ok"}

    def _task_info(self, seeds: Sequence[int]) -> list[TaskInfo]:
        try:
            with self._service.database.reading() as connection:
                deployment = find_deployment(connection, self._deployment)
                check_runs(connection, deployment)
                names = task_ids(deployment, seeds)
        except RequestError as error:
            raise HarborAPIError(error.status, str(error), error.details, error.code) from None
        metadata = {task["seed"]: task.get("metadata", {}) for task in deployment.tasks or ()}
        return [
            TaskInfo(task=TaskDescription(id=name, name=name), task_metadata=metadata.get(seed, {}))
            for seed, name in zip(seeds, names, strict=True)
        ]
