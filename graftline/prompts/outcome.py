"""Results of an optimization: the prompts that were found, where each comes from, its rewards, and how far a job is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from graftline.prompts.candidates import gain, mean


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
        """Whether `best_score` and `gain` are of seeds that had no part in the choice; of any others they are too high."""
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
        key = "test" if best.test else "validation" if best.validation else "scores"
        return gain(getattr(best, key), getattr(self.prompts[0], key))

    @property
    def remark(self) -> str:
        """What has to be said of an outcome that succeeded; empty where there is nothing."""
        if not self.not_judged or self.error or self.is_cancelled:
            return ""
        return f"the best prompt was not judged on seeds that had no part in its choice: {self.not_judged}"

    def result_fields(self) -> dict[str, Any]:
        """Return the fields of a `PromptLearningResult` that say what was found."""
        best = self.best_prompt
        if best is None:
            return {}
        return {"best_score": self.front_score, "mean_reward": self.best_score, "best_prompt": best.texts}

    def summary(self) -> Mapping[str, Any]:
        """Return the metrics, without the prompts."""
        difference, interval, n_seeds = self.gain or (None, None, 0)
        return {
            "proposer": self.proposer,
            "ending": self.ending,
            "error": self.error,
            "prompts": len(self.prompts),
            "front": self.front,
            "best": self.best,
            "best_score": self.best_score,
            "gain": difference,
            "gain_interval": interval,
            "seeds_compared": n_seeds,
            "judged_on": "seeds that had no part in the choice" if self.is_held_out else "chosen on these seeds",
            "not_judged": self.not_judged,
            "proposals": self.proposals,
            "rollouts": self.rollouts,
            "usd": self.usd,
            "tokens": self.tokens,
        }


class PromptLearningStatus(StrEnum):
    """Of a job."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    COMPLETED = "completed"
    """The same as `succeeded`, of services that call it so."""
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""
        return self not in (self.PENDING, self.QUEUED, self.RUNNING)


@dataclass(frozen=True, slots=True)
class PromptLearningResult:
    """A job, as far as it is. A score of 0.0 is a number; None is that nothing is known."""

    job_id: str
    status: PromptLearningStatus
    best_score: float | None = None
    """Of the best prompt, over the seeds that all of them are compared on."""
    mean_reward: float | None = None
    """Of the best prompt, over the seeds that it was judged on; its score where the service says no more."""
    best_prompt: Any = None
    """Text by part."""
    error: str | None = None
    """Why it failed; of one that succeeded, why its best prompt was not judged on seeds that had no part in the choice."""
    num_completed: int = 0
    """Rollouts so far."""
    num_total: int = 0
    """Rollouts at most; 0 where nothing bounds them."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether there is a best prompt."""
        return self.status in (PromptLearningStatus.SUCCEEDED, PromptLearningStatus.COMPLETED)

    @property
    def failed(self) -> bool:
        """Whether it ended without one."""
        return self.status is PromptLearningStatus.FAILED

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""
        return self.status.is_terminal
