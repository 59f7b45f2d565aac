"""What is stored of an attempt: its steps and what they add up to.

Four measures have shorter keys in files than names here: `over_in`, `over_out`, `neg_fail` and `mdl`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language
from graftline.codemod.equality import Level
from graftline.core.hashing import digest
from graftline.datasets.instruction_source import (
    AnswerableBy,
    InstructionSource,
    default_answerable,
    default_answerable_by,
    default_source,
)
from graftline.rollouts.reward import Reward
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.teachers.base import FailedAttempt, Generation, InvalidAnswer, Proposal
from graftline.sandbox.base import Verdict


class _Stored(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_by_name=True, serialize_by_alias=True
    )


class Prompt(_Stored):
    """The question to the teacher."""

    instruction: str
    text: str


class ModelOutput(_Stored):
    """The answer of the teacher."""

    think: str
    action: Action | None
    """None where the answer of a language model could not be read."""
    state_update: StateUpdate
    attempts: tuple[FailedAttempt, ...] = ()
    """Tried before the action, in order, and rejected."""
    alternatives: tuple[Action, ...] = ()
    """Other actions that would be right at this place, from literal to general, where the teacher knows some."""
    generation: Generation | None = None
    """What a language model was asked and answered; None where none was."""


class SandboxOutcome(_Stored):
    """What the sandbox answered."""

    verdict: Verdict
    matches: int
    after: str | None
    """The text after, with blank lines normalized."""
    diff: str
    """Unified, without context."""
    error: str
    isolation: str
    """Level and implementation, e.g. `compute/warm`."""


class TrajectoryStep(_Stored):
    """One turn; a measure is None where it cannot be told (`codemod.grade`)."""

    task_id: str
    step: int
    """From 1."""
    prompt: Prompt
    state_before: State
    model_output: ModelOutput
    sandbox_result: SandboxOutcome | None
    """None where there was no action."""
    feedback: str = ""
    """What a teacher that uses feedback was told of it."""
    is_kept: bool
    """Whether the text went on from what it made; else the next step starts from the same text."""
    parse_ok: bool | None = None
    """Whether ast-grep accepts the action; None where it never said."""
    format_ok: bool
    """Whether the answer could be read."""
    format_strict: bool
    """Whether the answer kept the format to the letter."""
    level: Level
    """Of the text after this step."""
    progress: float
    false_positives: int | None = Field(default=None, validation_alias="over_in", serialization_alias="over_in")
    background_matches: float | None = Field(default=None, validation_alias="over_out", serialization_alias="over_out")
    idempotent: bool | None = None
    negatives_changed: int | None = Field(default=None, validation_alias="neg_fail", serialization_alias="neg_fail")
    general: bool = False
    """Whether the action has a metavariable, so that it can match more than the text it was made for."""
    description_length: float | None = Field(default=None, validation_alias="mdl", serialization_alias="mdl")
    support: int | None = None
    """Places that it puts right."""
    support_pairs: int | None = None
    """Pairs of texts in which it puts something right: of a task, which has one, 1 or 0."""
    srl: float | None = None
    """Similarity to the gold action (`codemod.canonical`); None where the task has none. Never truth."""
    failed_tests: dict[str, str] = Field(default_factory=dict, exclude_if=lambda failures: not failures)
    """By the ids of the task's tests that fail with the text after this step, how; empty where none was run."""
    reward: Reward

    @property
    def answer(self) -> Proposal | InvalidAnswer:
        """The answer that the step was made from."""
        output = self.model_output
        if output.action is None:
            assert output.generation is not None  # only an answer of a language model has no action
            return InvalidAnswer(self.feedback, output.generation)
        return Proposal(
            think=output.think,
            action=output.action,
            state_update=output.state_update,
            attempts=output.attempts,
            alternatives=output.alternatives,
            generation=output.generation,
            is_strict=self.format_strict,
        )

    @property
    def state_after(self) -> State:
        """The state that the next step begins with."""
        return self.state_before.apply(self.model_output.state_update) if self.is_kept else self.state_before


@dataclass(frozen=True, slots=True)
class Timings:
    """How long an attempt took by the wall clock, which is no part of what it came to: neither stored nor compared."""

    attempt_ms: float = field(default=0.0, compare=False)
    """With the sandbox and all measures."""
    answers_ms: tuple[float, ...] = field(default=(), compare=False)
    """Of the teacher alone, for every answer, that by which it gives up included."""


class Trajectory(_Stored):
    """One attempt at one task."""

    schema_version: Literal[5] = 5
    """Before 5 tags said where the instruction comes from, and before 4 the key `license` was spelled `licence`; such attempts are
    read as well."""
    task_id: str
    task_digest: str
    """Of the task as it was attempted."""
    attempt: int = 1
    """From 1."""
    made_by: str = ""
    """Digest of the settings of the teacher and of what it was asked with; empty where the teacher has none."""
    dataset: str
    language: Language
    instruction: str
    license: str = Field(validation_alias=AliasChoices("license", "licence"))
    group: str
    origin: str
    tags: tuple[str, ...]
    instruction_source: InstructionSource = Field(default_factory=default_source)
    answerable: bool | None = Field(default_factory=default_answerable)
    """Whether the change can be done from the instruction and the text before; None where nobody has tried."""
    answerable_by: AnswerableBy | None = Field(default_factory=default_answerable_by)
    """How that was decided."""
    teacher: str
    steps: tuple[TrajectoryStep, ...]
    level: Level
    """Of the last text."""
    ending: str
    """`done`, `gave_up`, `max_steps`, `max_failed`, `repeated_text`, the verdict that ended it, or why tests say nothing."""
    failure: str
    """Class of failure: the cause for which the teacher gave up, or else the ending; empty where it is verified."""
    reward: Reward
    _timings: Timings = PrivateAttr(default_factory=Timings)

    @field_validator("schema_version", mode="before")
    @classmethod
    def _read_earlier_versions(cls, version: Any) -> Any:
        return 5 if version in (3, 4) else version

    @field_validator("tags")
    @classmethod
    def _spell_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(tag.replace("licence:", "license:") for tag in tags)

    @property
    def key(self) -> str:
        """What tells the attempt from all others; two trajectories of one key are the same attempt."""
        return attempt_key(self.task_digest, self.teacher, self.made_by, self.attempt)

    @property
    def is_verified(self) -> bool:
        """Whether the last text counts as the target; then every step of its path counts as verified."""
        return self.level.is_verified

    @property
    def path(self) -> tuple[TrajectoryStep, ...]:
        """The steps that led to the last text where it is the target, else all."""
        return tuple(step for step in self.steps if step.is_kept) if self.is_verified else self.steps

    @property
    def is_solved_in_one_step(self) -> bool:
        """Whether one action made the target: what one answer can say."""
        return self.is_verified and len(self.path) == 1

    @property
    def format_ok(self) -> bool:
        """Whether every answer of the path could be read."""
        return all(step.format_ok for step in self.path)

    @property
    def forbids_training(self) -> bool:
        """Whether the terms of an answer, as they were when it was asked for, forbid to train on it."""
        generations = (step.model_output.generation for step in self.steps)
        outputs = (generation.outputs for generation in generations if generation is not None)
        return any(terms.may_train is False for terms in outputs if terms is not None)

    @property
    def all_general(self) -> bool:
        """Whether every action of the path leaves something free; False without steps."""
        return bool(self.path) and all(step.general for step in self.path)

    @property
    def timings(self) -> Timings:
        """How long it took; zero where it was read from a file."""
        return self._timings

    def with_timings(self, timings: Timings) -> Self:
        """Return the same attempt with how long it took."""
        copy = self.model_copy()
        copy._timings = timings
        return copy


def attempt_key(task_digest: str, teacher: str, made_by: str, attempt: int) -> str:
    """Return the key of an attempt (see `Trajectory.key`)."""
    return digest([task_digest, teacher, made_by, attempt])


class AttemptTime(_Stored):
    """How long one attempt took, as the log has it."""

    task_id: str
    dataset: str
    language: Language
    teacher: str
    attempt_ms: float
    answers_ms: tuple[float, ...]

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Return how long `trajectory` took."""
        timings = trajectory.timings
        return cls(
            task_id=trajectory.task_id,
            dataset=trajectory.dataset,
            language=trajectory.language,
            teacher=trajectory.teacher,
            attempt_ms=timings.attempt_ms,
            answers_ms=timings.answers_ms,
        )


def tally(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """Return how many of `trajectories` there are, how many are verified, and how many reached which level."""
    levels = Counter(str(trajectory.level) for trajectory in trajectories)
    verified = [trajectory for trajectory in trajectories if trajectory.is_verified]
    return {
        "rows": len(trajectories),
        "verified": len(verified),
        "verified_steps": sum(len(trajectory.path) for trajectory in verified),
        "no_reward": sum(trajectory.reward.value is None for trajectory in trajectories),
        **{f"level.{level}": count for level, count in sorted(levels.items())},
    }
