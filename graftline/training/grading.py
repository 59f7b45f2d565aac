"""Answers to questions about tasks, as they are asked and as they are worth: in evaluation, and while a model is rewarded.

A question is the first step of an attempt, and its answer is graded as that of a teacher is (`trajectories.graded_step`): by
what the sandbox makes of it. A reward is missing where the sandbox says nothing.
"""

from dataclasses import dataclass

from graftline.rollouts.exports.chats import Chat, plain
from graftline.rollouts.graded_step import graded_step
from graftline.rollouts.reward import BAD_FORMAT, Reward, RewardWeights
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import Answer, Fault, read
from graftline.rollouts.teachers.base import Proposal
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class Graded:
    """What became of one answer."""

    text: str
    reward: Reward
    is_verified: bool = False
    """Whether it makes the wanted text."""
    answer: Answer | None = None
    """None where it cannot be read."""


def question(task: Task, prompt: Prompt) -> Chat:
    """Return what is asked about `task` before anything was tried."""
    return plain(prompt.chat(task, task.before, State(), wanted=task.wanted))


def graded(task: Task, text: str, prompt: Prompt, sandbox: Sandbox, weights: RewardWeights) -> Graded:
    """Return what the answer `text` is worth.

    Raises:
        SandboxError: the sandbox failed.
    """
    answer = read(text, prompt.settings.answer)
    if isinstance(answer, Fault):
        return Graded(text, Reward(value=0.0, cause=BAD_FORMAT))
    proposal = Proposal(answer.think, answer.action, answer.state_update, is_strict=answer.is_strict)
    step = graded_step(task, task.before, State(), proposal, (), sandbox, weights)
    return Graded(text, step.reward, step.level.is_verified, answer)
