"""What recipes share whose answers are sampled while training goes on: `rl_grpo`, `expert_iteration`, `srl` and `distill`.

Before every step the weights are saved as they are, and answers sampled from them: all is on-policy. A step is sent when its
answers are there, so that steps are not sent ahead of each other, whatever `submit_ahead` says.

All but the last reward answers in groups, of the same question. The advantage of an answer is its reward less the mean of its
group, over their standard deviation (GRPO: Shao et al., DeepSeekMath, 2024, https://arxiv.org/abs/2402.03300, section 4.1), or
as it is (Liu et al., Understanding R1-Zero-Like Training, 2025, https://arxiv.org/abs/2503.20783). It is that of each of its
tokens. Groups without contrast have no gradient and are left out (dynamic sampling: Yu et al., DAPO, 2025,
https://arxiv.org/abs/2503.14476). A reward that is not known is neither good nor bad: its answer is left out, and the mean is
that of the others.

Axes: B questions of a batch, G answers to a question.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from graftline.core.errors import DataError, TrainingError
from graftline.core.hashing import digest
from graftline.training.answers import AnswerSampling, Questions, SampledAnswer, policy_datum, prompt_datum
from graftline.training.examples import Example, TrainingData
from graftline.training.recipes.base import Gradients, Recipe, Training
from graftline.training.settings import TinkerTrainingConfig

if TYPE_CHECKING:
    from tinker import SamplingClient

logger = logging.getLogger(__name__)

_SAMPLER_TTL_S = 3600
_MIN_DEVIATION = 1e-6


class AskedTokens(NamedTuple):
    """A question as a server has read it."""

    ids: list[int]


Rows = Sequence[tuple[Sequence[Mapping[str, str]] | AskedTokens, Any]]
"""Questions, each with what else a recipe needs of it."""


class RolloutConfig(TinkerTrainingConfig):
    """What these recipes have beside what all have; `max_tokens` is that of a question."""

    group_size: int = Field(default=8, ge=1, le=1024)
    """Answers to each question."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    sampling_seed: int = Field(default=0, ge=0)
    loss: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    """Of the policy; the last two hold back tokens that have become much more or less probable since they were sampled."""


class GroupConfig(RolloutConfig):
    """What recipes with rewards have beside what all rollouts have."""

    group_size: int = Field(default=8, ge=2, le=1024)
    """Answers to each question."""


class ContrastConfig(GroupConfig):
    """What recipes have beside that whose answers are worth what they are better than others."""

    is_scaled: bool = True
    """Whether advantages are divided by the standard deviation of their group."""


class Rollouts:
    """Samples answers, and sends what is learned of them."""

    def __init__(self, config: RolloutConfig, tokenizer: Any) -> None:
        self._config, self.questions = config, Questions(config.renderer, tokenizer)
        self._numbers = count()

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
                tokens = chat.ids if isinstance(chat, AskedTokens) else self.questions.tokens(chat)
            except DataError:
                dropped["bad_chat"] += 1
                continue
            if len(tokens) > self._config.max_tokens:
                dropped["too_long"] += 1
                too_long.append(len(tokens))
            else:
                most = self._config.group_size * (len(tokens) + self._config.answer_tokens)
                yield Example((prompt_datum(tokens),), most, 0, item)

    def sample_step(self, training: Training, step: int, batch: Sequence[int]) -> list[list[SampledAnswer]]:
        """Return the answers that the model as it is gives to the questions of `batch`."""
        seeds = [int(digest([self._config.sampling_seed, step, number])[:7], 16) for number in batch]
        return self.sample(training, training.examples(batch), seeds, f"the answers of step {step}")

    def sample(
        self, training: Training, examples: Sequence[Example], seeds: Sequence[int], subject: str
    ) -> list[list[SampledAnswer]]:
        """Return the answers that the model as it is gives to `examples`, each with a seed of its own."""
        config = self._config
        sampling = AnswerSampling(config.answer_tokens, config.temperature, config.group_size)
        return self._ask(training, examples, sampling, seeds, "rollouts", subject)

    def most_probable(self, training: Training, examples: Sequence[Example], subject: str) -> list[SampledAnswer]:
        """Return the most probable answer to each of `examples`."""
        sampling = AnswerSampling(self._config.answer_tokens)
        answers = self._ask(training, examples, sampling, [0] * len(examples), "look", subject)
        return [answer for [answer] in answers]

    def _ask(
        self,
        training: Training,
        examples: Sequence[Example],
        sampling: AnswerSampling,
        seeds: Sequence[int],
        name: str,
        subject: str,
    ) -> list[list[SampledAnswer]]:
        prompts = [prompt_of(example) for example in examples]
        with self._current_model(training, name) as sampler:
            futures = self.questions.ask(sampler, prompts, sampling, seeds)
            return self.questions.wait(training.service, futures, subject)

    @contextmanager
    def _current_model(self, training: Training, name: str) -> "Iterator[SamplingClient]":
        """Yield what samples from the weights after the steps that were sent; they are kept meanwhile."""
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
        lessons: Sequence[tuple[Example, SampledAnswer, Sequence[float]]],
        metrics: Mapping[str, float],
        sampled: Sequence[tuple[Example, Sequence[SampledAnswer]]],
    ) -> Gradients:
        """Send the answers in `lessons`, each with the advantages of its tokens; `sampled` are all there were."""
        tokens = sum(len(prompt_of(example)) * len(answers) + _length(answers) for example, answers in sampled)
        all_metrics = {**metrics, "answer_tokens": sum(_length(answers) for _, answers in sampled)}
        if not lessons:
            return Gradients(None, tokens, 0, all_metrics)
        datums = [policy_datum(prompt_of(example), answer, advantages) for example, answer, advantages in lessons]
        future = training.trainer.forward_backward(datums, self._config.loss)
        return Gradients(future, tokens, _length([answer for _, answer, _ in lessons]), all_metrics)


def prompt_of(example: Example) -> list[int]:
    """Return the tokens of a question."""
    datum = example.datums[0]
    last: Any = datum.loss_fn_inputs["target_tokens"].data
    return [*datum.model_input.to_ints(), int(last[-1])]


def _length(answers: Sequence[SampledAnswer]) -> int:
    return sum(len(answer.tokens) for answer in answers)


class Scored(NamedTuple):
    """What an answer is worth."""

    value: float | None
    """From -1 to 1; None where that is not known."""
    cause: str


class GroupRecipe(Recipe):
    """A recipe that rewards answers, and learns from how those to the same question differ."""

    _config: GroupConfig
    _rollouts: Rollouts

    def score(self, example: Example, answer: SampledAnswer) -> Scored:
        """Return what an answer is worth; the same answer is worth the same."""
        raise NotImplementedError

    def advantages(self, texts_G: Sequence[str], rewards_G: Sequence[float | None]) -> list[float | None] | None:
        """Return the advantage of each answer of a group; None for one that is left out, and where all are."""
        raise NotImplementedError

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        examples = training.examples(batch)
        answers_BG = self._rollouts.sample_step(training, step, batch)
        scores_BG = [self._scores(example, answers) for example, answers in zip(examples, answers_BG, strict=True)]
        scores = [score for group in scores_BG for score in group]
        causes = Counter(score.cause for score in scores)
        mean = _mean_reward(scores, f"step {step}")
        lessons: list[tuple[Example, SampledAnswer, list[float]]] = []
        contrasts = 0
        for example, answers_G, scores_G in zip(examples, answers_BG, scores_BG, strict=True):
            rewards_G = [score.value for score in scores_G]
            contrasts += group_advantages(rewards_G, is_scaled=False) is not None
            advantages_G = self.advantages([answer.text for answer in answers_G], rewards_G)
            for answer, advantage in zip(answers_G, advantages_G or (), strict=bool(advantages_G)):
                if advantage is not None and answer.tokens:
                    lessons.append((example, answer, [advantage] * len(answer.tokens)))
        metrics = {
            "reward": mean,
            "groups_with_contrast": contrasts / len(batch),
            **{f"answers.{cause}": float(count) for cause, count in sorted(causes.items())},
        }
        return self._rollouts.send(training, lessons, metrics, [*zip(examples, answers_BG, strict=True)])

    def evaluate(self, training: Training, examples: Sequence[Example]) -> float:
        """Return 1 less the mean reward of the most probable answers to `examples`."""
        answers = self._rollouts.most_probable(training, examples, "answers to held-out questions")
        scores = [self.score(example, answer) for example, answer in zip(examples, answers, strict=True)]
        return 1.0 - _mean_reward(scores, "the look at held-out questions")

    def _scores(self, example: Example, answers: Sequence[SampledAnswer]) -> list[Scored]:
        # a model that has learnt says the same again and again, and to grade it takes the sandbox a while
        first = {answer.text: answer for answer in answers}
        scores = {text: self.score(example, answer) for text, answer in first.items()}
        return [scores[answer.text] for answer in answers]


def _mean_reward(scores: Sequence[Scored], subject: str) -> float:
    values = [score.value for score in scores if score.value is not None]
    if not values:
        causes = Counter(score.cause for score in scores)
        listing = ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items()))
        raise TrainingError(f"{subject}: nothing is known of any answer ({listing}); mend the machine, and resume")
    return fmean(values)


def group_advantages(rewards_G: Sequence[float | None], is_scaled: bool) -> list[float | None] | None:
    """Return the advantage of each reward of a group; None for one that is not known, and where all known are the same."""
    values = [reward for reward in rewards_G if reward is not None]
    deviation = pstdev(values) if values else 0.0
    if deviation < _MIN_DEVIATION:
        return None
    mean, scale = fmean(values), deviation if is_scaled else 1.0
    return [None if reward is None else (reward - mean) / scale for reward in rewards_G]
