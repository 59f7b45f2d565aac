"""The routes of the service. They take a message, call one method, and answer; what is refused is a `ProblemAnswer`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import StreamingResponse
from pydantic import SecretStr
from sqlalchemy.exc import IntegrityError
from starlette.exceptions import HTTPException

from graftline import __version__
from graftline.core.errors import HarborError
from graftline.harbor.contract import RolloutRequest, RolloutResponse
from graftline.harbor.refusal import ProblemAnswer, RequestError, problem_response
from graftline.harbor.service.bounds import Bounds
from graftline.harbor.service.database import is_taken
from graftline.harbor.service.deployment_requests import Deployments
from graftline.harbor.service.event_streams import event_stream, of_evaluation, of_prompt_job, of_rollout
from graftline.harbor.service.job_requests import Evaluations
from graftline.harbor.service.job_schemas import (
    EvalJobCreate,
    EvalJobView,
    EvalResultsView,
    PromptJobCreate,
    PromptJobView,
    PromptResultsView,
)
from graftline.harbor.service.lookups import Parts
from graftline.harbor.service.notices import Notices
from graftline.harbor.service.prompt_requests import PromptJobs
from graftline.harbor.service.prompt_workers import Optimizer, PromptWorkers
from graftline.harbor.service.rollout_requests import Rollouts, legacy_request
from graftline.harbor.service.schemas import (
    MAX_PAGE,
    BatchView,
    BuildAllView,
    BuildRequest,
    BuildView,
    DeploymentCreate,
    DeploymentPage,
    DeploymentRollout,
    DeploymentStatusView,
    DeploymentView,
    InstanceBatch,
    InstancePage,
    LegacyRollout,
    RolloutCreate,
    RolloutPage,
    RolloutStatus,
    RolloutView,
    Status,
)
from graftline.harbor.service.waiting import Wanted, answered, wanted

_BODY_SPARE = 8 << 20
_MOST_FAULTS = 20
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str | None, Query(pattern=r"^0x1\.[0-9a-f]{13}p\+[0-9]{2}~[a-z]{3}_[0-9a-f]{24}$")]
SeedCursor = Annotated[str | None, Query(pattern=r"^[0-9]{1,10}$")]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]
LastEvent = Annotated[int, Header(alias="Last-Event-ID", ge=0, le=10_000_000)]
Prefer = Annotated[str | None, Header(max_length=100)]


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ProblemAnswer} for status in (400, 401, 409, 413, 422, 503, *statuses)}


_STREAM, _UNKEPT = "text/event-stream", {"Cache-Control": "no-store"}
_EVENTS: dict[int | str, dict[str, Any]] = {
    **_problems(404),
    200: {"content": {_STREAM: {"schema": {"type": "string"}}}},
}


def create_service(
    parts: Parts, notices: Notices, keys: Sequence[SecretStr], optimizer: Optimizer | None = None
) -> FastAPI:
    """Return the service as an ASGI application; its workers start and stop with it.

    Args:
        parts: What requests work with.
        notices: Who waits for a rollout.
        keys: One of them is needed for all but its health.
        optimizer: What carries out prompt optimizations; without one they are kept.
    """
    prompt_workers = None if optimizer is None else PromptWorkers(parts, optimizer)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        notices.begin()
        await run_in_threadpool(parts.workers.start)
        if prompt_workers is not None:
            prompt_workers.start()
        try:
            yield
        finally:
            if prompt_workers is not None:
                await run_in_threadpool(prompt_workers.stop)
            await run_in_threadpool(parts.workers.stop)

    app = FastAPI(title="Graftline Harbor", version=__version__, lifespan=lifespan, redoc_url=None)
    app.add_middleware(Bounds, keys=keys, most_bytes=2 * (parts.settings.archive_mb << 20) * 4 // 3 + _BODY_SPARE)
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(HarborError, _unavailable)
    app.add_exception_handler(IntegrityError, _taken)
    _add_deployments(app, Deployments(parts))
    _add_rollouts(app, Rollouts(parts), notices)
    _add_evaluations(app, Evaluations(parts))
    _add_prompt_jobs(app, PromptJobs(parts, prompt_workers))

    @app.get("/health", tags=["service"])
    def health() -> dict[str, str]:
        """Say that the service is there, and its version; no key is needed."""
        return {"status": "ok", "version": __version__}

    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _add_deployments(app: FastAPI, deployments: Deployments) -> None:
    at = "/api/harbor/deployments"
    tags: list[str | Enum] = ["deployments"]

    @app.post(at, tags=tags, responses=_problems())
    def create(asked: DeploymentCreate) -> DeploymentView:
        """Make a version of a deployment; the same again is the one that is there."""
        return deployments.create(asked)

    @app.get(at, tags=tags, responses=_problems())
    def deployment_list(
        name: Annotated[str | None, Query(max_length=128)] = None,
        status: Status | None = None,
        limit: Limit = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        cursor: Cursor = None,
    ) -> DeploymentPage:
        """List deployments, newest first."""
        return deployments.page(name, status, limit, offset, cursor)

    @app.get(f"{at}/{{deployment}}", tags=tags, responses=_problems(404))
    def deployment(deployment: str) -> DeploymentView:
        """Return a deployment by its id, or the newest version of a name."""
        return deployments.get(deployment)

    @app.get(f"{at}/{{deployment}}/status", tags=tags, responses=_problems(404))
    def status(deployment: str) -> DeploymentStatusView:
        """Return what a deployment waits for."""
        return deployments.status(deployment)

    @app.post(f"{at}/{{deployment}}/build", tags=tags, responses=_problems(404))
    def build(deployment: str, asked: BuildRequest | None = None) -> BuildView:
        """Have a deployment built, once."""
        return deployments.build(deployment, BuildRequest() if asked is None else asked)

    @app.post(f"{at}/{{deployment}}/instances/batch", tags=["instances"], responses=_problems(404))
    def batch(deployment: str, asked: InstanceBatch) -> BatchView:
        """Have instances of seeds; those that are there stay as they are."""
        return deployments.add_instances(deployment, asked)

    @app.get(f"{at}/{{deployment}}/instances", tags=["instances"], responses=_problems(404))
    def instances(
        deployment: str, status: Status | None = None, limit: Limit = 100, cursor: SeedCursor = None
    ) -> InstancePage:
        """List instances, by seed."""
        return deployments.instances(deployment, status, limit, cursor)

    @app.post(f"{at}/{{deployment}}/instances/build-all", tags=["instances"], responses=_problems(404))
    def build_all(deployment: str) -> BuildAllView:
        """Have what the instances need built, and return at once."""
        total, ready = deployments.build_all(deployment)
        return BuildAllView(total_instances=total, ready_count=ready)


def _add_rollouts(app: FastAPI, rollouts: Rollouts, notices: Notices) -> None:
    at = "/api/harbor/rollouts"
    tags: list[str | Enum] = ["rollouts"]
    queued = {**_problems(404, 429), 202: {"model": RolloutView}}

    async def asked_for(deployment: str, asked: RolloutRequest, key: str | None, how: Wanted) -> Response:
        view = await run_in_threadpool(rollouts.add, deployment, asked, key)
        return await answered(view, how, rollouts, notices)

    @app.post(
        "/api/harbor/deployments/{deployment}/rollout", tags=tags, response_model=RolloutResponse, responses=queued
    )
    async def rollout(deployment: str, asked: DeploymentRollout, key: Key = None, prefer: Prefer = None) -> Response:
        """Run a rollout and answer when it has ended; `Prefer: respond-async` or `wait=<s>` answers 202 before that."""
        return await asked_for(deployment, asked, key, wanted(prefer))

    @app.post("/api/harbor/rollout", tags=tags, response_model=RolloutResponse, responses=queued)
    async def legacy(asked: LegacyRollout, key: Key = None, prefer: Prefer = None) -> Response:
        """Run a rollout as the first clients ask for it."""
        return await asked_for(asked.deployment_id, legacy_request(asked), key, wanted(prefer))

    @app.post(at, tags=tags, status_code=202, response_model=RolloutView, responses=_problems(404, 429))
    async def create(asked: RolloutCreate, key: Key = None) -> Response:
        """Queue a rollout; the same key with the same body is the same rollout."""
        return await asked_for(asked.deployment_id, asked, key, Wanted(0.0))

    @app.get(at, tags=tags, responses=_problems(404))
    def rollout_list(
        deployment: Annotated[str | None, Query(max_length=128)] = None,
        status: RolloutStatus | None = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> RolloutPage:
        """List rollouts, newest first."""
        return rollouts.page(deployment, status, limit, cursor)

    @app.get(f"{at}/{{rollout_id}}", tags=tags, responses=_problems(404))
    def one(rollout_id: str) -> RolloutView:
        """Return a rollout with all its attempts."""
        return rollouts.get(rollout_id)

    @app.get(f"{at}/{{rollout_id}}/events", tags=tags, response_class=StreamingResponse, responses=_EVENTS)
    async def events(rollout_id: str, last: LastEvent = 0) -> Response:
        """Send what becomes of a rollout as it happens, from the event after `Last-Event-ID` on."""
        await run_in_threadpool(rollouts.get, rollout_id)

        async def stream() -> AsyncIterator[str]:
            async with notices.of(rollout_id) as news:
                async for text in event_stream(lambda: of_rollout(rollouts.get(rollout_id)), last, news):
                    yield text

        return StreamingResponse(stream(), media_type=_STREAM, headers=_UNKEPT)

    @app.post(f"{at}/{{rollout_id}}/cancel", tags=tags, responses=_problems(404))
    def cancel(rollout_id: str) -> RolloutView:
        """End a rollout: at once if it waits, soon if it runs, not at all if it has ended."""
        found = rollouts.cancel(rollout_id)
        if found.finished_at is not None:
            notices.tell(rollout_id)
        return found


def _add_evaluations(app: FastAPI, evaluations: Evaluations) -> None:
    at = "/api/eval/jobs"
    tags: list[str | Enum] = ["evaluations"]

    @app.post(at, tags=tags, responses=_problems(404, 429))
    def create(asked: EvalJobCreate) -> EvalJobView:
        """Queue a rollout per seed."""
        return evaluations.add(asked)

    @app.get(f"{at}/{{job_id}}", tags=tags, responses=_problems(404))
    def one(job_id: str) -> EvalJobView:
        """Return an evaluation."""
        return evaluations.get(job_id)

    @app.get(f"{at}/{{job_id}}/results", tags=tags, responses=_problems(404))
    def results(job_id: str) -> EvalResultsView:
        """Return an evaluation with what came of every seed."""
        return evaluations.results(job_id)

    @app.get(f"{at}/{{job_id}}/events/stream", tags=tags, response_class=StreamingResponse, responses=_EVENTS)
    async def events(job_id: str, last: LastEvent = 0) -> Response:
        """Send how far an evaluation is, from the event after `Last-Event-ID` on."""
        await run_in_threadpool(evaluations.get, job_id)
        stream = event_stream(lambda: of_evaluation(evaluations.get(job_id)), last, asyncio.Event())
        return StreamingResponse(stream, media_type=_STREAM, headers=_UNKEPT)

    @app.post(f"{at}/{{job_id}}/cancel", tags=tags, responses=_problems(404))
    def cancel(job_id: str) -> EvalJobView:
        """End an evaluation; what has ended of it stays."""
        return evaluations.cancel(job_id)


def _add_prompt_jobs(app: FastAPI, prompt_jobs: PromptJobs) -> None:
    at = "/api/prompt-learning/online/jobs"
    tags: list[str | Enum] = ["prompt optimization"]

    @app.post(at, tags=tags, responses=_problems(404))
    def create(asked: PromptJobCreate) -> PromptJobView:
        """Accept a prompt optimization."""
        return prompt_jobs.add(asked)

    @app.get(f"{at}/{{job_id}}", tags=tags, responses=_problems(404))
    def one(job_id: str) -> PromptJobView:
        """Return a prompt optimization."""
        return prompt_jobs.get(job_id)

    @app.get(f"{at}/{{job_id}}/events/stream", tags=tags, response_class=StreamingResponse, responses=_EVENTS)
    async def events(job_id: str, last: LastEvent = 0) -> Response:
        """Send what becomes of a prompt optimization, from the event after `Last-Event-ID` on."""
        await run_in_threadpool(prompt_jobs.get, job_id)
        stream = event_stream(lambda: of_prompt_job(*prompt_jobs.events(job_id)), last, asyncio.Event())
        return StreamingResponse(stream, media_type=_STREAM, headers=_UNKEPT)

    @app.get(f"{at}/{{job_id}}/results", tags=tags, responses=_problems(404))
    def results(job_id: str) -> PromptResultsView:
        """Return a prompt optimization with all prompts that were found, once it has ended."""
        return prompt_jobs.results(job_id)

    @app.post(f"{at}/{{job_id}}/resume", tags=tags, responses=_problems(404))
    def resume(job_id: str) -> PromptJobView:
        """Go on with a prompt optimization that failed or was cancelled; what is paid is not paid again."""
        return prompt_jobs.resume(job_id)

    @app.post(f"{at}/{{job_id}}/cancel", tags=tags, responses=_problems(404))
    def cancel(job_id: str) -> PromptJobView:
        """End a prompt optimization; what was found stays."""
        return prompt_jobs.cancel(job_id)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return problem_response(error)


async def _invalid(_: Request, error: Exception) -> Response:
    """Say where and why, and nothing of what was sent: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    faults = [
        {"where": ".".join(str(part)[:80] for part in fault["loc"]), "why": fault["type"]}
        for fault in error.errors()[:_MOST_FAULTS]
    ]
    shown = "; ".join(f"{fault['where']}: {fault['why']}" for fault in faults)
    return problem_response(RequestError("invalid", f"the request does not fit: {shown}", {"faults": faults}))


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = problem_response(RequestError("http", str(error.detail), status=error.status_code))
    answer.headers.update(error.headers or {})
    return answer


async def _unavailable(_: Request, error: Exception) -> Response:
    return problem_response(RequestError("unavailable", str(error), retry_after_s=5.0))


async def _taken(_: Request, error: Exception) -> Response:
    """Two have asked for the same at the same time, over different connections: the second finds it by asking again."""
    assert isinstance(error, IntegrityError)
    if not is_taken(error):
        raise error
    return problem_response(RequestError("conflict", "somebody has just asked for the same; ask again", None, 1.0))


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
        schemes["bearer"] = {"type": "http", "scheme": "bearer"}
        schema.setdefault("components", {})["securitySchemes"] = schemes
        schema["security"] = [{"bearer": []}, {"key": []}]
        schema["paths"]["/health"]["get"]["security"] = []
        app.openapi_schema = schema
    return app.openapi_schema
