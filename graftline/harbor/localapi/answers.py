"""What a task app answers where it refuses, and how large and deep a request may be. No answer says back what was sent."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails, from_json

from graftline.core.errors import GraftlineError
from graftline.harbor.contract import RolloutRequest
from graftline.harbor.refusal import RequestError, problem_response

logger = logging.getLogger(__name__)

KEY_VARIABLE = "ENVIRONMENT_API_KEY"
ALIASES_VARIABLE = "ENVIRONMENT_API_KEY_ALIASES"
"""Further keys, commas between them: while a key is changed, the old and the new one count."""
_MOST_GIVEN = 16
MAX_BODY_BYTES = 8 << 20
_MAX_FAULTS, _MAX_NAME, _MAX_DIGITS = 20, 64, 18
_CODES = {404: "not_found", 405: "method_not_allowed"}
_OF_ROUTES = {
    "Not Found": "there is nothing here; /openapi.json says what this task app answers",
    "Method Not Allowed": "not by this method; /openapi.json says by which",
}
"""For what the web framework says of a path."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class BodyLimit:
    """Refuses bodies of more than `MAX_BODY_BYTES`, those that say so before anything of them is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > _MAX_DIGITS or int(declared) > MAX_BODY_BYTES:
            await problem_response(_too_large())(scope, receive, send)
            return
        read = 0

        async def receive_within_limit() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MAX_BODY_BYTES:
                raise _too_large()
            return message

        await self._app(scope, receive_within_limit, send)


async def rollout_request(request: Request) -> RolloutRequest:
    """Return the rollout that the body of `request` asks for.

    Raises:
        RequestError: it asks for none.
    """
    try:
        # refuses what is deeper than 200 levels, and numbers that are none
        body = from_json(await request.body(), allow_inf_nan=False)
    except ValueError:
        raise RequestError("invalid_json", "the body is not JSON; send a RolloutRequest") from None
    try:
        rollout = RolloutRequest.model_validate(body)
    except ValidationError as error:
        raise _invalid(error.errors(include_url=False, include_input=False)) from None
    if any(override.preflight_script for override in rollout.context_overrides):
        raise RequestError(
            "preflight_refused",
            "context_overrides: a preflight_script is not run; put what it does into the environment",
        )
    return rollout


async def _on_refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    return problem_response(error)


async def _on_unfit(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return problem_response(_invalid(error.errors()))


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    status, message = getattr(error, "status_code", 500), str(getattr(error, "detail", ""))
    answer = problem_response(
        RequestError(_CODES.get(status, "refused"), _OF_ROUTES.get(message, message), status=status)
    )
    # by which methods, where the router says so
    answer.headers.update(getattr(error, "headers", None) or {})
    return answer


async def _on_failure(request: Request, error: Exception) -> JSONResponse:
    message = str(error) if isinstance(error, GraftlineError) else "the task app failed; its log says where"
    logger.error("%s failed", request.url.path, exc_info=error)
    return problem_response(RequestError("failed", message))


HANDLERS: Mapping[Any, Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
    RequestError: _on_refused,
    RequestValidationError: _on_unfit,
    HTTPException: _on_http_error,
    404: _on_http_error,
    405: _on_http_error,
    GraftlineError: _on_failure,
    Exception: _on_failure,
}
"""By what is raised."""


def _invalid(faults: Sequence[ErrorDetails] | Sequence[Any]) -> RequestError:
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


def _too_large() -> RequestError:
    return RequestError("too_large", f"the body has more than {MAX_BODY_BYTES} bytes; send less")


class Keys:
    """The keys of one task app: its own, and those of the environment, as they are when a request comes."""

    def __init__(self, own: SecretStr | None, environment: Mapping[str, str]) -> None:
        self._own, self._environment = own, environment

    def check(self, headers: Mapping[str, str]) -> None:
        """Return if one of the keys is in `headers`.

        Raises:
            RequestError: it is not, or there is no key at all; what was sent is not said back.
        """
        accepted = self._list_accepted_keys()
        if not accepted:
            raise RequestError(
                "no_key",
                f"this task app needs a key and has none; set {KEY_VARIABLE} where it runs, give LocalAPIConfig an"
                " api_key, or, where nobody else can reach it, require_api_key=False",
            )
        sent_keys = _sent_keys(headers)
        # all of them, so that the time taken says nothing about which one was nearly right
        matches = [secrets.compare_digest(sent_key, key) for sent_key in sent_keys for key in accepted]
        if not any(matches):
            raise RequestError(
                "unauthorized",
                "the key is missing or wrong; send the one of this task app as X-API-Key or as a bearer token",
            )

    def _list_accepted_keys(self) -> list[bytes]:
        aliases = self._environment.get(ALIASES_VARIABLE, "").split(",")
        texts = [self._own.get_secret_value() if self._own else "", self._environment.get(KEY_VARIABLE, ""), *aliases]
        return [text.strip().encode() for text in texts if text.strip()]


def _sent_keys(headers: Mapping[str, str]) -> list[bytes]:
    kind, _, token = headers.get("authorization", "").partition(" ")
    texts = [
        headers.get("x-api-key", ""),
        token if kind.lower() == "bearer" else "",
        *headers.get("x-api-keys", "").split(",", _MOST_GIVEN)[:_MOST_GIVEN],
    ]
    # the bytes as they came: servers hand headers over as Latin-1
    return [text.strip().encode("latin-1", "replace") for text in texts if text.strip()]
