"""What an optimization came to: the prompts that were found, where each comes from, what each is worth, and on which seeds."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from graftline.prompts.comparison import gain, mean


class JudgedPrompt(BaseModel):
    """A prompt of the archive."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    number: int
    """From 0, which is the one that was begun with."""
    digest: str
    texts: dict[str, str]
    """By part."""
    parents: list[int]
    changed: list[str]
    """Parts in which it differs from its parent."""
    how: str
    """What changed it."""
    scores: dict[int, float]
    """Reward by seed of the front; one that nothing is known of is not there."""
    validation: dict[int, float] = {}
    """The same of the validation seeds; empty where it was not judged on them."""
    test: dict[int, float] = {}
    """The same of the test pool."""
    asked: int
    """Pairs of prompt and seed that had been asked about when it was found."""


class Outcome(BaseModel):
    """The whole."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    proposer: str
    ending: str
    """Why it ended."""
    error: str = ""
    """What it could not go on with; it may be resumed."""
    is_cancelled: bool = False
    best: int
    """Number of the best prompt."""
    chosen_on: Literal["front", "validation"] = "front"
    """Seeds by which it is the best one; the validation seeds where a test pool judges what they choose."""
    not_judged: str = ""
    """Why the seeds that are kept to judge it did not; empty where they did, or where there are none."""
    prompts: list[JudgedPrompt]
    best_by_seed: dict[int, list[int]]
    """For every seed of the front, the prompts with the highest reward there."""
    proposals: dict[str, int]
    """How many were judged, refused, known before, not better, unanswered."""
    rollouts: int
    """Each try for itself."""
    usd: float
    tokens: int

    @property
    def best_prompt(self) -> JudgedPrompt | None:
        """None where none was judged."""
        return self.prompts[self.best] if self.prompts else None

    @property
    def front(self) -> list[int]:
        """The prompts that are the best somewhere."""
        return sorted({number for numbers in self.best_by_seed.values() for number in numbers})

    @property
    def is_held_out(self) -> bool:
        """Whether `best_score` and `gain` are of seeds that had no part in the choice; of others they are too high."""
        best = self.best_prompt
        return best is not None and bool(best.test or (self.chosen_on == "front" and best.validation))

    @property
    def best_score(self) -> float | None:
        """Mean of the best prompt on the seeds that it was judged on."""
        best = self.best_prompt
        return None if best is None else mean(best.test or best.validation or best.scores)

    @property
    def front_score(self) -> float | None:
        """Mean of the best prompt on the seeds that all are compared on."""
        best = self.best_prompt
        return None if best is None else mean(best.scores)

    @property
    def gain(self) -> tuple[float, tuple[float, float] | None, int] | None:
        """Mean difference of the best prompt to the first one, its 95 % interval, and the number of seeds of both."""
        best = self.best_prompt
        if best is None:
            return None
        first = self.prompts[0]
        if best.test:
            return gain(best.test, first.test)
        return gain(best.validation, first.validation) if best.validation else gain(best.scores, first.scores)

    def summary(self) -> Mapping[str, Any]:
        """Return the figures, without the prompts."""
        found = self.gain
        return {
            "proposer": self.proposer,
            "ending": self.ending,
            "error": self.error,
            "prompts": len(self.prompts),
            "front": self.front,
            "best": self.best,
            "best_score": self.best_score,
            "gain": None if found is None else found[0],
            "gain_interval": None if found is None else found[1],
            "seeds_compared": 0 if found is None else found[2],
            "judged_on": "seeds that had no part in the choice" if self.is_held_out else "chosen on these seeds",
            "not_judged": self.not_judged,
            "proposals": self.proposals,
            "rollouts": self.rollouts,
            "usd": self.usd,
            "tokens": self.tokens,
        }
