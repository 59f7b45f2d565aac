"""One actor as the pool sees it."""

import asyncio
from dataclasses import dataclass, field

from graftline.llm.client import ActorClient
from graftline.llm.concurrency import Concurrency
from graftline.llm.fleet import Price
from graftline.llm.health import Health, Progress
from graftline.llm.load import Load
from graftline.llm.routing import digest
from graftline.llm.stats import ActorStats, Totals, cost_usd


@dataclass(slots=True, eq=False)
class Member:
    """Belongs to one event loop."""

    name: str
    client: ActorClient
    concurrency: Concurrency
    health: Health
    progress: Progress
    totals: Totals = field(default_factory=Totals)
    in_flight: int = 0
    """Requests that have a place here, whether they are sent already or not."""
    not_before: float = 0.0
    """By the clock of the loop: it has asked not to be asked before."""
    limited: int = 0
    """How often it has asked for it since it answered."""
    last_said: str = ""
    load: Load | None = None
    adapters: dict[str, str] = field(default_factory=dict)
    """Folders of the adapters that it has, as far as is known, by name."""
    adapter_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    tries: set[asyncio.Timeout] = field(default_factory=set)
    """What is under way, to be aborted when it is lost."""
    salt: int = field(init=False)

    def __post_init__(self) -> None:
        self.salt = digest(self.name)

    def is_open(self, now: float) -> bool:
        """Return whether it may be given requests, at once or when it has room."""
        return self.health.is_in_service and now >= self.not_before

    def has_room(self, now: float) -> bool:
        """Return whether it may be given a request at once."""
        return self.in_flight < self.concurrency.limit and self.is_open(now)

    def abort_tries(self) -> None:
        """End what is under way; each try finds out by a `TimeoutError`."""
        now = asyncio.get_running_loop().time()
        for scope in self.tries:
            if not scope.expired():
                scope.reschedule(now)

    def stats(self, price: Price | None) -> ActorStats:
        """Return its figures of this moment."""
        totals = self.totals
        return ActorStats(
            name=self.name,
            is_in_service=self.health.is_in_service,
            in_flight=self.in_flight,
            limit=self.concurrency.limit,
            answers=totals.answers,
            tries=totals.tries,
            faults=dict(totals.faults),
            ejections=totals.ejections,
            prompt_tokens=totals.prompt_tokens,
            completion_tokens=totals.completion_tokens,
            cached_tokens=totals.cached_tokens,
            cost_usd=cost_usd(totals.usage, price),
            last_said=self.last_said,
            load=self.load,
        )
