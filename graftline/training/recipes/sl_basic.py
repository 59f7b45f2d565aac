"""`sl_basic`: cross-entropy on the answers of chats.

The loss of a batch is the sum over its tokens of `-weight * log p(token)`, weight 1 on answers and 0 on prompts
(https://tinker-docs.thinkingmachines.ai/losses); what is written down is its mean over the tokens with a weight.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from graftline.training.datums import Rendered, TrainOn, count_trained_tokens, render_all
from graftline.training.examples import Example, TrainingData, read_rows
from graftline.training.recipes.base import Gradients, Recipe, Training, gradients_of
from graftline.training.settings import TinkerTrainingConfig


class SlBasicConfig(TinkerTrainingConfig):
    """Supervised training on chats: files of `graftline data export sft`, or any with `messages` on every line."""

    recipe: Literal["sl_basic"] = "sl_basic"
    train_on: TrainOn = "last_assistant_message"
    """Earlier answers of exported chats are shots, and attempts that were wrong."""


class SlBasic(Recipe):
    """The recipe; an example is one chat."""

    def __init__(self, config: SlBasicConfig) -> None:
        self._config = config

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        train = self._render(root / self._config.dataset, tokenizer)
        held_out = self._render(root / self._config.held_out, tokenizer) if self._config.held_out else None
        return TrainingData(
            train=_examples(train),
            held_out=_examples(held_out) if held_out else [],
            digests=self._config.digests(root),
            dropped=train.dropped,
            too_long=train.too_long,
        )

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        examples = training.examples(batch)
        future = training.trainer.forward_backward([example.datums[0] for example in examples], "cross_entropy")
        return gradients_of(examples, future)

    def _render(self, path: Path, tokenizer: Any) -> Rendered:
        config = self._config
        chats = [row["messages"] for row in read_rows(path, "messages", "sft")]
        return render_all(chats, tokenizer, config.renderer, config.train_on, config.max_tokens)


def _examples(rendered: Rendered) -> list[Example]:
    return [Example((datum,), datum.model_input.length, count_trained_tokens(datum)) for datum in rendered.datums]
