"""What the service and task apps have in common as web applications: who is let in, how much may be sent, how refusals read.

No answer says back what was sent: it may be a secret.
"""

import logging
import math
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graftline.core.errors import GraftlineError
from graftline.harbor.refusal import Problem, ProblemAnswer, RequestError

logger = logging.getLogger(__name__)

SCHEMAS = "#/components/schemas/"
_MAX_FAULTS, _MAX_NAME, _MAX_DIGITS = 20, 64, 18
_CODES = {404: "not_found", 405: "method_not_allowed"}
_OF_ROUTES = {
    "Not Found": "there is nothing here; /openapi.json says what is answered",
    "Method Not Allowed": "not by this method; /openapi.json says by which",
}
"""For what the web framework says of a path."""


class RequestGate:
    """Refuses requests without a key, and bodies that are too large while they arrive: before anything else sees them.

    Args:
        app: What is behind it.
        keys: Returns the keys that are accepted when a request comes; None where none is needed.
        most_bytes: Of a body.
        public: Paths that need no key.
    """

    def __init__(
        self, app: ASGIApp, keys: Callable[[], Sequence[str]] | None, most_bytes: int, public: Collection[str]
    ) -> None:
        self._app, self._keys, self._most_bytes, self._public = app, keys, most_bytes, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = HTTPConnection(scope).headers
        too_large = RequestError("too_large", f"the body has more than {self._most_bytes} bytes; send less")
        try:
            if self._keys is not None and scope["path"] not in self._public:
                check_key(headers, self._keys())
            length = headers.get("content-length", "0")
            if (
                not (length.isascii() and length.isdigit())
                or len(length) > _MAX_DIGITS
                or int(length) > self._most_bytes
            ):
                raise too_large
        except RequestError as error:
            await problem_response(error)(scope, receive, send)
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
            await problem_response(too_large)(scope, receive, send)


def check_key(headers: Mapping[str, str], accepted: Sequence[str]) -> None:
    """Return if one of the keys is in `headers`.

    Raises:
        RequestError: it is not; neither what was sent nor what is expected is said.
    """
    kind, _, token = headers.get("authorization", "").partition(" ")
    # where there is a bearer token, it alone says who asks
    text = token if kind.lower() == "bearer" else headers.get("x-api-key", "")
    # the bytes as they came: servers hand headers over as Latin-1
    sent = text.strip().encode("latin-1", "replace")
    # all of them, so that the time taken says nothing about which one was nearly right
    if not any([secrets.compare_digest(sent, key.encode()) for key in accepted]):
        raise RequestError("unauthorized", "the key is missing or wrong; send it as X-API-Key or as a bearer token")


def problem_response(error: RequestError) -> JSONResponse:
    """Return the answer that says why a request is refused."""
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    answer = ProblemAnswer(error=Problem(code=error.code, message=str(error), details=error.details))
    return JSONResponse(answer.model_dump(mode="json"), error.status, headers)


def invalid_request(faults: Sequence[Any]) -> RequestError:
    """Return the refusal of what pydantic found faults in."""
    shown = [
        {
            "where": ".".join(str(part)[:_MAX_NAME] for part in fault["loc"]),
            # messages of validators of ours quote what they refuse
            "expected": fault["type"] if fault["type"] in ("value_error", "assertion_error") else fault["msg"],
        }
        for fault in faults[:_MAX_FAULTS]
    ]
    places = ", ".join(fault["where"] or "the body" for fault in shown[:4])
    return RequestError("invalid_request", f"the request does not fit at {places}; see details", {"faults": shown})


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that is refused, or that failed; only errors of ours are quoted."""
    match error:
        case RequestError():
            return problem_response(error)
        case RequestValidationError():
            return problem_response(invalid_request(error.errors()))
        case HTTPException():
            message = _OF_ROUTES.get(error.detail, str(error.detail))
            code = _CODES.get(error.status_code, "refused")
            answer = problem_response(RequestError(code, message, status=error.status_code))
            # by which methods, where the router says so
            answer.headers.update(error.headers or {})
            return answer
    logger.error("%s failed", request.url.path, exc_info=error)
    message = str(error) if isinstance(error, GraftlineError) else "the request failed; the log says where"
    return problem_response(RequestError("failed", message))


ERRORS: tuple[Any, ...] = (RequestError, RequestValidationError, HTTPException, GraftlineError, Exception)
"""What `answer_error` is to be registered for."""


def describe(app: FastAPI, public: Collection[str], *models: type[BaseModel]) -> None:
    """Have the OpenAPI document of `app` say which paths need a key, and what `models` are, whose routes read them."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            components = schema.setdefault("components", {})
            for model in models:
                own = model.model_json_schema(ref_template=SCHEMAS + "{model}")
                components["schemas"] |= {**own.pop("$defs", {}), model.__name__: own}
            schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
            schemes["bearer"] = {"type": "http", "scheme": "bearer"}
            components["securitySchemes"] = schemes
            schema["security"] = [{"bearer": []}, {"key": []}]
            for path in public & schema["paths"].keys():
                for operation in schema["paths"][path].values():
                    operation["security"] = []
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
