"""`rl_grpo` with the reward `recorded`: what rollouts came to is learned from, and nothing is sampled.

An example is a task, with all answers of the model in its rollouts: rows that `graftline env export` writes where a proxy has
recorded token ids and logprobs. The advantage of a rollout is its reward less the mean of those of the same task, as in
`recipes.rollouts`, and that of every token of its answers. The model that answered is the one that was recorded, so that `ppo` and
`cispo`, which hold back tokens that have become much more or less probable since, allow for more than one step on the same rows.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from graftline.core.errors import DataError
from graftline.training.answers import SampledAnswer, policy_datum, prompt_datum
from graftline.training.datums import Tokenizer
from graftline.training.examples import Example, TrainingData, read_objects
from graftline.training.recipes.base import Gradients, Recipe, Training
from graftline.training.recipes.rollouts import group_advantages
from graftline.training.recipes.tasks import RlGrpoConfig

Row = Mapping[str, Any]


class RecordedAnswers(NamedTuple):
    """What the rollouts of a task came to."""

    datums: list[Any]
    """Of each answer whose reward is known."""
    rewards: list[float]
    """Of each rollout, where it is known."""


class RecordedGrpo(Recipe):
    """The recipe."""

    def __init__(self, config: RlGrpoConfig) -> None:
        self._config = config

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        config = self._config
        if config.held_out:
            raise DataError(
                "held_out: recorded answers say nothing of the model that it becomes; leave it out, and use `graftline env eval`"
            )
        path = root / config.dataset
        rows, dropped, too_long = read_objects(path), Counter[str](), list[int]()
        groups: defaultdict[Any, dict[str, list[Row]]] = defaultdict(dict)
        for number, row in enumerate(rows, 1):
            length = _check_row(row, f"{path}, line {number}")
            if not length:
                dropped["no_tokens"] += 1
            elif length > config.max_tokens:
                dropped["too_long"] += 1
                too_long.append(length)
            else:
                rollouts = groups[row.get("dataset"), row.get("task_id")]
                rollouts.setdefault(str(row.get("rollout_id")), []).append(row)
        _check_tokenizer(path, rows, tokenizer)
        examples = []
        for rollouts in groups.values():
            if (example := self._example([*rollouts.values()])) is None:
                dropped["no_contrast"] += sum(map(len, rollouts.values()))
            else:
                examples.append(example)
        return TrainingData(examples, [], config.digests(root), dropped, too_long)

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        examples = training.examples(batch)
        datums = [datum for example in examples for datum in example.item.datums]
        future = training.trainer.forward_backward(datums, self._config.loss)
        tokens, trained_tokens = (
            sum(getattr(example, name) for example in examples) for name in ("tokens", "trained_tokens")
        )
        rewards = [reward for example in examples for reward in example.item.rewards]
        return Gradients(future, tokens, trained_tokens, {"reward": fmean(rewards)})

    def _example(self, rollouts: Sequence[Sequence[Row]]) -> Example | None:
        """Return the answers of all rollouts of a task; None where these are all worth the same."""
        rewards = [rows[0].get("reward") for rows in rollouts]
        advantages = group_advantages(rewards, self._config.is_scaled)
        if advantages is None:
            return None
        datums, tokens, trained_tokens = [], 0, 0
        for rows, advantage in zip(rollouts, advantages, strict=True):
            for row in rows if advantage is not None else ():
                assert advantage is not None
                answer = SampledAnswer([*row["token_ids"]], [*row["logprobs"]], "")
                datums.append(policy_datum(row["prompt_token_ids"], answer, [advantage] * len(answer.tokens)))
                tokens += len(row["prompt_token_ids"]) + len(answer.tokens)
                trained_tokens += len(answer.tokens)
        answers = RecordedAnswers(datums, [float(reward) for reward in rewards if reward is not None])
        # the question, as in recipes that sample
        return Example((prompt_datum(rollouts[0][0]["prompt_token_ids"]),), tokens, trained_tokens, answers)


def _check_row(row: Row, origin: str) -> int:
    """Return how many tokens question and answer have; 0 where they were not recorded."""
    reward, lists = row.get("reward", ""), [row.get(name) for name in ("prompt_token_ids", "token_ids", "logprobs")]
    is_reward = reward is None or (isinstance(reward, int | float) and not isinstance(reward, bool))
    if not is_reward or not all(isinstance(values, list) for values in lists):
        raise DataError(
            f"{origin}: is no call of a rollout; reward, prompt_token_ids, token_ids and logprobs were expected, as"
            " `graftline env export` writes them"
        )
    prompt, answer, logprobs = (values or [] for values in lists)
    if len(prompt) < 2 or not answer or len(answer) != len(logprobs):
        return 0
    if not all(type(token) is int and token >= 0 for token in chain(prompt, answer)):
        raise DataError(f"{origin}: has something else than token ids; export the rollouts again")
    return len(prompt) + len(answer)


def _check_tokenizer(path: Path, rows: Sequence[Row], tokenizer: Tokenizer) -> None:
    """Refuse rows whose ids say something else by this tokenizer: they are those of another model."""
    different = total = 0
    for row in rows:
        messages = row.get("messages")
        answer = messages[-1] if isinstance(messages, list) and messages else {}
        text = answer.get("content") if isinstance(answer, dict) else None
        if row["token_ids"] and isinstance(text, str) and text.strip():
            total += 1
            different += text.strip() not in tokenizer.decode(row["token_ids"])
    if 2 * different > total:
        raise DataError(
            f"{path}: the token ids of {different} of {total} answers say something else by the tokenizer of this model; train the"
            " model that was asked"
        )
