"""One actor as the pool sees it."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b

from graftline.llm.base import ChatRequest, TokenUsage
from graftline.llm.client import ActorClient, FaultKind
from graftline.llm.concurrency import Concurrency
from graftline.llm.fleet import Price
from graftline.llm.load import Health, Load, Progress


def digest(text: str) -> int:
    """Return 64 bits of `text`, the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


@dataclass(slots=True, kw_only=True)
class Totals:
    """What is counted of one actor since the pool was opened."""

    answers: int = 0
    tries: int = 0
    """Requests that were sent to it; all but `answers` and those in flight failed, or were cancelled."""
    ejections: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Of `prompt_tokens`."""
    # all kinds from the start: another thread may read while this one counts
    faults: dict[FaultKind, int] = field(default_factory=lambda: dict.fromkeys(FaultKind, 0))

    def add_answer(self, usage: TokenUsage) -> None:
        self.answers += 1
        self.prompt_tokens += usage.prompt
        self.completion_tokens += usage.completion
        self.cached_tokens += usage.cached

    @property
    def usage(self) -> TokenUsage:
        """Of all answers together."""
        return TokenUsage(self.prompt_tokens, self.completion_tokens, self.cached_tokens)


def cost_usd(usage: TokenUsage, price: Price | None) -> float | None:
    """Return what `usage` costs; None where no price is known."""
    if price is None:
        return None
    cached_usd = price.prompt_usd if price.cached_usd is None else price.cached_usd
    fresh = usage.prompt - usage.cached
    return (fresh * price.prompt_usd + usage.cached * cached_usd + usage.completion * price.completion_usd) / 1_000_000


@dataclass(slots=True, kw_only=True)
class ActorStats(Totals):
    """One actor at one moment."""

    name: str
    is_in_service: bool
    in_flight: int
    limit: int
    """Requests at a time that it is given at most."""
    cost_usd: float | None
    """None where no price is configured."""
    last_fault: str
    """Its last fault; empty where it had none."""
    load: Load | None
    """What it said last on `/metrics`; None where it says nothing."""


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
    last_fault: str = ""
    load: Load | None = None
    adapters: set[str] = field(default_factory=set)
    """Names of the adapters that it has, as far as is known."""
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
        return ActorStats(
            **asdict(self.totals),
            name=self.name,
            is_in_service=self.health.is_in_service,
            in_flight=self.in_flight,
            limit=self.concurrency.limit,
            cost_usd=cost_usd(self.totals.usage, price),
            last_fault=self.last_fault,
            load=self.load,
        )


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The pool since it was opened."""

    requests: int
    answers: int
    errors: int
    """Requests that ended in an `ActorError`."""
    waiting: int
    """Requests for which no actor has room."""
    actors: tuple[ActorStats, ...]


_AFFINITY = 2
"""Requests more than the least loaded actor has, for which a prompt still goes where its beginning may be cached."""

_64_BITS = (1 << 64) - 1


def prefix_of(request: ChatRequest) -> int:
    """Return the digest of what `request` shares with others: its adapter, and all messages but the last."""
    shared = [request.adapter]
    for message in request.messages[:-1]:
        shared += (message.role, message.content)
    return digest("\0".join(shared))


def choose_actor(actors: Sequence[Member], prefix: int) -> Member:
    """Return the least loaded of `actors`; of those that are hardly more loaded, the one that `prefix` always prefers.

    The preference is rendezvous hashing: an actor that goes or comes changes it only for prompts that preferred it.
    """
    least = min(actor.in_flight for actor in actors)
    near = [actor for actor in actors if actor.in_flight <= least + _AFFINITY]
    return max(near, key=lambda actor: _mix(prefix ^ actor.salt))


def _mix(number: int) -> int:
    """Return 64 bits of which each depends on all of `number` (the finalizer of SplitMix64)."""
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _64_BITS
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _64_BITS
    return number ^ number >> 31


def full_jitter(tries: int, first_s: float, longest_s: float, chance: random.Random) -> float:
    """Return how long to wait after so many tries.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return chance.uniform(0.0, min(first_s * 2.0 ** min(tries - 1, 32), longest_s))
