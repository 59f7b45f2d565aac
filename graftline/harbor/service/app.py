"""The service as an application."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import SecretStr
from sqlalchemy.exc import IntegrityError

from graftline import __version__
from graftline.core.errors import HarborError
from graftline.harbor.executors.base import Executor
from graftline.harbor.model_proxy.proxy import ModelProxy
from graftline.harbor.refusal import RequestError
from graftline.harbor.service.database import Database, is_duplicate
from graftline.harbor.service.deployments import deployment_routes
from graftline.harbor.service.evaluations import evaluation_routes
from graftline.harbor.service.http import RETRY_AFTER_S
from graftline.harbor.service.prompt_jobs import Optimizer, prompt_job_routes
from graftline.harbor.service.rollouts import rollout_routes
from graftline.harbor.service.state import Service, ServiceSettings
from graftline.harbor.service.workers import Workers
from graftline.harbor.web import ERRORS, RequestGate, answer_error, describe, problem_response

_SPARE_BYTES = 8 << 20
_PUBLIC = frozenset({"/health", "/openapi.json", "/docs"})


def create_service(
    database: Database,
    executor: Executor,
    keys: Sequence[SecretStr],
    settings: ServiceSettings | None = None,
    secrets: Mapping[str, str] | None = None,
    optimizer: Optimizer | None = None,
    proxy: ModelProxy | None = None,
) -> FastAPI:
    """Return the service as an ASGI application; its workers start and stop with it.

    `secrets` are variables that containers get; without an `optimizer`, prompt optimizations are kept; by `proxy` agents ask
    their model.
    """
    service = Service(database, executor, settings or ServiceSettings(), secrets or {}, proxy)
    workers = Workers(service, optimizer)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.listeners.bind()
        await run_in_threadpool(workers.start)
        try:
            yield
        finally:
            await run_in_threadpool(workers.stop)

    app = FastAPI(title="Graftline Harbor", version=__version__, lifespan=lifespan, redoc_url=None)
    most_bytes = 2 * (service.settings.archive_mb << 20) * 4 // 3 + _SPARE_BYTES
    accepted = [key.get_secret_value() for key in keys]
    app.add_middleware(RequestGate, keys=lambda: accepted, most_bytes=most_bytes, public=_PUBLIC)
    for kind in (*ERRORS, HarborError, IntegrityError):
        app.add_exception_handler(kind, _answer_error)
    app.include_router(deployment_routes(service))
    app.include_router(rollout_routes(service))
    app.include_router(evaluation_routes(service))
    app.include_router(prompt_job_routes(service, optimizer))

    @app.get("/health", tags=["service"])
    def health() -> dict[str, str]:
        """Say that the service is there, and its version; no key is needed."""
        return {"status": "ok", "version": __version__}

    describe(app, _PUBLIC)
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    match error:
        case IntegrityError() if is_duplicate(error):
            # two have asked for the same at the same time, over different connections
            conflict = RequestError("conflict", "somebody has just asked for the same; ask again", None, 1.0)
            return problem_response(conflict)
        case HarborError():
            return problem_response(RequestError("unavailable", str(error), retry_after_s=RETRY_AFTER_S))
    return await answer_error(request, error)
