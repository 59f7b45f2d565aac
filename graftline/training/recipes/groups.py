"""Advantages within groups of answers to the same question, by the rewards of each: for `rl_grpo` and `srl`.

The advantage of an answer is its reward less the mean of its group, over their standard deviation (GRPO: Shao et al.,
DeepSeekMath, 2024, https://arxiv.org/abs/2402.03300, section 4.1), or as it is (Liu et al., Understanding R1-Zero-Like
Training, 2025, https://arxiv.org/abs/2503.20783). It is that of each of its tokens. Groups without contrast have no
gradient and are left out (dynamic sampling: Yu et al., DAPO, 2025, https://arxiv.org/abs/2503.14476). A reward that is not
known is neither good nor bad: its answer is left out, and the mean is that of the others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from pydantic import Field

from graftline.core.errors import TrainingError
from graftline.training.questions import Drawing, Drawn
from graftline.training.recipes.base import Example, Gradients, Training
from graftline.training.recipes.rollouts import RolloutConfig, Rollouts, prompt_of

_LEAST_DEVIATION = 1e-6


class Scored(NamedTuple):
    """What an answer is worth."""

    value: float | None
    """From -1 to 1; None where that is not known."""
    cause: str


Score = Callable[[Example, Drawn], Scored]
"""Says what an answer is worth; the same answer is worth the same."""


class GroupConfig(RolloutConfig):
    """What these two recipes have beside what all rollouts have."""

    group_size: int = Field(default=8, ge=2, le=1024)
    """Answers to each question."""
    is_scaled: bool = True
    """Whether advantages are divided by the standard deviation of their group."""


def learn(
    config: GroupConfig, rollouts: Rollouts, training: Training, step: int, batch: Sequence[int], score: Score
) -> Gradients:
    """Draw answers, score them, and send what is to be learned of them.

    Raises:
        TrainingError: the backend does not answer, or nothing is known of any answer.
        SandboxError: the sandbox failed.
    """
    examples = training.examples(batch)
    drawn = rollouts.draw(training, step, batch)
    rewards = [_scores(example, answers, score) for example, answers in zip(examples, drawn, strict=True)]
    scores = [one for group in rewards for one in group]
    causes = Counter(one.cause for one in scores)
    mean = _mean_reward(scores, f"step {step}")
    learned: list[tuple[Example, Drawn, list[float]]] = []
    contrasts = 0
    for example, answers, group in zip(examples, drawn, rewards, strict=True):
        advantages = group_advantages([reward.value for reward in group], config.is_scaled)
        contrasts += advantages is not None
        for answer, advantage in zip(answers, advantages or (), strict=bool(advantages)):
            if advantage is not None and answer.tokens:
                learned.append((example, answer, [advantage] * len(answer.tokens)))
    metrics = {
        "reward": mean,
        "groups_with_contrast": contrasts / len(batch),
        **{f"answers.{cause}": float(count) for cause, count in sorted(causes.items())},
    }
    return rollouts.send(training, learned, metrics, [*zip(examples, drawn, strict=True)])


def look(rollouts: Rollouts, training: Training, examples: Sequence[Example], score: Score) -> float:
    """Return 1 less the mean reward of the most probable answers to `examples`.

    Raises:
        TrainingError, SandboxError: as `learn`.
    """
    drawing = Drawing(rollouts.answer_tokens)
    prompts = [prompt_of(example) for example in examples]
    with rollouts.model_as_it_is(training, "look") as sampler:
        asked = rollouts.questions.ask(sampler, prompts, drawing, [0] * len(examples))
        answers = rollouts.questions.drawn(training.service, asked, "answers to held-out questions")
    scores = [score(example, answer) for example, [answer] in zip(examples, answers, strict=True)]
    return 1.0 - _mean_reward(scores, "the look at held-out questions")


def _scores(example: Example, answers: Sequence[Drawn], score: Score) -> list[Scored]:
    # a model that has learnt says the same again and again, and to grade it takes the sandbox a while
    first = {answer.text: answer for answer in answers}
    found = {text: score(example, answer) for text, answer in first.items()}
    return [found[answer.text] for answer in answers]


def _mean_reward(scores: Sequence[Scored], where: str) -> float:
    known = [one.value for one in scores if one.value is not None]
    if not known:
        causes = Counter(one.cause for one in scores)
        said = ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items()))
        raise TrainingError(f"{where}: nothing is known of any answer ({said}); mend the machine, and resume")
    return fmean(known)


def group_advantages(rewards: Sequence[float | None], is_scaled: bool) -> list[float | None] | None:
    """Return the advantage of each reward of a group; None for one that is not known, and where all known are the same."""
    known = [reward for reward in rewards if reward is not None]
    deviation = pstdev(known) if known else 0.0
    if deviation < _LEAST_DEVIATION:
        return None
    mean, scale = fmean(known), deviation if is_scaled else 1.0
    return [None if reward is None else (reward - mean) / scale for reward in rewards]
