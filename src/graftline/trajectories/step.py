"""What is stored of an attempt: its steps and what they add up to."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from graftline.actions.action import Action
from graftline.actions.astgrep import Language
from graftline.rules.equality import Level
from graftline.sandbox.base import Verdict
from graftline.state.state import State, StateUpdate
from graftline.teachers.base import Attempt
from graftline.trajectories.reward import Reward


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Prompt(_Stored):
    """What the teacher was asked."""

    instruction: str
    text: str


class ModelOutput(_Stored):
    """What the teacher said."""

    think: str
    action: Action
    state_update: StateUpdate
    attempts: tuple[Attempt, ...] = ()


class SandboxOutcome(_Stored):
    """What the sandbox answered."""

    verdict: Verdict
    matches: int
    after: str | None
    diff: str
    """Unified, without context."""
    error: str
    isolation: str
    """Level and implementation, e.g. `compute/warm`."""


class TrajectoryStep(_Stored):
    """One turn."""

    task_id: str
    step: int
    """From 1."""
    prompt: Prompt
    state_before: State
    model_output: ModelOutput
    sandbox_result: SandboxOutcome
    level: Level
    """Of the text after this step."""
    progress: float
    is_general: bool
    reward: Reward


class Trajectory(_Stored):
    """One attempt at one task."""

    schema_version: Literal[1] = 1
    task_id: str
    dataset: str
    language: Language
    instruction: str
    licence: str
    group: str
    origin: str
    tags: tuple[str, ...]
    teacher: str
    steps: tuple[TrajectoryStep, ...]
    level: Level
    """Of the last text."""
    ending: str
    """`done`, `gave_up`, `max_steps`, `repeated_text`, or the verdict that ended it."""
    reward: Reward

    @property
    def is_verified(self) -> bool:
        """Whether the last text counts as the wanted one; then every step of it counts as verified."""
        return self.level.is_verified


def tally(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """Return how many of `trajectories` there are, how many are verified, and how many reached which level."""
    levels = Counter(str(trajectory.level) for trajectory in trajectories)
    verified_ones = [trajectory for trajectory in trajectories if trajectory.is_verified]
    return {
        "rows": len(trajectories),
        "verified": len(verified_ones),
        "verified_steps": sum(len(trajectory.steps) for trajectory in verified_ones),
        "no_reward": sum(trajectory.reward.value is None for trajectory in trajectories),
        **{f"level.{level}": count for level, count in sorted(levels.items())},
    }
