"""The loop of one attempt: teacher, sandbox, grade, reward, state. Many attempts are `trajectories.journal`'s.

A failed attempt is data, with its cause. A sandbox that fails is asked once more; if it fails again the attempt ends
with that error: a machine that is out of order must not write a data set of failures.
"""

import logging
from collections.abc import Callable, Sequence
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
from graftline.rollouts.reward import BAD_FORMAT, SAYS_NOTHING, Reward, RewardWeights, reward
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import InvalidAnswer, NoProposal, Proposal, Teacher, Turn
from graftline.rollouts.teachers.critic import Criticism, Finding, criticize
from graftline.rollouts.trajectory import ModelOutput, Prompt, SandboxOutcome, Timings, Trajectory, TrajectoryStep
from graftline.sandbox.base import Sandbox, SandboxResult, Verdict

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


class RolloutConfig(Config):
    """How attempts are made."""

    max_steps: int = Field(default=12, ge=1, le=64)
    max_failed: int = Field(default=3, ge=1, le=64)
    """So many failed steps, one after the other, end an attempt of a teacher that listens; one of any other ends with
    the first."""
    weights: RewardWeights = RewardWeights()


class _Attempt:
    """One attempt, as far as it has come; all of it follows from its steps."""

    def __init__(self, task: Task, teacher: Teacher, sandbox: Sandbox, collecting: RolloutConfig) -> None:
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
                case NoProposal(cause=cause):
                    self.cause = cause
                    return "gave_up"
                case InvalidAnswer():
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
        step = grade_step(self._task, self.text, self._state, proposal, self.steps, self._sandbox, weights)
        outcome = step.sandbox_result
        assert outcome is not None  # there is an action
        is_told = self._teacher.uses_feedback and outcome.verdict not in SAYS_NOTHING and not step.level.is_verified
        criticism = self._criticism(proposal) if is_told else None
        is_right = criticism is None or criticism.finding in _ON_THE_WAY
        is_kept = outcome.after is not None and outcome.after not in self._seen and is_right
        return step.model_copy(update={"is_kept": is_kept, "feedback": criticism.feedback if criticism else ""})

    def _criticism(self, proposal: Proposal) -> Criticism:
        return criticize(proposal.action, self.text, self._task.language, self._sandbox, self._task.target)

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
        if not self._teacher.uses_feedback:
            return "bad_format" if verdict is None else "repeated_text" if verdict is Verdict.OK else str(verdict)
        latest = self.steps[-self._collecting.max_failed :]
        is_over = len(latest) == self._collecting.max_failed and not any(step.is_kept for step in latest)
        return "max_failed" if is_over else ""


def collect(
    task: Task,
    teacher: Teacher,
    sandbox: Sandbox,
    collecting: RolloutConfig,
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


def collect_with_retry(
    task: Task,
    teacher: Teacher,
    sandbox: Sandbox,
    collecting: RolloutConfig,
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


_MAX_DIFF_CHARACTERS = 20_000


def grade_step(
    task: Task,
    text: str,
    state: State,
    proposal: Proposal,
    earlier: Sequence[TrajectoryStep],
    sandbox: Sandbox,
    weights: RewardWeights,
) -> TrajectoryStep:
    """Return the step of `proposal`, applied to `text`, after the `earlier` ones; whether it is kept is not said yet."""
    action = proposal.action
    [result] = sandbox.apply_many(text, task.language, [action])
    graded = _graded(task, normalize_blank_lines(text, result))
    measures = measure(action, text, result, task.target, task.language, sandbox, own=task.before)
    general = is_general(action)
    way = [step for step in earlier if step.is_kept]
    spread = [measures.background_matches, *(step.background_matches for step in way)]
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
        sandbox_result=_outcome(text, result),
        is_kept=False,
        parse_ok=parse_ok(result.verdict),
        format_ok=True,
        format_strict=proposal.is_strict,
        level=graded.level,
        progress=graded.progress,
        false_positives=measures.false_positives,
        background_matches=measures.background_matches,
        idempotent=measures.idempotent,
        negatives_changed=measures.negatives_changed,
        general=general,
        description_length=measures.description_length,
        support=measures.support,
        support_pairs=None if measures.support is None else int(measures.support > 0),
        srl=similarity(action, _golds(task)),
        reward=reward(
            result.verdict,
            graded.level,
            graded.progress,
            general and all(step.general for step in way),
            weights,
            is_broad=graded.is_verified and _is_broad(task, spread, sandbox, weights),
            unwanted=(measures.false_positives or 0) / max(1, len(result.matches)),
        ),
    )


def unreadable_step(
    task: Task, text: str, state: State, answer: InvalidAnswer, earlier: Sequence[TrajectoryStep]
) -> TrajectoryStep:
    """Return the step of an answer that holds none: the text stays as it is, and the answer is worth nothing."""
    graded = _graded(task, text)
    return TrajectoryStep(
        task_id=task.id,
        step=len(earlier) + 1,
        prompt=Prompt(instruction=task.instruction, text=text),
        state_before=state,
        model_output=ModelOutput(think="", action=None, state_update=StateUpdate(), generation=answer.generation),
        sandbox_result=None,
        feedback=answer.reason,
        is_kept=False,
        parse_ok=None,
        format_ok=False,
        format_strict=False,
        level=graded.level,
        progress=graded.progress,
        false_positives=None,
        background_matches=None,
        idempotent=None,
        negatives_changed=None,
        general=False,
        description_length=None,
        support=None,
        support_pairs=None,
        srl=None,
        reward=Reward(value=0.0, cause=BAD_FORMAT),
    )


def answer_of(step: TrajectoryStep) -> Proposal | InvalidAnswer:
    """Return the answer that `step` was made from."""
    output = step.model_output
    if output.action is None:
        assert output.generation is not None  # only an answer of a language model has no action
        return InvalidAnswer(step.feedback, output.generation)
    return Proposal(
        think=output.think,
        action=output.action,
        state_update=output.state_update,
        attempts=output.attempts,
        alternatives=output.alternatives,
        generation=output.generation,
        is_strict=step.format_strict,
    )


def _graded(task: Task, text: str) -> Grade:
    try:
        return grade(task.before, text, task.target, task.language)
    except DataError:  # the action made a text too long or too deep to be read
        return Grade(Level.NONE, 0.0)


def _is_broad(task: Task, spread: Sequence[float | None], sandbox: Sandbox, weights: RewardWeights) -> bool:
    """Return whether an action changes foreign code more often than the weights allow."""
    # what is not known is held against nobody
    most = max((each for each in spread if each is not None), default=0.0)
    if most <= weights.most_over_out:
        return False
    # an idiom that is to be replaced wherever it stands is no fault of who replaces it so
    allowed = [count_background_matches(gold, task.language, sandbox, task.before) for gold in _golds(task)]
    known = [each for each in allowed if each is not None]
    return len(known) == len(allowed) and most - max(known, default=0.0) > weights.most_over_out


def _golds(task: Task) -> list[PatternAction | RuleAction]:
    return [] if task.gold_action is None else [task.gold_action, *task.gold_next]


def _outcome(text: str, result: SandboxResult) -> SandboxOutcome:
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
