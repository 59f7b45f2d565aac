"""Rows of the formats that are made of chats: `sft`, `dpo`, `rl` and `srl`.

Where a language model was asked, the chat is the one that was sent. Where none was, it is made by the same templates
(`rollouts.teachers.prompt`), with all that an agent would have in front of it: the steps before, and the actions that this teacher
tried and was told to be wrong. No row is made of what is not known: a step whose reward is missing says nothing, and is
neither right nor wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import pstdev
from typing import Any

from graftline.astgrep.action import ACTION
from graftline.codemod.canonical import canonical_text, canonicalize
from graftline.datasets.instruction_source import FIELDS
from graftline.llm.base import Message
from graftline.rollouts.reward import rl_reward
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.task import check_trainable
from graftline.rollouts.teachers.answer import Answer, format_answer
from graftline.rollouts.teachers.base import Proposal, Turn
from graftline.rollouts.teachers.prompt import Prompt
from graftline.rollouts.trajectory import Trajectory, TrajectoryStep

Row = dict[str, Any]
Chat = list[dict[str, str]]


def sft_rows(trajectories: Iterable[Trajectory], prompt: Prompt) -> Iterator[Row]:
    """Yield a chat for every verified step, the answer last: `messages`, as trainers of chat models take them."""
    for trajectory, step in _verified_steps(trajectories):
        answer = {"role": "assistant", "content": answer_text(step, prompt)}
        yield {
            "messages": [*message_dicts(prompt_messages(trajectory, step, prompt)), answer],
            **_origin(trajectory),
            "step": step.step,
            "reward": trajectory.reward.value,
        }


def dpo_rows(trajectories: Iterable[Trajectory], prompt: Prompt) -> Iterator[Row]:
    """Yield pairs of answers to one question: `prompt`, `chosen` (verified) and `rejected`, as TRL takes them.

    The same question is the same text of the same task. Rejected are the actions that a teacher tried and was told to be
    wrong, and the steps that were not kept, of every teacher and attempt. Each pair of different actions once.
    """
    questions: dict[tuple[str, str], list[tuple[Trajectory, TrajectoryStep]]] = defaultdict(list)
    for trajectory in trajectories:
        for step in trajectory.steps:
            questions[trajectory.task_digest, step.prompt.text].append((trajectory, step))
    for steps in questions.values():
        verified = [(trajectory, step) for trajectory, step in steps if trajectory.is_verified and step.is_kept]
        if not verified:
            continue
        trajectory, chosen = verified[0]
        used = {canonical_text(step.model_output.action) for _, step in verified if step.model_output.action}
        for text, action, cause in _wrong_answers(steps, prompt):
            if action in used:
                continue
            used.add(action)
            yield {
                "prompt": message_dicts(prompt.chat(trajectory, chosen.prompt.text, chosen.state_before)),
                "chosen": [{"role": "assistant", "content": answer_text(chosen, prompt)}],
                "rejected": [{"role": "assistant", "content": text}],
                **_origin(trajectory),
                "step": chosen.step,
                "rejected_for": cause,
            }


def rl_rows(trajectories: Iterable[Trajectory], prompt: Prompt) -> Iterator[Row]:
    """Yield a task with the rewards of all attempts at it, by which groups without contrast are told.

    `rl_reward` is -1 for an answer that could not be read. A group that all won or all lost has no gradient in GRPO
    (https://arxiv.org/abs/2402.03300), and is left out of training by dynamic sampling (https://arxiv.org/abs/2503.14476).
    """
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if trajectory.reward.value is not None and trajectory.steps:
            groups[trajectory.task_digest].append(trajectory)
    for attempts in groups.values():
        first, step = attempts[0], attempts[0].steps[0]
        rewards = [rl_reward(attempt.format_ok, attempt.reward) for attempt in attempts]
        yield {
            "prompt": message_dicts(prompt.chat(first, step.prompt.text, step.state_before)),
            **_origin(first),
            "attempts": [
                {
                    "teacher": attempt.teacher,
                    "attempt": attempt.attempt,
                    "answers": [
                        generation.text if (generation := step.model_output.generation) else answer_text(step, prompt)
                        for step in attempt.steps
                    ],
                    "reward": attempt.reward.value,
                    "rl_reward": reward,
                    "is_verified": attempt.is_verified,
                }
                for attempt, reward in zip(attempts, rewards, strict=True)
            ],
            "reward_deviation": round(pstdev(reward for reward in rewards if reward is not None), 6),
        }


def srl_rows(trajectories: Iterable[Trajectory], prompt: Prompt) -> Iterator[Row]:
    """Yield every verified prefix with the action that an expert took after it.

    As in SRL (https://arxiv.org/abs/2510.25992): the model thinks freely, and its action is compared with `expert_action`
    by `codemod.canonical.similarity`; what the teacher thought is not part of it.
    """
    for trajectory, step in _verified_steps(trajectories):
        action = step.model_output.action
        assert action is not None  # of a verified step
        yield {
            "prompt": message_dicts(prompt_messages(trajectory, step, prompt)),
            "expert_action": ACTION.dump_python(canonicalize(action), mode="json"),
            **_origin(trajectory),
            "step": step.step,
            "steps": len(trajectory.path),
        }


def prompt_messages(trajectory: Trajectory, step: TrajectoryStep, prompt: Prompt) -> tuple[Message, ...]:
    """Return the messages before the answer of `step`."""
    generation = step.model_output.generation
    if generation is not None:
        return generation.messages
    turns = [
        Turn(earlier.prompt.text, earlier.answer, earlier.feedback, earlier.is_kept)
        for earlier in trajectory.steps[: step.step - 1]
    ]
    turns += [
        Turn(step.prompt.text, Proposal(failed.think, failed.action, StateUpdate()), failed.feedback, is_kept=False)
        for failed in step.model_output.attempts
    ]
    return prompt.chat(trajectory, step.prompt.text, step.state_before, turns[-prompt.settings.max_turns :])


def answer_text(step: TrajectoryStep, prompt: Prompt) -> str:
    """Return the answer of `step` in the layout of `prompt`, whatever its own form was.

    Raises:
        ValueError: it has no action.
    """
    output = step.model_output
    if output.action is None:
        raise ValueError("a step without an action has no answer to learn")
    answer = Answer(output.think, output.action, output.state_update, is_strict=True)
    return format_answer(answer, prompt.settings.answer.layout)


def message_dicts(messages: Sequence[Message]) -> Chat:
    """Return `messages` as JSON has them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def _verified_steps(trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, TrajectoryStep]]:
    for trajectory in trajectories:
        if trajectory.is_verified:
            yield from ((trajectory, step) for step in trajectory.path)


def _wrong_answers(
    steps: Sequence[tuple[Trajectory, TrajectoryStep]], prompt: Prompt
) -> Iterator[tuple[str, str, str]]:
    """Yield answers that are known to be wrong: as they are written, their action in canonical form, and why."""
    for _, step in steps:
        for failed in step.model_output.attempts:
            answer = Answer(failed.think, failed.action, StateUpdate(), is_strict=True)
            yield format_answer(answer, prompt.settings.answer.layout), canonical_text(failed.action), "tried"
        action = step.model_output.action
        if action is not None and not step.is_kept and step.reward.value is not None:
            yield answer_text(step, prompt), canonical_text(action), step.reward.cause


def _origin(trajectory: Trajectory) -> Row:
    check_trainable(trajectory.tags, trajectory.task_id)
    names = ("task_id", "dataset", "language", "license", "origin", *FIELDS, "teacher", "attempt")
    return {name: getattr(trajectory, name) for name in names}
