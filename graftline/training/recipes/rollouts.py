"""What recipes share whose answers are drawn while training goes on: `rl_grpo`, `srl` and `distill`.

Before every step the weights are saved as they are, and answers drawn from them: all is on-policy. A step is sent when its
answers are there, so that steps are not sent ahead of each other, whatever `submit_ahead` says.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Literal, NamedTuple

from pydantic import Field

from graftline.core.errors import DataError, TrainingError
from graftline.core.hashing import digest
from graftline.training.answers import Drawing, Drawn, Questions, policy_datum, prompt_datum
from graftline.training.recipes.base import Example, Gradients, Training, TrainingData
from graftline.training.service import Sampler
from graftline.training.settings import TinkerTrainingConfig

logger = logging.getLogger(__name__)

_SAMPLER_TTL_S = 3600


class RolloutConfig(TinkerTrainingConfig):
    """What these recipes have beside what all have; `max_tokens` is that of a question."""

    group_size: int = Field(default=8, ge=1, le=1024)
    """Answers to each question."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    sampling_seed: int = Field(default=0, ge=0)
    loss: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    """Of the policy; the last two hold back tokens that have become much more or less probable since they were drawn."""

    @property
    def drawing(self) -> Drawing:
        """How answers are drawn."""
        return Drawing(self.answer_tokens, self.temperature, self.group_size)


Rows = Sequence[tuple[Sequence[Mapping[str, str]], Any]]
"""Questions as chats, each with what else a recipe needs of it."""


class Rollouts:
    """Draws answers, and sends what is learned of them."""

    def __init__(self, config: RolloutConfig, tokenizer: Any) -> None:
        self._config, self.questions = config, Questions(config.renderer, tokenizer)
        self._numbers = count()

    @property
    def answer_tokens(self) -> int:
        """Of an answer, at most."""
        return self._config.answer_tokens

    def load(self, root: Path, train: Rows, held_out: Rows) -> TrainingData:
        """Return questions as data; what is no chat, or longer than `max_tokens`, is dropped and counted."""
        dropped, too_long = Counter[str](), list[int]()
        return TrainingData(
            train=[*self._examples(train, dropped, too_long)],
            held_out=[*self._examples(held_out, Counter(), [])],
            digests=self._config.digests(root),
            dropped=dropped,
            too_long=too_long,
        )

    def _examples(self, rows: Rows, dropped: Counter[str], too_long: list[int]) -> Iterator[Example]:
        for chat, item in rows:
            try:
                tokens = self.questions.tokens(chat)
            except DataError:
                dropped["bad_chat"] += 1
                continue
            if len(tokens) > self._config.max_tokens:
                dropped["too_long"] += 1
                too_long.append(len(tokens))
            else:
                most = self._config.group_size * (len(tokens) + self._config.answer_tokens)
                yield Example((prompt_datum(tokens),), most, 0, item)

    def draw(self, training: Training, step: int, batch: Sequence[int]) -> list[list[Drawn]]:
        """Return the answers that the model as it is gives to the questions of `batch`.

        Raises:
            TrainingError: the backend does not give them.
        """
        seeds = [int(digest([self._config.sampling_seed, step, number])[:7], 16) for number in batch]
        return self.answers(training, training.examples(batch), seeds, f"step {step}")

    def answers(
        self, training: Training, examples: Sequence[Example], seeds: Sequence[int], where: str
    ) -> list[list[Drawn]]:
        """Return the answers that the model as it is gives to `examples`, each with a seed of its own.

        Raises:
            TrainingError: the backend does not give them.
        """
        prompts = [prompt_of(example) for example in examples]
        with self.model_as_it_is(training, "rollouts") as sampler:
            asked = self.questions.ask(sampler, prompts, self._config.drawing, seeds)
            return self.questions.drawn(training.service, asked, f"the answers of {where}")

    @contextmanager
    def model_as_it_is(self, training: Training, name: str) -> Iterator[Sampler]:
        """Yield what samples from the weights after the steps that were sent; they are kept meanwhile.

        Raises:
            TrainingError: the backend does not save them.
        """
        service = training.service
        # a run that is killed, or fails meanwhile, leaves them, so they expire; and a name is used once
        future = training.trainer.save_weights_for_sampler(f"{name}-{next(self._numbers):06}", _SAMPLER_TTL_S)
        path = str(service.result(future, "the weights to sample from").path)
        yield service.sampling_client(model_path=path)
        try:
            service.delete_checkpoint(path)
        except TrainingError as error:
            logger.warning("%s is not deleted, but expires: %s", path, error)

    def send(
        self,
        training: Training,
        learned: Sequence[tuple[Example, Drawn, Sequence[float]]],
        metrics: Mapping[str, float],
        drawn: Sequence[tuple[Example, Sequence[Drawn]]],
    ) -> Gradients:
        """Send the answers in `learned`, each with the advantages of its tokens; `drawn` are all there were."""
        tokens = sum(len(prompt_of(example)) * len(some) + _length(some) for example, some in drawn)
        found = {**metrics, "answer_tokens": _length([one for _, some in drawn for one in some])}
        if not learned:
            return Gradients(None, tokens, 0, found)
        datums = [policy_datum(prompt_of(example), answer, values) for example, answer, values in learned]
        future = training.trainer.forward_backward(datums, self._config.loss)
        return Gradients(future, tokens, _length([answer for _, answer, _ in learned]), found)


def prompt_of(example: Example) -> list[int]:
    """Return the tokens of a question."""
    datum = example.datums[0]
    last: Any = datum.loss_fn_inputs["target_tokens"].data
    return [*datum.model_input.to_ints(), int(last[-1])]


def policy_loss(answer: Any, sent: Gradients) -> float:
    """Return the mean loss over the tokens that were learned from."""
    return float(answer.metrics["loss:sum"]) / sent.trained_tokens


def _length(answers: Sequence[Drawn]) -> int:
    return sum(len(answer.tokens) for answer in answers)


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
