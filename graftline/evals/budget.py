"""What the seeds of an evaluation that is run from here may use: reserved before each, settled after it.

How much a rollout will use is taken to be the most that one used yet, so the first one runs alone. A rollout that does not
say what it used ends it all: what is not known cannot be kept within bounds. One that a machine lost may be charged as much as
the dearest instead.
"""

import asyncio

from graftline.evals.settings import EvalBudget


class Spending:
    """What is used, and what those at work may use still; of one event loop."""

    def __init__(self, budget: EvalBudget) -> None:
        self._budget = budget
        self._began = self._at_work = 0
        self._usd = self._most_usd = 0.0
        self._tokens = self._most_tokens = 0
        self._refusal = ""
        self._has_told = False
        """Whether one has said what it used."""
        self._changed = asyncio.Condition()

    async def reserve(self) -> str:
        """Return an empty text when another rollout may begin, else why none may any more; it waits where that is open."""
        async with self._changed:
            while not self._refusal and self._at_work and self._is_over():
                await self._changed.wait()
            if not self._refusal:
                self._refusal = self._why_over()
            if not self._refusal:
                self._began += 1
                self._at_work += 1
            return self._refusal

    async def settle(self, usd: float | None, tokens: int | None, is_lost: bool = False) -> None:
        """Say what one used; of one that is lost, what is not known is taken to be the most that one used yet."""
        async with self._changed:
            self._at_work -= 1
            self._has_told |= not is_lost
            if is_lost:
                usd = self._most_usd if usd is None else usd
                tokens = self._most_tokens if tokens is None else tokens
            self._usd += usd or 0.0
            self._most_usd = max(self._most_usd, usd or 0.0)
            self._tokens += tokens or 0
            self._most_tokens = max(self._most_tokens, tokens or 0)
            for name, cap, used in (
                ("max_usd", self._budget.max_usd, usd),
                ("max_tokens", self._budget.max_tokens, tokens),
            ):
                if cap is not None and used is None:
                    self._refusal = f"budget: a rollout did not say what it used, so {name} of {cap:g} cannot be kept"
            self._changed.notify_all()

    def _is_over(self) -> bool:
        """Return whether another one might use too much, while others are at work."""
        is_first = not self._has_told and (self._budget.max_usd or self._budget.max_tokens) is not None
        return is_first or bool(self._why_over())

    def _why_over(self) -> str:
        budget, more = self._budget, self._at_work + 1
        if budget.max_rollouts is not None and self._began >= budget.max_rollouts:
            return f"budget: max_rollouts of {budget.max_rollouts} is used up"
        if budget.max_usd is not None and self._usd + more * self._most_usd > budget.max_usd:
            return f"budget: max_usd of {budget.max_usd:g} is used up"
        if budget.max_tokens is not None and self._tokens + more * self._most_tokens > budget.max_tokens:
            return f"budget: max_tokens of {budget.max_tokens} is used up"
        return ""
