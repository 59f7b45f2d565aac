"""One attempt in an evaluation: the question, what a solver made of it, and what that is worth.

An answer, however poor, is an `Answered`; where there is none because a machine failed, it is `Failed`, and nothing is known.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language
from graftline.codemod.change_places import ShownPlace
from graftline.codemod.equality import Level
from graftline.codemod.place_score import PlaceScore
from graftline.evals.cases import Case
from graftline.evals.place_metrics import is_of_use
from graftline.rollouts.teachers.answer import AnswerFormat
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.base import Verdict


@dataclass(frozen=True, slots=True)
class Question:
    """An attempt that is to be made."""

    case: Case
    attempt: int
    """From 1."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer took; None is not known, and is not 0."""

    tokens: int | None = None
    """Of question and answer."""
    cost_usd: float | None = None
    latency_s: float | None = None
    """From the question to the answer, the time it waited for others included."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, as it came."""

    question: Question
    text: str
    answer_format: AnswerFormat
    cost: Cost = Cost()


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt of a teacher, which is graded as it is made."""

    question: Question
    trajectory: Trajectory
    cost: Cost = Cost()


@dataclass(frozen=True, slots=True)
class Produced:
    """Texts that an attempt at a change of a repository came to."""

    question: Question
    texts: Mapping[str, str]
    """By path; files that are not in it stay as they were."""
    shown: tuple[ShownPlace, ...] = ()
    """Places of the change that the solver was shown; they do not count."""
    actions: tuple[Action, ...] = ()
    """What makes the texts, where that is rules."""
    cost: Cost = Cost()


@dataclass(frozen=True, slots=True)
class Unaskable:
    """A question that the solver cannot be asked, which is its own fault: nothing was gained."""

    question: Question
    cause: str
    cost: Cost = Cost(0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Failed:
    """Nobody answered."""

    question: Question
    error: str
    cost: Cost = Cost()


Reply = Answered | Attempted | Produced | Unaskable | Failed
Replies = Generator[Reply, None, None]
"""To be closed by whoever needs no more of them."""


class Attempt(BaseModel):
    """One answer of one solver to one task, and what it is worth; None is not known, and is not 0."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    # what version 0.1.0 stored calls it by another name
    solver: str = Field(validation_alias=AliasChoices("solver", "contestant"))
    """Name of the solver."""
    task_id: str
    language: Language
    edit_class: str
    """See `Case`."""
    attempt: int
    """From 1."""
    text: str = ""
    """The answer, as it came; empty of a teacher that asks no model."""
    actions: tuple[Action, ...] = ()
    """What it was read as; of a teacher all its steps."""
    after: str | None = None
    """The text that came out; None where nothing was applied."""
    reward: float | None = Field(ge=0, le=1)
    cause: str
    """Why the reward is what it is (`rollouts.reward`); without a reward, what failed."""
    verdict: Verdict | None = None
    """The sandbox's, of the last action; None where there was none."""
    level: Level = Level.NONE
    """How near the text that came out is to the target."""
    over_application: bool | None = None
    """Whether it changed something that must stay; None where no action was applied."""
    right_on_unseen: bool | None = None
    """Whether it is right, and right on the held-out example as well; None where the task has none."""
    places: PlaceScore | None = Field(default=None, exclude_if=lambda places: places is None)
    """Of a change of a whole repository, how many places came out."""
    effect: str = Field(default="", exclude_if=lambda effect: not effect)
    """Digest of what it changed, the same for attempts that do the same; empty where that is nothing."""
    tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    is_infra: bool = False
    """Whether a machine failed, so that nothing is known."""

    @property
    def is_verified(self) -> bool:
        """Whether the text that came out counts as the target; of a repository, whether recall and precision are 0.9 or more."""
        if self.places is not None:
            return bool(self.reward) and is_of_use(self.places)
        return self.level.is_verified
