"""What goes into a request of HTTP, and what comes of an answer that may be anybody's."""

import json
import os
from http import HTTPStatus
from typing import Any

from graftline.core.errors import ConfigError, HarborError
from graftline.core.hashing import sha256_text

_MOST_SAID = 2000


def written(body: Any, what: str) -> bytes:
    """Return `body` as JSON, empty where there is none.

    Raises:
        ConfigError: it holds what JSON cannot say; `what` stands before that.
    """
    if body is None:
        return b""
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{what}: holds what JSON cannot say ({error}); expected texts, numbers, lists and mappings"
        ) from None


def sendable(key: str) -> str:
    """Return a key that a header takes: itself, or its digest."""
    return key if key.isascii() and key.isprintable() and " " not in key else sha256_text(key)


def json_of(content: bytes, what: str) -> Any:
    """Return what an answer holds, None where that is nothing.

    Raises:
        HarborError: it is not JSON; `what` stands before that.
    """
    if not content:
        return None
    try:
        # NaN and its like are no JSON, and no reward
        return json.loads(content, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        raise HarborError(f"{what}: the answer is not JSON; check backend_url") from None


def problem(content: bytes) -> tuple[str, str, dict[str, Any]]:
    """Return the code, the sentence and the details of a refusal, whoever wrote it."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = content.decode("utf-8", "replace").strip()
    told = found.get("error", found.get("detail", found)) if isinstance(found, dict) else found
    if not isinstance(told, dict):
        said = told if isinstance(told, str) else json.dumps(told)
        return "", said[:_MOST_SAID] or "nothing", {}
    details, sentence = told.get("details"), told.get("message")
    text = sentence if isinstance(sentence, str) else json.dumps(told)
    return str(told.get("code", "")), text[:_MOST_SAID], details if isinstance(details, dict) else {}


def named(status: int) -> str:
    """Return a status with its phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def reason(error: BaseException | None) -> str:
    """Return what the system says of a connection that failed; httpx says that it failed."""
    said = str(error) or type(error).__name__
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, OSError) and error.errno:
            said = os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
        error = error.__cause__ or error.__context__
    return said
