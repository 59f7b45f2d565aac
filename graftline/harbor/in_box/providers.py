"""Telling from what an agent printed that its model was not to be had: no failure of the agent's, whatever status it ends with."""

import re

_SHOWN = 200
_LAST_LINES = 5
_REFUSED = re.compile(
    r"\b40[13]\b.{0,40}(unauthorized|forbidden|authenti)|(unauthorized|forbidden).{0,40}\b40[13]\b"
    r"|(invalid|incorrect|missing|expired|no)[ _-]+(x-)?api[ _-]?key|api[ _-]?key\b.{0,40}(invalid|incorrect|missing|expired)"
    r"|authentication[ _-]?(error|failed|required)|please run /login|not logged in|credit balance is too low"
    r"|insufficient_quota",
    re.IGNORECASE,
)
"""That a provider does not know the key, or takes it no more."""
_UNAVAILABLE = re.compile(
    r"\b(401|429|5\d\d)\b.{0,40}(unauthorized|too many|rate|error|unavailable)|rate limit|connection refused"
    r"|could not resolve",
    re.IGNORECASE,
)
_IS_ERROR = re.compile(r"\W*(?:\S+\s+){0,3}\w*error\b|\W*unexpected status\b", re.IGNORECASE)


def refusal_in(output: str, status: int, has_changed: bool) -> str:
    """Return the line that says that the provider refused an agent; empty where none does.

    Of an agent that ends well, and whose task may be about such errors, a line counts only where nothing in its working folder
    has changed, or where it is an error and among the last that were printed.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if status != 0:
        fits = (line for line in reversed(lines) if _REFUSED.search(line) or _UNAVAILABLE.search(line))
    elif not has_changed:
        fits = (line for line in reversed(lines) if _REFUSED.search(line))
    else:
        fits = (line for line in reversed(lines[-_LAST_LINES:]) if _REFUSED.search(line) and _IS_ERROR.match(line))
    return next(fits, "")[:_SHOWN]
