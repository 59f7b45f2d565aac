"""What was asked, answered, failed and paid, by actor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from graftline.llm.base import TokenUsage
from graftline.llm.fault import FaultKind
from graftline.llm.fleet import Price
from graftline.llm.load import Load

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class ActorStats:
    """One actor since the pool was opened."""

    name: str
    is_in_service: bool
    in_flight: int
    limit: int
    """Requests at a time that it is given at most, at this moment."""
    answers: int
    tries: int
    """Requests that were sent to it; all but `answers` and those in flight failed, or were cancelled."""
    faults: Mapping[FaultKind, int]
    ejections: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """Of `prompt_tokens`."""
    cost_usd: float | None
    """None where no price is configured."""
    last_said: str
    """Its last fault; empty where it had none."""
    load: Load | None
    """What it said last on `/metrics`; None where it says nothing."""


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


@dataclass(slots=True)
class Totals:
    """What is counted of one actor."""

    answers: int = 0
    tries: int = 0
    ejections: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    # all kinds from the start: another thread may read while this one counts
    faults: dict[FaultKind, int] = field(default_factory=lambda: dict.fromkeys(FaultKind, 0))

    def answered(self, usage: TokenUsage) -> None:
        """Count an answer."""
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
    return (fresh * price.prompt_usd + usage.cached * cached_usd + usage.completion * price.completion_usd) / _MILLION
