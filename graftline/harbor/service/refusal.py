"""Why the service refuses a request: raised anywhere below the routes, answered as a `ProblemAnswer`."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.responses import JSONResponse

_SHOWN = 200


class Refused(Exception):
    """A request that is not carried out; nothing of it was."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.details, self.retry_after_s = dict(details or {}), retry_after_s


def not_found(what: str, which: str) -> Refused:
    """Return the refusal of what is not there."""
    return Refused(404, "not_found", f"{what} {which[:_SHOWN]!r}: there is none; list them to see what there is")


def refusal_answer(refused: Refused) -> "JSONResponse":
    """Return the answer that says why."""
    from starlette.responses import JSONResponse

    headers = {}
    if refused.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(refused.retry_after_s))
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    error = {"code": refused.code, "message": str(refused), "details": refused.details}
    return JSONResponse({"error": error}, refused.status, headers)
