"""The loop of one attempt: teacher, sandbox, grade, reward, state. Many attempts are `trajectories.journal`'s.

A failed attempt is data, with its cause. A sandbox that fails is asked once more; if it fails again the attempt ends
with that error: a machine that is out of order must not write a data set of failures.
"""

import logging
from collections.abc import Callable
from time import perf_counter

from pydantic import Field

from graftline.config import Config
from graftline.errors import SandboxError
from graftline.rules.equality import Level
from graftline.sandbox.base import Sandbox, Verdict
from graftline.state.state import State
from graftline.tasks.task import Task
from graftline.teachers.base import GaveUp, Proposal, Teacher, Turn, Unreadable
from graftline.teachers.critic import Criticism, Finding, criticise
from graftline.trajectories.graded_step import graded_step, unreadable_step
from graftline.trajectories.reward import SAYS_NOTHING, Reward, RewardWeights
from graftline.trajectories.step import Timings, Trajectory, TrajectoryStep

logger = logging.getLogger(__name__)

Remember = Callable[[State], None]

_ON_THE_WAY = (Finding.INCOMPLETE, Finding.RIGHT)


class Collecting(Config):
    """How attempts are made."""

    max_steps: int = Field(default=12, ge=1, le=64)
    max_failed: int = Field(default=3, ge=1, le=64)
    """So many failed steps, one after the other, end an attempt of a teacher that listens; one of any other ends with
    the first."""
    weights: RewardWeights = RewardWeights()


class _Attempt:
    """One attempt, as far as it has come."""

    def __init__(
        self, task: Task, teacher: Teacher, sandbox: Sandbox, collecting: Collecting, remember: Remember
    ) -> None:
        self._task, self._teacher, self._sandbox, self._collecting = task, teacher, sandbox, collecting
        self._remember = remember
        self.text, self._state, self._seen = task.before, State(), {task.before}
        self.steps, self._turns, self.answers_ms = list[TrajectoryStep](), list[Turn](), list[float]()
        self.level, self.cause = Level.NONE, ""

    def ending(self, number: int) -> str:
        """Take steps until there is a reason to end, and return it."""
        for _ in range(self._collecting.max_steps):
            asked = perf_counter()
            answer = self._teacher.propose(self._task, self.text, self._state, self._turns, number)
            self.answers_ms.append(_milliseconds_since(asked))
            match answer:
                case GaveUp(cause=cause):
                    self.cause = cause
                    return "gave_up"
                case Unreadable():
                    self._note(unreadable_step(self._task, self.text, self._state, answer, self.steps), answer)
                    ending = self._failed("bad_format")
                case Proposal():
                    ending = self._taken(answer)
            if ending:
                return ending
        return "max_steps"

    def _taken(self, proposal: Proposal) -> str:
        """Take the step of `proposal`; return why the attempt ends with it, empty where it goes on."""
        weights = self._collecting.weights
        step = graded_step(self._task, self.text, self._state, proposal, self.steps, self._sandbox, weights)
        outcome = step.sandbox_result
        assert outcome is not None  # there is an action
        is_told = self._teacher.listens and outcome.verdict not in SAYS_NOTHING and not step.level.is_verified
        criticism = self._criticism(proposal) if is_told else None
        if criticism:
            step = step.model_copy(update={"feedback": criticism.feedback})
        is_right = criticism is None or criticism.finding in _ON_THE_WAY
        if outcome.after is not None and outcome.after not in self._seen and is_right:
            self._note(step.model_copy(update={"is_kept": True}), proposal)
            self.text, self._state, self.level = outcome.after, self._state.merged(proposal.state_update), step.level
            self._seen.add(outcome.after)
            self._remember(self._state)
            return "done" if step.level.is_verified else ""
        self._note(step, proposal)
        if outcome.verdict in SAYS_NOTHING:
            return str(outcome.verdict)
        return self._failed("repeated_text" if outcome.verdict is Verdict.OK else str(outcome.verdict))

    def _criticism(self, proposal: Proposal) -> Criticism:
        return criticise(proposal.action, self.text, self._task.language, self._sandbox, self._task.wanted)

    def _note(self, step: TrajectoryStep, answer: Proposal | Unreadable) -> None:
        self.steps.append(step)
        self._turns.append(Turn(self.text, answer, step.feedback, step.is_kept))

    def _failed(self, ending: str) -> str:
        """Return why the attempt ends with a failed step; empty where the teacher may try once more."""
        if not self._teacher.listens:
            return ending
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
    remember: Remember = lambda state: None,
) -> Trajectory:
    """Return the attempt with this `number`, from 1, of `teacher` at `task`; `made_by` is kept with it.

    `remember` is called with the state an attempt begins with, and with that after every step that is kept.

    Raises:
        SandboxError, BoundaryError: sandbox or teacher cannot answer; nothing is known about the attempt.
    """
    started = perf_counter()
    remember(State())
    tried = _Attempt(task, teacher, sandbox, collecting, remember)
    ending = tried.ending(number)
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
    remember: Remember = lambda state: None,
) -> Trajectory:
    """As `collect`, but a sandbox that fails is asked once more."""
    try:
        return collect(task, teacher, sandbox, collecting, number, made_by, remember)
    except SandboxError as error:
        logger.warning("%s: the sandbox failed, once more: %s", task.id, error)
        return collect(task, teacher, sandbox, collecting, number, made_by, remember)


def _reward(steps: list[TrajectoryStep], ending: str) -> Reward:
    """Return the reward of the last step; of one that listens, what came after the last text that was kept is no loss."""
    if not steps:
        return Reward(value=0.0, cause=ending)
    kept = [step for step in steps if step.is_kept]
    is_told = ending in ("max_failed", "max_steps") and kept
    return kept[-1].reward if is_told else steps[-1].reward


def _milliseconds_since(started: float) -> float:
    return round((perf_counter() - started) * 1000, 3)
