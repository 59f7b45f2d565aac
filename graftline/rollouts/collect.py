"""The loop of one attempt: teacher, action, sandbox, grade, reward, step; together a trajectory.

A failed attempt is data, with its cause. A sandbox that fails is asked once more; if it fails again the attempt ends
with that error: a machine that is out of order must not write a data set of failures. Many attempts are
`rollouts.collect_many`'s.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from difflib import unified_diff
from time import perf_counter
from typing import Protocol

from pydantic import Field

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.canonical import similarity
from graftline.codemod.cost import is_general
from graftline.codemod.equality import Level, normalize_blank_lines
from graftline.codemod.grade import Grade, count_background_matches, grade, measure, parse_ok
from graftline.core.config import Config
from graftline.core.errors import DataError, SandboxError
from graftline.datasets.instruction_source import FIELDS
from graftline.rollouts.reward import BAD_FORMAT, Reward, RewardWeights, reward
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.task_tests import TestVerdict, name_failures, run_tests
from graftline.rollouts.teachers.base import InvalidAnswer, NoProposal, Proposal, Teacher, Turn
from graftline.rollouts.teachers.critic import Criticism, Finding, criticize
from graftline.rollouts.trajectory import ModelOutput, Prompt, SandboxOutcome, Timings, Trajectory, TrajectoryStep
from graftline.sandbox.base import Sandbox, SandboxResult, Verdict

logger = logging.getLogger(__name__)

_MAX_DIFF_CHARACTERS = 20_000
_OF_TASK = ("dataset", "language", "instruction", "license", "group", "origin", "tags", *FIELDS)
"""What a trajectory says of its task as the task has it."""


class Progress(Protocol):
    """Where the steps of an attempt are stored while it is under way."""

    def load(self) -> Sequence[TrajectoryStep]:
        """Return the steps that the attempt took before, from which it goes on."""

    def save(self, step: TrajectoryStep) -> None:
        """Store `step`."""


class RolloutConfig(Config):
    """How attempts are made."""

    max_steps: int = Field(default=12, ge=1, le=64)
    max_failed: int = Field(default=3, ge=1, le=64)
    """So many failed steps, one after the other, end an attempt of a teacher that uses feedback; one of any other ends
    with the first."""
    weights: RewardWeights = RewardWeights()


def collect(
    task: Task,
    teacher: Teacher,
    sandbox: Sandbox,
    config: RolloutConfig,
    number: int = 1,
    made_by: str = "",
    progress: Progress | None = None,
) -> Trajectory:
    """Return the attempt with this `number`, from 1, of `teacher` at `task`; `made_by` is stored with it.

    It goes on after the steps that `progress` has, for which nobody is asked again. A sandbox that fails is asked once more.

    Raises:
        SandboxError, BoundaryError: sandbox or teacher cannot answer; nothing is known about the attempt.
    """
    try:
        return _collect_once(task, teacher, sandbox, config, number, made_by, progress)
    except SandboxError as error:
        logger.warning("%s: the sandbox failed, once more: %s", task.id, error)
        return _collect_once(task, teacher, sandbox, config, number, made_by, progress)


def _collect_once(
    task: Task,
    teacher: Teacher,
    sandbox: Sandbox,
    config: RolloutConfig,
    number: int,
    made_by: str,
    progress: Progress | None,
) -> Trajectory:
    start = perf_counter()
    attempt = _Attempt(task, teacher, sandbox, config)
    for step in progress.load() if progress else ():
        attempt.add(step)
    ending = attempt.run(number, progress)
    result = _make_trajectory(task, teacher.name, attempt.steps, attempt.level, ending, attempt.cause, number, made_by)
    return result.with_timings(Timings(_milliseconds_since(start), tuple(attempt.answers_ms)))


def take_actions(
    task: Task,
    actions: Sequence[PatternAction | RuleAction],
    sandbox: Sandbox,
    weights: RewardWeights,
    name: str,
    number: int = 1,
) -> Trajectory:
    """Return the attempt of whoever is called `name` that takes all `actions`, one after the other.

    It goes on where a text in between is right: what counts is the last one, which tests judge, too. It ends early where an
    action makes no text. SandboxError where the sandbox failed.
    """
    steps, text, level, ending = list[TrajectoryStep](), task.before, Level.NONE, "no_action"
    for action in actions:
        is_last = len(steps) == len(actions) - 1
        judged = task if is_last else task.model_copy(update={"tests": None})
        step = grade_step(judged, text, State(), Proposal("", action, StateUpdate()), steps, sandbox, weights)
        assert step.sandbox_result is not None  # there is an action
        after, level = step.sandbox_result.after, step.level
        is_kept = after is not None and step.reward.value is not None
        steps.append(step.model_copy(update={"is_kept": is_kept}))
        ending = "done" if level.is_verified else "max_steps"
        if after is None or not is_kept:
            ending = step.reward.cause
            break
        text = after
    return _make_trajectory(task, name, steps, level, ending, "", number, "")


def _make_trajectory(
    task: Task, teacher: str, steps: Sequence[TrajectoryStep], level: Level, ending: str, cause: str, number: int, made_by: str
) -> Trajectory:  # fmt: skip
    return Trajectory(
        **{name: getattr(task, name) for name in _OF_TASK},
        task_id=task.id,
        task_digest=task.digest,
        attempt=number,
        made_by=made_by,
        teacher=teacher,
        steps=tuple(steps),
        level=level,
        ending=ending,
        failure="" if level.is_verified else cause or ending,
        reward=_reward_attempt(steps, ending),
    )


class _Attempt:
    """One attempt, as far as it has come; all of it follows from its steps."""

    def __init__(self, task: Task, teacher: Teacher, sandbox: Sandbox, config: RolloutConfig) -> None:
        self._task, self._teacher, self._sandbox, self._config = task, teacher, sandbox, config
        self._text, self._state, self._visited = task.before, State(), {task.before}
        self._turns = list[Turn]()
        self.steps, self.answers_ms = list[TrajectoryStep](), list[float]()
        self.level, self.cause = Level.NONE, ""

    def run(self, number: int, progress: Progress | None) -> str:
        """Take steps until there is a reason to end, and return it; `progress` gets each."""
        while not (ending := self._reason_to_end()):
            start = perf_counter()
            answer = self._teacher.propose(self._task, self._text, self._state, self._turns, number)
            self.answers_ms.append(_milliseconds_since(start))
            match answer:
                case NoProposal(cause=cause):
                    self.cause = cause
                    return "gave_up"
                case InvalidAnswer():
                    step = _invalid_step(self._task, self._text, self._state, answer, len(self.steps) + 1)
                case Proposal():
                    step = self._take(answer)
            self.add(step)
            if progress:
                progress.save(step)
        return ending

    def add(self, step: TrajectoryStep) -> None:
        """Go on from `step`, which was taken now or before."""
        self.steps.append(step)
        self._turns.append(Turn(self._text, step.answer, step.feedback, step.is_kept))
        if step.is_kept:
            assert step.sandbox_result is not None  # it made a text
            assert step.sandbox_result.after is not None
            self._text, self._state, self.level = step.sandbox_result.after, step.state_after, step.level
            self._visited.add(self._text)

    def _take(self, proposal: Proposal) -> TrajectoryStep:
        weights = self._config.weights
        step = grade_step(self._task, self._text, self._state, proposal, self.steps, self._sandbox, weights)
        result = step.sandbox_result
        assert result is not None  # there is an action
        criticism: Criticism | None = None
        is_known = step.reward.value is not None
        if self._teacher.uses_feedback and is_known and not step.level.is_verified:
            action, language = proposal.action, self._task.language
            criticism = criticize(action, self._text, language, self._sandbox, self._task.target)
        is_progress = criticism is None or criticism.finding in (Finding.INCOMPLETE, Finding.RIGHT)
        is_kept = is_known and result.after is not None and result.after not in self._visited and is_progress
        feedback = "\n".join(filter(None, (criticism.feedback, name_failures(step.failed_tests)))) if criticism else ""
        return step.model_copy(update={"is_kept": is_kept, "feedback": feedback})

    def _reason_to_end(self) -> str:
        """Return why the attempt ends with its last step; empty where it goes on."""
        if not self.steps:
            return ""
        step = self.steps[-1]
        if step.is_kept and step.level.is_verified:
            return "done"
        if not step.is_kept:
            verdict = None if step.sandbox_result is None else step.sandbox_result.verdict
            if step.reward.value is None:
                return step.reward.cause
            if not self._teacher.uses_feedback:
                return "bad_format" if verdict is None else "repeated_text" if verdict is Verdict.OK else str(verdict)
            latest = self.steps[-self._config.max_failed :]
            if len(latest) == self._config.max_failed and not any(step.is_kept for step in latest):
                return "max_failed"
        return "max_steps" if len(self.steps) >= self._config.max_steps else ""


def grade_step(
    task: Task,
    text: str,
    state: State,
    proposal: Proposal,
    earlier: Sequence[TrajectoryStep],
    sandbox: Sandbox,
    weights: RewardWeights,
) -> TrajectoryStep:
    """Return the step of `proposal`, applied to `text`, after the `earlier` ones; it does not say yet whether it is kept.

    Raises:
        SandboxError: the sandbox failed.
    """
    action = proposal.action
    [result] = sandbox.apply_many(text, task.language, [action])
    after = normalize_blank_lines(text, result)
    graded, tests = _grade_text(task, after), TestVerdict(False)
    if task.tests is not None and not graded.is_verified and after != text:
        [tests] = run_tests([(task.tests, after)], sandbox)
        graded = Grade(Level.TESTS, 1.0) if tests.passes else graded
    measures = measure(action, text, result, task.target, task.language, sandbox, own=task.before)
    if graded.level is Level.TESTS:
        # what differs from the target may be as right
        measures = replace(measures, false_positives=None, support=None)
    general = is_general(action)
    path = [step for step in earlier if step.is_kept]
    background_matches = [measures.background_matches, *(step.background_matches for step in path)]
    return TrajectoryStep(
        task_id=task.id,
        step=len(earlier) + 1,
        prompt=Prompt(instruction=task.instruction, text=text),
        state_before=state,
        model_output=ModelOutput(
            think=proposal.think,
            action=action,
            state_update=proposal.state_update,
            attempts=proposal.attempts,
            alternatives=proposal.alternatives,
            generation=proposal.generation,
        ),
        sandbox_result=_sandbox_outcome(text, result),
        is_kept=False,
        parse_ok=parse_ok(result.verdict),
        format_ok=True,
        format_strict=proposal.is_strict,
        level=graded.level,
        progress=graded.progress,
        **asdict(measures),
        general=general,
        support_pairs=None if measures.support is None else int(measures.support > 0),
        srl=similarity(action, task.gold_actions),
        failed_tests={**tests.failures},
        reward=Reward(value=None, cause=tests.cause)
        if tests.passes is None
        else reward(
            result.verdict,
            graded.level,
            graded.progress,
            general and all(step.general for step in path),
            weights,
            is_broad=graded.is_verified and _is_broad(task, background_matches, sandbox, weights),
            wrong_share=(measures.false_positives or 0) / max(1, len(result.matches)),
        ),
    )


def _invalid_step(task: Task, text: str, state: State, answer: InvalidAnswer, number: int) -> TrajectoryStep:
    """Return the step of an answer that holds none: the text stays as it is, and the answer is worth nothing."""
    graded = _grade_text(task, text)
    return TrajectoryStep(
        task_id=task.id,
        step=number,
        prompt=Prompt(instruction=task.instruction, text=text),
        state_before=state,
        model_output=ModelOutput(think="", action=None, state_update=StateUpdate(), generation=answer.generation),
        sandbox_result=None,
        feedback=answer.reason,
        is_kept=False,
        format_ok=False,
        format_strict=False,
        level=graded.level,
        progress=graded.progress,
        reward=Reward(value=0.0, cause=BAD_FORMAT),
    )


def _grade_text(task: Task, text: str) -> Grade:
    try:
        return grade(task.before, text, task.target, task.language)
    except DataError:  # the action made a text too long or too deep to be read
        return Grade(Level.NONE, 0.0)


def _is_broad(task: Task, matches: Sequence[float | None], sandbox: Sandbox, weights: RewardWeights) -> bool:
    """Return whether an action changes foreign code more often than the weights allow."""
    # what is not known is held against nobody
    most = max((count for count in matches if count is not None), default=0.0)
    if most <= weights.most_over_out:
        return False
    # an idiom that is to be replaced wherever it stands is no fault of who replaces it so
    allowed = [count_background_matches(gold, task.language, sandbox, task.before) for gold in task.gold_actions]
    if None in allowed:
        return False
    return most - max(filter(None, allowed), default=0.0) > weights.most_over_out


def _sandbox_outcome(text: str, result: SandboxResult) -> SandboxOutcome:
    after = None if result.after is None else normalize_blank_lines(text, result)
    lines = () if after is None else unified_diff(text.splitlines(), after.splitlines(), n=0, lineterm="")
    return SandboxOutcome(
        verdict=result.verdict,
        matches=len(result.matches),
        after=after,
        diff="\n".join(lines)[:_MAX_DIFF_CHARACTERS],
        error=result.error,
        isolation=f"{result.isolation.level}/{result.isolation.implementation}",
    )


def _reward_attempt(steps: Sequence[TrajectoryStep], ending: str) -> Reward:
    """Return the reward of the last step.

    Where a teacher that uses feedback was stopped, what came after the last text that was kept is no loss.
    """
    if not steps:
        return Reward(value=0.0, cause=ending)
    accepted = [step for step in steps if step.is_kept]
    return accepted[-1].reward if accepted and ending in ("max_failed", "max_steps") else steps[-1].reward


def _milliseconds_since(start: float) -> float:
    return round((perf_counter() - start) * 1000, 3)
