"""What a search for prompts knows while it goes on: what was asked, proposed and found, and why it ends.

Whoever walks through the prompts tells it (`gepa_search`); of that package there is nothing here.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graftline.core.errors import ActorError
from graftline.core.hashing import digest
from graftline.prompts.candidates import Candidate, PromptShape, digest_of, names_in
from graftline.prompts.journal import Journal
from graftline.prompts.proposals import Proposal, Proposer, Reflection, Wish
from graftline.prompts.rollouts import BudgetSpentError, EndedRollout, Rollouts
from graftline.prompts.settings import GepaTable

Tell = Callable[[str, Mapping[str, Any]], None]
_MOST_FAILED_PROPOSALS = 3


@dataclass(frozen=True, slots=True)
class Found:
    """A prompt of the archive."""

    texts: dict[str, str]
    parents: list[int]
    changed: list[str]
    """Parts in which it differs from its parent."""
    how: str
    scores: dict[int, float]
    """By seed of the front."""
    asked: int
    """Pairs of prompt and seed that had been asked about when it was found."""


@dataclass(slots=True)
class Search:
    """What a search came to."""

    found: list[Found] = field(default_factory=list)
    ending: str = ""
    """Why it ended."""
    error: str = ""
    """What it could not go on with; empty where it ended as it should."""
    counts: Counter[str] = field(default_factory=Counter)
    """Proposals by what became of them."""


class SearchState:
    """What is known of a search while it goes on, and what came of each proposal."""

    def __init__(
        self,
        shape: PromptShape,
        rollouts: Rollouts,
        proposer: Proposer,
        journal: Journal,
        gepa: GepaTable,
        reserve: int,
        stop: threading.Event,
        tell: Tell,
    ) -> None:
        self.shape, self.rollouts, self.proposer, self.gepa, self.tell = shape, rollouts, proposer, gepa, tell
        self._journal, self._reserve, self._stop = journal, reserve, stop
        self.search = Search()
        self.how: dict[str, str] = {}
        self.asked: set[tuple[str, int]] = set()
        self._seen = {digest_of(shape.initial)}
        self._wishes: Counter[str] = Counter()
        self._failed = 0
        self._since_best = 0
        self._known = {line["key"]: line for line in journal.lines() if line["kind"] == "proposal"}

    def affordable(self, most: int, size: int, n_front: int) -> int:
        """Return how many changes at once the budget reaches for; of pairs alone, so that it is the same when resumed."""
        if self.rollouts.budget is None:
            return most
        left = self.rollouts.budget - self._reserve - len(self.asked) - n_front
        return max(1, min(most, left // (2 * size)))

    def ended(self, pairs: Sequence[tuple[Candidate, int]]) -> dict[tuple[str, int], EndedRollout]:
        self.asked |= {(digest_of(candidate), seed) for candidate, seed in pairs}
        return self.rollouts.ended(pairs, self._reserve)

    def is_over(self, generation: int) -> bool:
        """Return whether no generation begins any more, where `generation` would be the next from 0; keep why."""
        population = self.gepa.population
        if self._stop.is_set():
            self.search.ending = "cancelled"
        elif self._since_best >= population.patience_generations:
            self.search.ending = f"{self._since_best} generations without a better prompt"
        elif generation >= population.num_generations:
            self.search.ending = f"{population.num_generations} generations"
        return bool(self.search.ending)

    def end_of_generation(self, is_better: bool) -> None:
        self._since_best = 0 if is_better else self._since_best + 1

    def proposed(self, candidate: Candidate, part: str, reflections: Sequence[Reflection]) -> dict[str, str]:
        """Return the changed part; nothing where there is no change that may be judged."""
        if self.search.ending:
            return {}
        made = self._proposal(candidate, part, reflections)
        if made is None:
            return {}
        child = {**candidate, part: made.text}
        if fault := self.shape.fault(child):
            return self._refused("refused", part, fault)
        if digest_of(child) in self._seen:
            return self._refused("known", part, "it was judged before")
        self._seen.add(digest_of(child))
        self.search.counts["judged"] += 1
        self.how[digest_of(child)] = made.how
        return {part: made.text}

    def _refused(self, kind: str, part: str, why: str) -> dict[str, str]:
        self.search.counts[kind] += 1
        self.tell("candidate.refused", {"part": part, "reason": why})
        return {}

    def _proposal(self, candidate: Candidate, part: str, reflections: Sequence[Reflection]) -> Proposal | None:
        of = digest([dict(candidate), part])
        number = self._wishes[of]
        self._wishes[of] += 1
        key = digest([of, number, [[one.seed, one.reward] for one in reflections]])
        if (known := self._known.get(key)) is not None:
            return Proposal(known["text"], known["how"], known["usd"], known["tokens"])
        names = [*sorted(names_in(self.shape.initial[part])), *sorted(self.shape.wildcards[part])]
        wish = Wish(part, candidate[part], reflections, names, number)
        try:
            made = self.rollouts.proposed(lambda: self.proposer.propose(wish))
        except BudgetSpentError as spent:
            # raised from here, `gepa` would take it for a failure of the model, and ask again
            self.search.ending = str(spent)
            return None
        except ActorError as error:
            self.search.counts["unanswered"] += 1
            self._failed += 1
            if self._failed >= _MOST_FAILED_PROPOSALS:
                self.search.ending = "failed"
                self.search.error = f"the proposer did not answer {self._failed} times in a row: {error}; resume"
            return None
        self._failed = 0
        self._journal.append(
            {"kind": "proposal", "key": key, "text": made.text, "how": made.how, "usd": made.usd, "tokens": made.tokens}
        )
        return made
