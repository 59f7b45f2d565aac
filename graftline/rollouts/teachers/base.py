"""The `Teacher` port: propose the next step on a task.

A proposal, however poor, is a result; so are `InvalidAnswer`, an answer of a language model that holds no step, and
`NoProposal`, with its cause. An error is raised only when the teacher itself cannot answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.action import Action, PatternAction, RuleAction
from graftline.core.config import Config
from graftline.llm.base import Message, OutputTerms
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task


class FailedAttempt(BaseModel):
    """An action that was not proposed, because it failed where the teacher tried it, with what it was told."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    think: str = ""
    """What is said before the action."""
    action: Action
    feedback: str
    """What the critic answered to it."""


class Generation(BaseModel):
    """What a language model was asked for one step, and at what cost it answered."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    messages: tuple[Message, ...]
    """The whole chat, as it was sent."""
    prompt_digest: str
    """Of the templates, the settings and the examples that the chat was made from (`rollouts.teachers.prompt`)."""
    text: str
    """The answer, as it came."""
    reasoning: str = ""
    """What the model thought before it, where the server tells it apart."""
    outputs: OutputTerms | None = None
    """On what terms the answer was, as the fleet said when it was asked; None where it said nothing."""
    finish_reason: str
    model: str
    actor: str
    temperature: float
    seed: int | None
    """The one that was sent; None where the actor takes none."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cost_usd: float | None = None
    """None where the actor has no price."""
    latency_s: float
    tries: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """One step as a teacher would take it: its attempts first, in order, then what it thinks, then the action."""

    think: str
    action: PatternAction | RuleAction
    state_update: StateUpdate
    attempts: tuple[FailedAttempt, ...] = ()
    alternatives: tuple[PatternAction | RuleAction, ...] = ()
    """Other actions that would be right at this place, from literal to general."""
    generation: Generation | None = None
    """None where no language model was asked."""
    is_strict: bool = True
    """Whether the answer kept the format to the letter; one that did not was read all the same."""


@dataclass(frozen=True, slots=True)
class InvalidAnswer:
    """An answer of a language model in which there is no step."""

    reason: str
    """What is missing or wrong, said so that the model can mend it."""
    generation: Generation


@dataclass(frozen=True, slots=True)
class NoProposal:
    """Says that a teacher has no next step."""

    cause: str
    """`done` where the text counts as the target; else why there is none, as `codemod.induce.Unsolved` has it, or
    `no_gold` where nothing is known about the task."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A step that was taken before, in the same attempt."""

    text: str
    """The text before it."""
    answer: Proposal | InvalidAnswer
    feedback: str
    """What sandbox and critic said to it."""
    is_kept: bool
    """Whether the text went on from what it made; else it is as it was."""


class Teacher(Protocol):
    """Proposes steps."""

    @property
    def name(self) -> str:
        """What the teacher is called in trajectories and reports."""

    @property
    def uses_feedback(self) -> bool:
        """Whether feedback changes what it proposes; a failed action of one that does not ends the attempt."""

    def propose(
        self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1
    ) -> Proposal | InvalidAnswer | NoProposal:
        """Return the next step on `task`, whose text is now `text`.

        Args:
            task: What is asked.
            text: The text as it is.
            state: What the teacher carries from step to step.
            turns: The steps so far, oldest first.
            attempt: Which attempt at the task this is, from 1; a teacher that draws at random draws other steps in each.

        Raises:
            BoundaryError: the teacher cannot answer; nothing is known about the task.
        """


class InductionTeacherConfig(Config):
    """Rule induction."""

    kind: Literal["induction"] = "induction"


class MemoryTeacherConfig(Config):
    """The gold actions of the tasks."""

    kind: Literal["memory"] = "memory"


class OpenAITeacherConfig(Config):
    """The served language model of the port `chat_model`."""

    kind: Literal["openai"] = "openai"
    prompt: str = "small"
    """Name of the prompt in `configs/teacher_prompts.yaml`."""
    adapter: str = ""
    """Name of a loaded LoRA adapter; empty for the model itself."""


TeacherKind = Literal["induction", "memory", "openai"]
TeacherConfig = Annotated[
    InductionTeacherConfig | MemoryTeacherConfig | OpenAITeacherConfig, Field(discriminator="kind")
]
