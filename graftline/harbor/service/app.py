"""The service as an application: who is let in, how much may be sent, and how refusals and failures are answered."""

import secrets as secrets_
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import SecretStr
from sqlalchemy.exc import IntegrityError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graftline import __version__
from graftline.core.errors import HarborError
from graftline.harbor.executors.base import Executor
from graftline.harbor.refusal import RequestError, problem_response
from graftline.harbor.service.database import Database, is_duplicate
from graftline.harbor.service.deployments import deployment_routes
from graftline.harbor.service.evaluations import evaluation_routes
from graftline.harbor.service.http import RETRY_AFTER_S
from graftline.harbor.service.prompt_jobs import Optimizer, prompt_job_routes
from graftline.harbor.service.rollouts import rollout_routes
from graftline.harbor.service.state import Service, ServiceSettings
from graftline.harbor.service.workers import Workers

_SPARE_BYTES = 8 << 20
_MOST_FAULTS = 20
_BEARER = "bearer "
_PUBLIC = frozenset({"/health", "/openapi.json", "/docs"})


def create_service(
    database: Database,
    executor: Executor,
    keys: Sequence[SecretStr],
    settings: ServiceSettings | None = None,
    secrets: Mapping[str, str] | None = None,
    optimizer: Optimizer | None = None,
) -> FastAPI:
    """Return the service as an ASGI application; its workers start and stop with it.

    Args:
        database: Holds all its state.
        executor: Where builds and rollouts run.
        keys: One of them is needed for all but its health.
        settings: Of this process.
        secrets: Variables that containers get.
        optimizer: What carries out prompt optimizations; without one they are kept.
    """
    service = Service(database, executor, settings or ServiceSettings(), secrets or {})
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
    app.add_middleware(RequestGate, keys=keys, most_bytes=most_bytes)
    for kind in (RequestError, RequestValidationError, HTTPException, HarborError, IntegrityError):
        app.add_exception_handler(kind, _answer_error)
    app.include_router(deployment_routes(service))
    app.include_router(rollout_routes(service))
    app.include_router(evaluation_routes(service))
    app.include_router(prompt_job_routes(service, optimizer))

    @app.get("/health", tags=["service"])
    def health() -> dict[str, str]:
        """Say that the service is there, and its version; no key is needed."""
        return {"status": "ok", "version": __version__}

    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


async def _answer_error(_: Request, error: Exception) -> Response:
    match error:
        case RequestError():
            return problem_response(error)
        case RequestValidationError():
            # where and why, and nothing of what was sent: it may be a secret
            faults = [
                {"where": ".".join(str(part)[:80] for part in fault["loc"]), "why": fault["type"]}
                for fault in error.errors()[:_MOST_FAULTS]
            ]
            shown = "; ".join(f"{fault['where']}: {fault['why']}" for fault in faults)
            return problem_response(RequestError("invalid", f"the request does not fit: {shown}", {"faults": faults}))
        case HTTPException():
            answer = problem_response(RequestError("http", str(error.detail), status=error.status_code))
            answer.headers.update(error.headers or {})
            return answer
        case IntegrityError() if is_duplicate(error):
            # two have asked for the same at the same time, over different connections
            return problem_response(
                RequestError("conflict", "somebody has just asked for the same; ask again", None, 1.0)
            )
        case HarborError():
            return problem_response(RequestError("unavailable", str(error), retry_after_s=RETRY_AFTER_S))
    raise error


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
        schemes["bearer"] = {"type": "http", "scheme": "bearer"}
        schema.setdefault("components", {})["securitySchemes"] = schemes
        schema["security"] = [{"bearer": []}, {"key": []}]
        schema["paths"]["/health"]["get"]["security"] = []
        app.openapi_schema = schema
    return app.openapi_schema


class RequestGate:
    """Refuses requests without a key, and bodies that are too large while they arrive: before anything else sees them."""

    def __init__(self, app: ASGIApp, keys: Iterable[SecretStr], most_bytes: int) -> None:
        self._app, self._most_bytes = app, most_bytes
        self._keys = [key.get_secret_value().encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        if scope["path"] not in _PUBLIC and not self._has_key(request):
            # neither what was sent nor what is expected is said
            message = "a key is needed: send it as Authorization: Bearer, or as X-API-Key"
            await problem_response(RequestError("unauthorized", message))(scope, receive, send)
            return
        message = f"the body is too large; {self._most_bytes} bytes are accepted"
        refusal = problem_response(RequestError("too_large", message))
        length = request.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self._most_bytes:
            await refusal(scope, receive, send)
            return
        received, is_too_large = 0, False

        async def receive_within_limit() -> Message:
            nonlocal received, is_too_large
            part = await receive()
            received += len(part.get("body", b""))
            if received > self._most_bytes:
                is_too_large = True
                return {"type": "http.disconnect"}
            return part

        async def send_answer(part: Message) -> None:
            if not is_too_large:  # the answer to half a body does not say what is wrong
                await send(part)

        with suppress(ClientDisconnect):
            await self._app(scope, receive_within_limit, send_answer)
        if is_too_large:
            await refusal(scope, receive, send)

    def _has_key(self, request: HTTPConnection) -> bool:
        header = request.headers.get("authorization", "")
        text = header[len(_BEARER) :] if header.lower().startswith(_BEARER) else request.headers.get("x-api-key", "")
        sent = text.strip().encode("utf-8", "replace")
        # all of them are compared, so that time does not tell which one is nearly right
        return any([secrets_.compare_digest(sent, key) for key in self._keys])
