"""Waits for a job to end, whoever runs it, and shows on standard error how far it is."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

from graftline.core.progress import progress_bars
from graftline.harbor.client import HarborClient, HarborTimeoutError

_GROWTH = 1.5
Advance = Callable[[int, int], None]
"""Told how much is done, and of how much."""


def _ignore(done: int, total: int) -> None:
    pass


class JobResult(Protocol):
    """A job, as far as it is."""

    @property
    def num_completed(self) -> int:
        """How much of it is done."""

    @property
    def num_total(self) -> int:
        """Of how much; 0 where that is not known."""

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""


ResultT = TypeVar("ResultT", bound=JobResult)


class ServiceJob(Generic[ResultT]):
    """A job of the service, which goes on without this process.

    Args:
        client: Of the service.
        jobs: The route of jobs of its kind.
        read: Makes a result of an answer of the service; its second argument says what was asked for.
        kind: What such a job is called in messages.
        job_id: Of one that the service has already; empty of one that is to be begun.
    """

    def __init__(
        self, client: HarborClient, jobs: str, read: Callable[[Any, str], ResultT], kind: str, job_id: str = ""
    ) -> None:
        self.client, self.job_id = client, job_id
        self._jobs, self._read, self._kind, self._key = jobs, read, kind, uuid4().hex

    async def begin(self, body: Mapping[str, Any], id_of: Callable[[Any], str]) -> str:
        """Begin it, and return its id; a second time it is the same one."""
        if not self.job_id:
            content = {**body, "idempotency_key": self._key}
            self.job_id = id_of(await self.client.request_async("POST", self._jobs, content, idempotency_key=self._key))
        return self.job_id

    async def look(self) -> ResultT:
        """Return how far it is."""
        return await self.request("GET")

    async def cancel(self) -> ResultT:
        """End it; what it came to so far stays."""
        return await self.request("POST", "/cancel")

    async def request(self, method: str, path: str = "") -> ResultT:
        """Return what a route of the job answers; two requests are never one."""
        key = f"{self._key}{path}-{uuid4().hex}" if method == "POST" else ""
        return self._read(await self.ask(method, path, key), f"{self._kind} {self.job_id!r}")

    async def ask(self, method: str, path: str, idempotency_key: str = "") -> Any:
        """Return the answer of a route of the job, as it is."""
        return await self.client.request_async(
            method, f"{self._jobs}/{self.job_id}{path}", idempotency_key=idempotency_key
        )


@contextmanager
def job_progress(kind: str, job_id: str, is_shown: bool) -> Iterator[tuple[Advance, Callable[[str], None]]]:
    """Show on standard error how far a job is, where that is asked for: by what is done of how much, and what it came to."""
    if not is_shown:
        yield _ignore, lambda summary: None
        return
    with progress_bars() as bars:
        bars.start(kind, job_id)
        yield bars.advance, bars.finish


async def poll(
    look: Callable[[], Awaitable[ResultT]],
    late: Callable[[ResultT], str],
    advance: Advance = _ignore,
    timeout_s: float | None = None,
    interval_s: float = 0.1,
    longest_interval_s: float = 5.0,
) -> ResultT:
    """Return the first result that is terminal.

    Args:
        look: Asks how far the job is.
        late: Makes the message of the error where the job is not done in time.
        advance: Called after each look with how much is done, and of how much.
        timeout_s: How long is waited; None is for as long as it takes.
        interval_s: Between two looks, at first; later longer.
        longest_interval_s: At most, unless `interval_s` is longer.

    Raises:
        HarborTimeoutError: it is not done in time; it goes on.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        result = await look()
        advance(result.num_completed, result.num_total)
        if result.is_terminal:
            return result
        if deadline is not None and time.monotonic() >= deadline:
            raise HarborTimeoutError(f"{late(result)} after {timeout_s:g} s; poll again, it goes on")
        pause_s = interval_s if deadline is None else min(interval_s, max(0.0, deadline - time.monotonic()))
        await asyncio.sleep(pause_s)
        interval_s = min(interval_s * _GROWTH, max(interval_s, longest_interval_s))
