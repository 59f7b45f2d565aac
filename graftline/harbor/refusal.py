"""Why the service, or a task app, refuses a request. Only the answer knows the status of HTTP, which follows from the code."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ConfigDict

_SHOWN = 200
_MOST_NAMES = 10
_UNPROCESSABLE = 422
_STATUSES = {
    "unauthorized": 401,
    "not_found": 404,
    "unknown_seed": 404,
    "no_tasks": 404,
    "method_not_allowed": 405,
    "build_failed": 409,
    "conflict": 409,
    "not_built": 409,
    "other_context": 409,
    "too_large": 413,
    "queue_full": 429,
    "failed": 500,
    "no_key": 503,
    "unavailable": 503,
}


class Problem(BaseModel):
    """Why a request is refused."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    code: str
    """A word for programs, such as `not_found`."""
    message: str
    """A sentence for people: what, which, what was expected, what to do."""
    details: dict[str, Any] = {}


class ProblemAnswer(BaseModel):
    """The body of every answer of 400 and more."""

    model_config = ConfigDict(extra="forbid")

    error: Problem


class RequestError(Exception):
    """A request that is not carried out; nothing of it was."""

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
        status: int | None = None,
    ) -> None:
        """Take the reason; `status` is for what somebody else answered, and is passed on."""
        super().__init__(message)
        self.code, self.details, self.retry_after_s = code, dict(details or {}), retry_after_s
        self.status = _STATUSES.get(code, _UNPROCESSABLE) if status is None else status


def not_found(kind: str, name: str, names: Sequence[str] = ()) -> RequestError:
    """Return the refusal of what is not there; `names` are some that are, close ones first."""
    close = get_close_matches(name[:_SHOWN], names, n=_MOST_NAMES)
    shown = [*close, *(other for other in names if other not in close)][:_MOST_NAMES]
    more = ", …" if len(names) > len(shown) else ""
    advice = f"there are {', '.join(shown)}{more}" if shown else "list them to see what there is"
    return RequestError("not_found", f"{kind} {name[:_SHOWN]!r}: there is none; {advice}")
