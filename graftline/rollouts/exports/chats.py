"""A step as a chat: what is asked before it, and what is answered.

Where a language model was asked, the chat is the one that was sent. Where none was, it is made by the same templates
(`teachers.prompt`), with all that an agent would have in front of it: the steps before, and the actions that this teacher
tried and was told to be wrong.
"""

from collections.abc import Iterator, Sequence

from graftline.llm.base import Message
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.step import Trajectory, TrajectoryStep
from graftline.rollouts.teachers.answer import Answer, written
from graftline.rollouts.teachers.base import Proposal, Turn, Unreadable
from graftline.rollouts.teachers.prompt import Prompt

Chat = list[dict[str, str]]


def asked(trajectory: Trajectory, step: TrajectoryStep, prompt: Prompt) -> tuple[Message, ...]:
    """Return the messages before the answer of `step`."""
    generation = step.model_output.generation
    if generation is not None:
        return generation.messages
    turns = [*_turns(trajectory.steps[: step.step - 1]), *_tried(step)]
    return prompt.chat(trajectory, step.prompt.text, step.state_before, turns[-prompt.settings.max_turns :])


def answered(step: TrajectoryStep, prompt: Prompt) -> str:
    """Return the answer of `step` in the layout of `prompt`, whatever its own form was.

    Raises:
        ValueError: it has no action.
    """
    said = step.model_output
    if said.action is None:
        raise ValueError("a step without an action has no answer to learn")
    return written(Answer(said.think, said.action, said.state_update, is_strict=True), prompt.settings.answer.layout)


def plain(messages: Sequence[Message]) -> Chat:
    """Return `messages` as JSON has them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def _tried(step: TrajectoryStep) -> list[Turn]:
    """Return the actions that the teacher tried before that of `step`, as turns that failed."""
    return [
        Turn(step.prompt.text, Proposal(attempt.think, attempt.action, StateUpdate()), attempt.feedback, is_kept=False)
        for attempt in step.model_output.attempts
    ]


def _turns(steps: Sequence[TrajectoryStep]) -> Iterator[Turn]:
    for step in steps:
        said = step.model_output
        if said.action is not None:
            answer: Proposal | Unreadable = Proposal(said.think, said.action, said.state_update)
        elif said.generation is not None:
            answer = Unreadable(step.feedback, said.generation)
        else:
            continue
        yield Turn(step.prompt.text, answer, step.feedback, step.is_kept)
