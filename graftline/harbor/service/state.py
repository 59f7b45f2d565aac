"""What the routes and the workers of one service process share."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydantic import Field

from graftline.core.config import Config
from graftline.harbor.executors.base import Executor
from graftline.harbor.model_proxy.proxy import ModelProxy
from graftline.harbor.service.database import Database


class ServiceSettings(Config):
    """How much one service process does at the same time, how long it waits, how often it tries."""

    rollouts_at_once: int = Field(default=4, ge=1, le=4096)
    """Of this process, whatever they are of."""
    rollouts_of_one: int = Field(default=64, ge=1, le=4096)
    """Of one deployment outside of jobs; a job says its own `max_concurrent`."""
    builds_at_once: int = Field(default=1, ge=1, le=64)
    """In slots of their own: a build never waits for rollouts, nor they for it."""
    optimizations_at_once: int = Field(default=1, ge=1, le=64)
    """Prompt optimizations, in slots of their own; their rollouts wait with all others."""
    queued: int = Field(default=20_000, ge=1, le=10_000_000)
    """Rollouts that wait; more are refused by 429."""
    queued_of_one: int = Field(default=10_000, ge=1, le=10_000_000)
    """The same of one deployment outside of jobs."""
    attempts: int = Field(default=5, ge=1, le=100)
    """At one rollout, or build, that the machine failed."""
    backoff_s: float = Field(default=1.0, gt=0, le=60)
    """Before the second attempt, at most; twice as long before each after that, up to `longest_backoff_s`."""
    longest_backoff_s: float = Field(default=30.0, gt=0, le=3600)
    lease_s: float = Field(default=15.0, ge=0.2, le=3600)
    """For how long a worker that says nothing keeps what it has; it says something three times as often."""
    archive_mb: int = Field(default=100, ge=1, le=1024)
    """Of one context, compressed."""
    pass_on: tuple[str, ...] = Field(default=(), strict=False)
    """Names of secrets that containers get as variables."""


class Listeners:
    """Who waits for a rollout to end: woken at once by a worker of this process; others' rollouts are looked at now and then."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def bind(self) -> None:
        """Belong to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def notify(self, rollout_id: str) -> None:
        """Say, from any thread, that a rollout has ended."""

        def wake() -> None:
            for event in self._events.get(rollout_id, ()):
                event.set()

        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(wake)

    @asynccontextmanager
    async def listen(self, rollout_id: str) -> AsyncIterator[asyncio.Event]:
        """Yield what is set when a rollout ends; it may have ended before, so look once this has begun."""
        event = asyncio.Event()
        self._events[rollout_id].add(event)
        try:
            yield event
        finally:
            self._events[rollout_id].discard(event)
            if not self._events[rollout_id]:
                del self._events[rollout_id]


@dataclass(frozen=True)
class Service:
    """One service process."""

    database: Database
    executor: Executor
    settings: ServiceSettings
    secrets: Mapping[str, str] = field(repr=False)
    """Variables that containers get."""
    proxy: ModelProxy | None = None
    """By which agents ask their model; None where they ask it themselves."""
    listeners: Listeners = field(default_factory=Listeners)
    work: threading.Event = field(default_factory=threading.Event)
    """Set when there may be something to do."""
    running: dict[str, threading.Event] = field(default_factory=dict)
    """What runs in this process, by the id of the rollout, build or job; to set its event is to end it soon."""

    def end_soon(self, ids: Iterable[str]) -> None:
        """Have rollouts and jobs end, if they run here."""
        for row_id in ids:
            if (event := self.running.get(row_id)) is not None:
                event.set()
