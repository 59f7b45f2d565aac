"""The loop of one attempt: teacher, sandbox, grade, reward, state. Many attempts are `trajectories.journal`'s.

A failed attempt is data, with its cause. A sandbox that fails is asked once more; if it fails again the attempt ends
with that error: a machine that is out of order must not write a data set of failures.
"""

import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

from pydantic import Field

from graftline.codemod.equality import Level
from graftline.core.config import Config
from graftline.core.errors import SandboxError
from graftline.rollouts.graded_step import answer_of, graded_step, unreadable_step
from graftline.rollouts.reward import SAYS_NOTHING, Reward, RewardWeights
from graftline.rollouts.state.state import State
from graftline.rollouts.step import Timings, Trajectory, TrajectoryStep
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import GaveUp, Proposal, Teacher, Turn, Unreadable
from graftline.rollouts.teachers.critic import Criticism, Finding, criticise
from graftline.sandbox.base import Sandbox, Verdict

logger = logging.getLogger(__name__)


class Progress(Protocol):
    """Where the steps of an attempt are kept while it is under way."""

    def load(self) -> Sequence[TrajectoryStep]:
        """Return the steps that the attempt took before, from which it goes on."""

    def save(self, step: TrajectoryStep) -> None:
        """Keep `step`."""


class NoProgress:
    """Keeps nothing: every attempt begins anew."""

    def load(self) -> Sequence[TrajectoryStep]:
        return ()

    def save(self, step: TrajectoryStep) -> None:
        pass


NO_PROGRESS = NoProgress()

_ON_THE_WAY = (Finding.INCOMPLETE, Finding.RIGHT)


class Collecting(Config):
    """How attempts are made."""

    max_steps: int = Field(default=12, ge=1, le=64)
    max_failed: int = Field(default=3, ge=1, le=64)
    """So many failed steps, one after the other, end an attempt of a teacher that listens; one of any other ends with
    the first."""
    weights: RewardWeights = RewardWeights()


class _Attempt:
    """One attempt, as far as it has come; all of it follows from its steps."""

    def __init__(self, task: Task, teacher: Teacher, sandbox: Sandbox, collecting: Collecting) -> None:
        self._task, self._teacher, self._sandbox, self._collecting = task, teacher, sandbox, collecting
        self.text, self._state, self._seen = task.before, State(), {task.before}
        self.steps, self._turns, self.answers_ms = list[TrajectoryStep](), list[Turn](), list[float]()
        self.level, self.cause = Level.NONE, ""

    def run(self, number: int, save: Callable[[TrajectoryStep], None]) -> str:
        """Take steps until there is a reason to end, and return it; `save` is called with each."""
        while not (ending := self._reason_to_end()):
            asked = perf_counter()
            answer = self._teacher.propose(self._task, self.text, self._state, self._turns, number)
            self.answers_ms.append(_milliseconds_since(asked))
            match answer:
                case GaveUp(cause=cause):
                    self.cause = cause
                    return "gave_up"
                case Unreadable():
                    step = unreadable_step(self._task, self.text, self._state, answer, self.steps)
                case Proposal():
                    step = self._step(answer)
            self.add(step)
            save(step)
        return ending

    def add(self, step: TrajectoryStep) -> None:
        """Go on from `step`, which was taken now or before."""
        self.steps.append(step)
        self._turns.append(Turn(self.text, answer_of(step), step.feedback, step.is_kept))
        if step.is_kept:
            outcome = step.sandbox_result
            assert outcome is not None  # it made a text
            assert outcome.after is not None
            self.text, self._state, self.level = outcome.after, step.state_after, step.level
            self._seen.add(self.text)

    def _step(self, proposal: Proposal) -> TrajectoryStep:
        weights = self._collecting.weights
        step = graded_step(self._task, self.text, self._state, proposal, self.steps, self._sandbox, weights)
        outcome = step.sandbox_result
        assert outcome is not None  # there is an action
        is_told = self._teacher.listens and outcome.verdict not in SAYS_NOTHING and not step.level.is_verified
        criticism = self._criticism(proposal) if is_told else None
        is_right = criticism is None or criticism.finding in _ON_THE_WAY
        is_kept = outcome.after is not None and outcome.after not in self._seen and is_right
        return step.model_copy(update={"is_kept": is_kept, "feedback": criticism.feedback if criticism else ""})

    def _criticism(self, proposal: Proposal) -> Criticism:
        return criticise(proposal.action, self.text, self._task.language, self._sandbox, self._task.wanted)

    def _reason_to_end(self) -> str:
        """Return why the attempt ends with its last step; empty where it goes on."""
        if not self.steps:
            return ""
        step = self.steps[-1]
        if step.is_kept and step.level.is_verified:
            return "done"
        if not step.is_kept and (ending := self._failed(step)):
            return ending
        return "max_steps" if len(self.steps) >= self._collecting.max_steps else ""

    def _failed(self, step: TrajectoryStep) -> str:
        """Return why the attempt ends with a failed step; empty where the teacher may try once more."""
        verdict = None if step.sandbox_result is None else step.sandbox_result.verdict
        if verdict in SAYS_NOTHING:
            return str(verdict)
        if not self._teacher.listens:
            return "bad_format" if verdict is None else "repeated_text" if verdict is Verdict.OK else str(verdict)
        latest = self.steps[-self._collecting.max_failed :]
        is_over = len(latest) == self._collecting.max_failed and not any(step.is_kept for step in latest)
        return "max_failed" if is_over else ""


def collect(
    task: Task,
    teacher: Teacher,
    sandbox: Sandbox,
    collecting: Collecting,
    number: int = 1,
    made_by: str = "",
    progress: Progress = NO_PROGRESS,
) -> Trajectory:
    """Return the attempt with this `number`, from 1, of `teacher` at `task`; `made_by` is kept with it.

    It goes on after the steps that `progress` has, for which nobody is asked again.

    Raises:
        SandboxError, BoundaryError: sandbox or teacher cannot answer; nothing is known about the attempt.
    """
    started = perf_counter()
    tried = _Attempt(task, teacher, sandbox, collecting)
    for step in progress.load():
        tried.add(step)
    ending = tried.run(number, progress.save)
    trajectory = Trajectory(
        task_id=task.id,
        task_digest=task.digest,
        attempt=number,
        made_by=made_by,
        dataset=task.dataset,
        language=task.language,
        instruction=task.instruction,
        licence=task.licence,
        group=task.group,
        origin=task.origin,
        tags=task.tags,
        teacher=teacher.name,
        steps=tuple(tried.steps),
        level=tried.level,
        ending=ending,
        failure="" if tried.level.is_verified else tried.cause or ending,
        reward=_reward(tried.steps, ending),
    )
    return trajectory.timed(Timings(_milliseconds_since(started), tuple(tried.answers_ms)))


def attempt(
    task: Task,
    teacher: Teacher,
    sandbox: Sandbox,
    collecting: Collecting,
    number: int = 1,
    made_by: str = "",
    progress: Progress = NO_PROGRESS,
) -> Trajectory:
    """As `collect`, but a sandbox that fails is asked once more."""
    try:
        return collect(task, teacher, sandbox, collecting, number, made_by, progress)
    except SandboxError as error:
        logger.warning("%s: the sandbox failed, once more: %s", task.id, error)
        return collect(task, teacher, sandbox, collecting, number, made_by, progress)


def _reward(steps: list[TrajectoryStep], ending: str) -> Reward:
    """Return the reward of the last step; of one that listens, what came after the last text that was kept is no loss."""
    if not steps:
        return Reward(value=0.0, cause=ending)
    kept = [step for step in steps if step.is_kept]
    is_told = ending in ("max_failed", "max_steps") and kept
    return kept[-1].reward if is_told else steps[-1].reward


def _milliseconds_since(started: float) -> float:
    return round((perf_counter() - started) * 1000, 3)
