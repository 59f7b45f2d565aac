"""How long a source is tried again: full jitter between attempts, `Retry-After` honored, one deadline.

https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import DownloadError

if TYPE_CHECKING:
    from tenacity import RetryCallState

logger = logging.getLogger(__name__)

_PROGRESS_BYTES = 1 << 16  # less than this between two faults is no progress

T = TypeVar("T")


class SourceBusyError(DownloadError):
    """The source does not answer for now: too many requests, out of service, or the connection broke."""

    retry_after_s: float = 0.0
    """How long it asks to be left alone; 0 where it does not say."""


class UnreachableError(SourceBusyError):
    """There is no way to the source: no network, as a rule, or no such server."""


class RetryPolicy(Config):
    """How long a source is waited for."""

    connect_s: float = Field(default=5.0, gt=0)
    read_s: float = Field(default=10.0, gt=0)
    """The longest silence in the middle of an answer."""
    deadline_s: float = Field(default=300.0, ge=0)
    """How long attempts are repeated; in a download, since it last got on."""
    unreachable_s: float = Field(default=20.0, ge=0)
    """How long they are while there is no way to the source, and nothing came from it yet."""
    longest_pause_s: float = Field(default=30.0, ge=0)
    """Between two attempts, unless the source asks for a longer one."""
    least_bytes_per_s: int = Field(default=1024, ge=0)
    """A connection that is slower over `slow_s` is given up and opened anew."""
    slow_s: float = Field(default=30.0, gt=0)


def with_retries(policy: RetryPolicy, attempt: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
    """Return what `attempt` returns; it is repeated while the source is busy. `progress` counts bytes.

    Raises:
        SourceBusyError: the deadline is over, or would be before the source wants to be asked again.
    """
    from tenacity import Retrying, retry_if_exception_type, wait_random_exponential

    jitter = wait_random_exponential(multiplier=0.5, max=policy.longest_pause_s)
    start_s, start_bytes = monotonic(), progress()
    reached_bytes, attempts = start_bytes, 0

    def error_of(state: "RetryCallState") -> BaseException | None:
        return state.outcome.exception() if state.outcome else None

    def pause_s(state: "RetryCallState") -> float:
        return max(getattr(error_of(state), "retry_after_s", 0.0), jitter(state))

    def is_over(state: "RetryCallState") -> bool:
        nonlocal start_s, reached_bytes, attempts
        attempts += 1
        if progress() - reached_bytes >= _PROGRESS_BYTES:
            start_s, reached_bytes = monotonic(), progress()
        is_unreachable = isinstance(error_of(state), UnreachableError) and progress() == start_bytes
        limit_s = min(policy.unreachable_s, policy.deadline_s) if is_unreachable else policy.deadline_s
        return monotonic() - start_s + state.upcoming_sleep > limit_s

    retrying = Retrying(
        retry=retry_if_exception_type(SourceBusyError),
        wait=pause_s,
        stop=is_over,
        before_sleep=lambda state: logger.warning("%s; next attempt %s", error_of(state), _when(state.upcoming_sleep)),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except SourceBusyError as error:
        count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        final = SourceBusyError(f"{error} (given up after {count}); run again later, what was fetched is kept")
        final.retry_after_s = error.retry_after_s
        raise final from error


def _when(pause_s: float) -> str:
    return f"in {pause_s:.1f} s" if pause_s >= 0.05 else "at once"
