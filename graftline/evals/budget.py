"""What rollouts that are run from here may use: reserved before each, settled after it.

How much a rollout will use is taken to be the most that one used yet, so the first one runs alone. A rollout that does not
say what it used ends it all: what is not known cannot be kept within bounds. One that a machine lost may be charged as much as
the dearest instead.
"""

import asyncio
import math
from dataclasses import asdict, dataclass

from graftline.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EvalBudget:
    """What an evaluation may use; what is None is not bounded."""

    max_rollouts: int | None = None
    max_usd: float | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in sorted(asdict(self).items()):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and value > 0 and math.isfinite(value)):
                raise ConfigError(f"budget: {name} is {value!r}; expected more than 0, or None")


class Spending:
    """What is used, and what those at work may use still; of one event loop."""

    def __init__(self, budget: EvalBudget) -> None:
        self._budget = budget
        self._began = self._at_work = 0
        self._usd = self._most_usd = 0.0
        self._tokens = self._most_tokens = 0
        self._refusal = ""
        self._is_any_settled = False
        """Whether one that was not lost has said what it used."""
        self._changed = asyncio.Condition()

    async def reserve(self) -> str:
        """Return an empty text when another rollout may begin, else why none may any more; it waits where that is open."""
        async with self._changed:
            while not self._refusal and self._at_work and self._may_exceed():
                await self._changed.wait()
            self._refusal = self._refusal or self._why_spent()
            if not self._refusal:
                self._began += 1
                self._at_work += 1
            return self._refusal

    async def settle(self, usd: float | None, tokens: int | None, is_lost: bool = False) -> None:
        """Add what one used; of one that is lost, what is not known is taken to be the most that one used yet."""
        async with self._changed:
            self._at_work -= 1
            self._is_any_settled |= not is_lost
            if is_lost:
                usd = self._most_usd if usd is None else usd
                tokens = self._most_tokens if tokens is None else tokens
            self._usd += usd or 0.0
            self._most_usd = max(self._most_usd, usd or 0.0)
            self._tokens += tokens or 0
            self._most_tokens = max(self._most_tokens, tokens or 0)
            for name, used in (("max_usd", usd), ("max_tokens", tokens)):
                cap = getattr(self._budget, name)
                if cap is not None and used is None:
                    self._refusal = f"budget: a rollout did not say what it used, so {name} of {cap:g} cannot be kept"
            self._changed.notify_all()

    def _may_exceed(self) -> bool:
        """Return whether another one might use too much, while others are at work."""
        is_first = not self._is_any_settled and (self._budget.max_usd or self._budget.max_tokens) is not None
        return is_first or bool(self._why_spent())

    def _why_spent(self) -> str:
        budget, more = self._budget, self._at_work + 1
        if budget.max_rollouts is not None and self._began >= budget.max_rollouts:
            return f"budget: max_rollouts of {budget.max_rollouts} is used up"
        if budget.max_usd is not None and self._usd + more * self._most_usd > budget.max_usd:
            return f"budget: max_usd of {budget.max_usd:g} is used up"
        if budget.max_tokens is not None and self._tokens + more * self._most_tokens > budget.max_tokens:
            return f"budget: max_tokens of {budget.max_tokens} is used up"
        return ""
