"""What contestants make of questions, before it is graded.

An answer, however poor, is `Said`; that there is none, because a machine failed, is `Failed`, of which nothing is known.
"""

from collections.abc import Generator
from dataclasses import dataclass

from graftline.evals.cases import Question
from graftline.rollouts.step import Trajectory
from graftline.rollouts.teachers.answer_schema import AnswerFormat


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer took; None is not known, and is not 0."""

    tokens: int | None = None
    """Of question and answer."""
    cost_usd: float | None = None
    latency_s: float | None = None
    """From the question to the answer, the time it waited for others included."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, as it came."""

    question: Question
    text: str
    answer_format: AnswerFormat
    cost: Cost = Cost()


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt of a teacher, which is graded as it is made."""

    question: Question
    trajectory: Trajectory
    cost: Cost = Cost()


@dataclass(frozen=True, slots=True)
class NotAsked:
    """A question that the contestant cannot be asked, which is its own fault: nothing was gained."""

    question: Question
    cause: str
    cost: Cost = Cost(0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Failed:
    """Nobody answered."""

    question: Question
    error: str


Reply = Said | Tried | NotAsked | Failed

Replies = Generator[Reply, None, None]
"""To be closed by whoever needs no more of them."""
