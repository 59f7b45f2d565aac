"""A step as a chat: what is asked before it, and what is answered.

Where a language model was asked, the chat is the one that was sent. Where none was, it is made by the same templates
(`teachers.prompt`), with all that an agent would have in front of it: the steps before, and the actions that this teacher
tried and was told to be wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import pstdev
from typing import Any

from graftline.astgrep.action import ACTION
from graftline.codemod.canonical import canonical_text, canonicalize
from graftline.llm.base import Message
from graftline.rollouts.reward import rl_reward
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.teachers.answer import Answer, format_answer
from graftline.rollouts.teachers.base import InvalidAnswer, Proposal, Turn
from graftline.rollouts.teachers.prompt import Prompt
from graftline.rollouts.trajectory import Trajectory, TrajectoryStep

Chat = list[dict[str, str]]


def prompt_messages(trajectory: Trajectory, step: TrajectoryStep, prompt: Prompt) -> tuple[Message, ...]:
    """Return the messages before the answer of `step`."""
    generation = step.model_output.generation
    if generation is not None:
        return generation.messages
    turns = [*_turns(trajectory.steps[: step.step - 1]), *_tried(step)]
    return prompt.chat(trajectory, step.prompt.text, step.state_before, turns[-prompt.settings.max_turns :])


def answer_text(step: TrajectoryStep, prompt: Prompt) -> str:
    """Return the answer of `step` in the layout of `prompt`, whatever its own form was.

    Raises:
        ValueError: it has no action.
    """
    said = step.model_output
    if said.action is None:
        raise ValueError("a step without an action has no answer to learn")
    return format_answer(
        Answer(said.think, said.action, said.state_update, is_strict=True), prompt.settings.answer.layout
    )


def message_dicts(messages: Sequence[Message]) -> Chat:
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
            answer: Proposal | InvalidAnswer = Proposal(said.think, said.action, said.state_update)
        elif said.generation is not None:
            answer = InvalidAnswer(step.feedback, said.generation)
        else:
            continue
        yield Turn(step.prompt.text, answer, step.feedback, step.is_kept)


Row = dict[str, Any]


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
    for steps in _by_question(trajectories):
        chosen = [(trajectory, step) for trajectory, step in steps if trajectory.is_verified and step.is_kept]
        if not chosen:
            continue
        trajectory, first = chosen[0]
        right = {canonical_text(step.model_output.action) for _, step in chosen if step.model_output.action}
        seen = set(right)
        for text, action, cause in _rejected(steps, prompt):
            if action in seen:
                continue
            seen.add(action)
            yield {
                "prompt": message_dicts(_question(trajectory, first, prompt)),
                "chosen": [{"role": "assistant", "content": answer_text(first, prompt)}],
                "rejected": [{"role": "assistant", "content": text}],
                **_origin(trajectory),
                "step": first.step,
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
        first = attempts[0]
        rewards = [rl_reward(attempt.format_ok, attempt.reward) for attempt in attempts]
        yield {
            "prompt": message_dicts(_question(first, first.steps[0], prompt)),
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
    by `rules.similarity.srl`; what the teacher thought is not part of it.
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


def _verified_steps(trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, TrajectoryStep]]:
    for trajectory in trajectories:
        if trajectory.is_verified:
            yield from ((trajectory, step) for step in trajectory.path)


def _by_question(trajectories: Iterable[Trajectory]) -> Iterator[list[tuple[Trajectory, TrajectoryStep]]]:
    questions: dict[tuple[str, str], list[tuple[Trajectory, TrajectoryStep]]] = defaultdict(list)
    for trajectory in trajectories:
        for step in trajectory.steps:
            questions[trajectory.task_digest, step.prompt.text].append((trajectory, step))
    yield from questions.values()


def _rejected(steps: Sequence[tuple[Trajectory, TrajectoryStep]], prompt: Prompt) -> Iterator[tuple[str, str, str]]:
    """Yield answers that are known to be wrong: as they are written, their action in canonical form, and why."""
    for _, step in steps:
        for attempt in step.model_output.attempts:
            answer = Answer(attempt.think, attempt.action, StateUpdate(), is_strict=True)
            yield format_answer(answer, prompt.settings.answer.layout), canonical_text(attempt.action), "tried"
        action = step.model_output.action
        if action is not None and not step.is_kept and step.reward.value is not None:
            yield answer_text(step, prompt), canonical_text(action), step.reward.cause


def _question(trajectory: Trajectory, step: TrajectoryStep, prompt: Prompt) -> Any:
    """Return the chat before `step` without earlier turns: the same for whoever answers it."""
    return prompt.chat(trajectory, step.prompt.text, step.state_before)


def _origin(trajectory: Trajectory) -> Row:
    return {
        "task_id": trajectory.task_id,
        "dataset": trajectory.dataset,
        "language": trajectory.language,
        "licence": trajectory.licence,
        "origin": trajectory.origin,
        "teacher": trajectory.teacher,
        "attempt": trajectory.attempt,
    }
