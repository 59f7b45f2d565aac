"""What a model is asked about a task before anything was tried, and what one answer to that is worth.

Evaluation and training ask and grade alike: an answer is graded as a step of a teacher is, by what the sandbox makes of it. One that
is code is graded as the actions that induction makes of it, one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.action import Action, PatternAction, RuleAction
from graftline.codemod.equality import Level, normalize_whitespace
from graftline.rollouts.collect import RolloutConfig, collect, grade_step, take_actions
from graftline.rollouts.exports.chats import Chat, message_dicts
from graftline.rollouts.fenced_code import read_code
from graftline.rollouts.reward import BAD_FORMAT, Reward, RewardWeights
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import AnswerFormat, ParseError, parse_answer
from graftline.rollouts.teachers.base import Proposal
from graftline.rollouts.teachers.induction import InductionTeacher
from graftline.rollouts.teachers.prompt import Prompt
from graftline.rollouts.trajectory import Trajectory, TrajectoryStep
from graftline.sandbox.base import Sandbox

NO_RULE = "no_rule"
"""Cause of code of which induction makes no action: it is worth nothing, whatever it says, for no repository follows it."""


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """What became of one answer."""

    text: str
    reward: Reward
    """Without a value where the sandbox gave no verdict."""
    is_read: bool = False
    """Whether there is a step in it, or code."""
    steps: tuple[TrajectoryStep, ...] = ()
    """Those that it says, one after the other; none where it cannot be read, or changes nothing."""

    @property
    def level(self) -> Level:
        """How near the text that came out is to the target."""
        return self.steps[-1].level if self.steps else Level.NONE

    @property
    def is_verified(self) -> bool:
        """Whether it makes the target text."""
        return self.level.is_verified


def first_question(task: Task, prompt: Prompt) -> Chat:
    """Return what is asked about `task` before anything was tried."""
    return message_dicts(prompt.chat(task, task.before, State(), target=task.target))


def grade_answer(
    task: Task, text: str, answer_format: AnswerFormat, sandbox: Sandbox, weights: RewardWeights
) -> GradedAnswer:
    """Return what the answer `text` is worth."""
    if answer_format.layout == "code":
        edited = read_code(text, task.before)
        if edited is None:
            return GradedAnswer(text, Reward(value=0.0, cause=BAD_FORMAT))
        if normalize_whitespace(edited) == normalize_whitespace(task.before):
            return GradedAnswer(text, Reward(value=0.0, cause="no_progress"), is_read=True)
        attempt = attempt_edit(task, edited, sandbox, weights)
        if not attempt.steps:
            return GradedAnswer(text, Reward(value=0.0, cause=NO_RULE), is_read=True)
        return GradedAnswer(text, attempt.reward, is_read=True, steps=attempt.steps)
    answer = parse_answer(text, answer_format)
    if isinstance(answer, ParseError):
        return GradedAnswer(text, Reward(value=0.0, cause=BAD_FORMAT))
    proposal = Proposal(answer.think, answer.action, answer.state_update, is_strict=answer.is_strict)
    step = grade_step(task, task.before, State(), proposal, (), sandbox, weights)
    return GradedAnswer(text, step.reward, is_read=True, steps=(step,))


def read_actions(
    task: Task, text: str, answer_format: AnswerFormat, sandbox: Sandbox
) -> Sequence[PatternAction | RuleAction] | None:
    """Return the actions of the answer `text`, one after the other, none where it changes nothing; None where it cannot be read."""
    if answer_format.layout == "code":
        edited = read_code(text, task.before)
        return None if edited is None else induce_actions(task, edited, sandbox)
    answer = parse_answer(text, answer_format)
    return None if isinstance(answer, ParseError) else [answer.action]


def attempt_edit(
    task: Task, edited: str, sandbox: Sandbox, weights: RewardWeights | None = None, number: int = 1
) -> Trajectory:
    """Return the attempt at a task that takes the actions which induction makes of the text `edited`; it has no step where there are none.

    SandboxError where the sandbox failed.
    """
    actions = induce_actions(task, edited, sandbox)
    return take_actions(task, actions, sandbox, weights or RewardWeights(), "edit", number)


def induce_actions(task: Task, edited: str, sandbox: Sandbox) -> list[Action]:
    """Return the actions, one after the other, that make `edited` of the text of a task; none where there are none."""
    if edited == task.before:
        return []
    example = task.model_copy(update={"target": edited, "tests": None, "gold_action": None, "gold_next": ()})
    attempt = collect(example, InductionTeacher(sandbox), sandbox, RolloutConfig())
    return [step.model_output.action for step in attempt.path if step.model_output.action is not None]
