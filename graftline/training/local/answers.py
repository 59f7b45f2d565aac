"""Bodies of requests, and the forms of answers to them."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from graftline.core.errors import DataError
from graftline.training.local.calls import Call

logger = logging.getLogger(__name__)

LONG_POLL_S = 20.0
"""How long at most a request waits for the outcome of a call."""
_MOST_BODY_BYTES = 64 << 20


async def refused(request: Request, error: Exception) -> Response:
    """Answer a request that no handler took, or that failed."""
    if isinstance(error, HTTPException):
        return detail(f"{request.method} {request.url.path}: {error.detail}", error.status_code)
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return detail(f"{request.method} {request.url.path}: {type(error).__name__}; see the log of the server", 500)


def detail(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error."""
    return JSONResponse({"detail": text}, status, headers)


def submitted(call: Call, run_id: str | None) -> Response:
    """Return the id of a call, whose outcome is asked for."""
    return JSONResponse({"request_id": call.id, "model_id": run_id, **call.facts})


def page(request: Request, key: str, found: Sequence[Mapping[str, Any]]) -> Response:
    """Return the part of `found` that was asked for, under `key`."""
    offset, limit = (int(request.query_params.get(name, default)) for name, default in (("offset", 0), ("limit", 100)))
    cursor = {"offset": offset, "limit": limit, "total_count": len(found)}
    return JSONResponse({key: [*found[offset : offset + limit]], "cursor": cursor})


async def body_of(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        DataError: it is too large.
    """
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > _MOST_BODY_BYTES:
            raise DataError(f"the body is larger than {_MOST_BODY_BYTES} bytes; send less at a time")
    return bytes(content)


async def json_of(request: Request) -> dict[str, Any]:
    """Return the object that a request holds; an empty one where it holds nothing.

    Raises:
        DataError: it is too large, or none.
    """
    try:
        body = json.loads(await body_of(request) or b"{}")
    except (ValueError, RecursionError):
        raise DataError(f"{request.url.path}: the body is no JSON") from None
    if not isinstance(body, dict):
        raise DataError(f"{request.url.path}: the body is no object of JSON")
    return body
