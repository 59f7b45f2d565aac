"""What a model is asked about a task before anything was tried, and what one answer to that is worth.

Evaluation and training ask and grade alike: an answer is graded as a step of a teacher is, by what the sandbox makes of it.
"""

from dataclasses import dataclass

from graftline.rollouts.collect import grade_step
from graftline.rollouts.exports.chats import Chat, message_dicts
from graftline.rollouts.reward import BAD_FORMAT, Reward, RewardWeights
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import Answer, AnswerFormat, ParseError, parse_answer
from graftline.rollouts.teachers.base import Proposal
from graftline.rollouts.teachers.prompt import Prompt
from graftline.rollouts.trajectory import TrajectoryStep
from graftline.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """What became of one answer."""

    text: str
    reward: Reward
    """Without a value where the sandbox gave no verdict."""
    answer: Answer | None = None
    """None where it cannot be read, and so is its step."""
    step: TrajectoryStep | None = None

    @property
    def is_verified(self) -> bool:
        """Whether it makes the target text."""
        return self.step is not None and self.step.level.is_verified


def first_question(task: Task, prompt: Prompt) -> Chat:
    """Return what is asked about `task` before anything was tried."""
    return message_dicts(prompt.chat(task, task.before, State(), target=task.target))


def grade_answer(
    task: Task, text: str, answer_format: AnswerFormat, sandbox: Sandbox, weights: RewardWeights
) -> GradedAnswer:
    """Return what the answer `text` is worth."""
    answer = parse_answer(text, answer_format)
    if isinstance(answer, ParseError):
        return GradedAnswer(text, Reward(value=0.0, cause=BAD_FORMAT))
    proposal = Proposal(answer.think, answer.action, answer.state_update, is_strict=answer.is_strict)
    step = grade_step(task, task.before, State(), proposal, (), sandbox, weights)
    return GradedAnswer(text, step.reward, answer, step)
