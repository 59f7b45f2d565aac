"""Who waits for a rollout to end: told at once by the worker of this process, and by a look now and then of others'."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Notices:
    """Told of ended rollouts from any thread; waited for in one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def begin(self) -> None:
        """Belong to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def tell(self, rollout_id: str) -> None:
        """Say that a rollout has ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, rollout_id)

    @asynccontextmanager
    async def of(self, rollout_id: str) -> AsyncIterator[asyncio.Event]:
        """Yield what is set when a rollout ends; look for yourself after this has begun, for it may have ended before."""
        event = asyncio.Event()
        self._waiting[rollout_id].add(event)
        try:
            yield event
        finally:
            self._waiting[rollout_id].discard(event)
            if not self._waiting[rollout_id]:
                del self._waiting[rollout_id]

    def _tell(self, rollout_id: str) -> None:
        for event in self._waiting.get(rollout_id, ()):
            event.set()
