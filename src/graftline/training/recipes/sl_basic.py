"""`sl_basic`: cross-entropy on the answers of chats.

The loss of a batch is the sum over its tokens of `-weight * log p(token)`, weight 1 on answers and 0 on prompts
(https://tinker-docs.thinkingmachines.ai/losses); what is written down is its mean over the tokens with a weight.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graftline.training.chats import read_rows
from graftline.training.datums import Rendered, TrainOn, render_all
from graftline.training.recipes.base import Example, TrainingData
from graftline.training.settings import TinkerTrainingConfig
from graftline.training.tinker import Awaited, TinkerSDKClient

if TYPE_CHECKING:
    from tinker import TrainingClient


class SlBasicConfig(TinkerTrainingConfig):
    """Supervised training on chats: files of `graftline trajectories export sft`, or any with `messages` on every line."""

    recipe: Literal["sl_basic"] = "sl_basic"
    train_on: TrainOn = "last_assistant_message"
    """Earlier answers of exported chats are shots, and what was tried and was wrong."""


class SlBasic:
    """The recipe; an example is one chat."""

    def __init__(self, config: SlBasicConfig) -> None:
        self._config = config

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        train = self._rendered(root / self._config.dataset, tokenizer)
        held_out = self._rendered(root / self._config.held_out, tokenizer) if self._config.held_out else None
        return TrainingData(
            train=_examples(train),
            held_out=_examples(held_out) if held_out else [],
            digests=self._config.digests(root),
            dropped=train.dropped,
        )

    def prepare(self, sdk: TinkerSDKClient, trainer: "TrainingClient", data: TrainingData) -> dict[str, Any]:
        return {}

    def gradients(
        self, trainer: "TrainingClient", batch: Sequence[int], data: TrainingData, known: Any
    ) -> Awaited[Any]:
        return trainer.forward_backward([data.train[number].datums[0] for number in batch], "cross_entropy")

    def loss(self, answer: Any, batch: Sequence[int], data: TrainingData) -> float:
        return float(answer.metrics["loss:sum"]) / sum(data.train[number].trained_tokens for number in batch)

    def look(self, sdk: TinkerSDKClient, trainer: "TrainingClient", examples: Sequence[Example]) -> float:
        return mean_nll(sdk, trainer, examples)

    def _rendered(self, path: Path, tokenizer: Any) -> Rendered:
        config = self._config
        chats = [row["messages"] for row in read_rows(path, "messages", "sft")]
        return render_all(chats, tokenizer, config.renderer, config.train_on, config.max_tokens)


def mean_nll(sdk: TinkerSDKClient, trainer: "TrainingClient", examples: Sequence[Example]) -> float:
    """Return the mean of `-log p(token)` over the tokens with a weight.

    Raises:
        TrainingError: the backend does not say.
    """
    datums = [datum for example in examples for datum in example.datums]
    found = sdk.result(trainer.forward(datums, "cross_entropy"), "a loss without gradients")
    return float(found.metrics["loss:sum"]) / sum(example.trained_tokens for example in examples)


def _examples(rendered: Rendered) -> list[Example]:
    found = []
    for datum in rendered.datums:
        weights: Any = datum.loss_fn_inputs["weights"].data
        found.append(Example((datum,), datum.model_input.length, sum(1 for weight in weights if weight)))
    return found
