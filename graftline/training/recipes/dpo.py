"""`dpo`: verified answers are preferred to rejected ones.

With `r(y) = log p(y) - log p0(y)`, summed over the tokens of an answer, `p` the model that is trained and `p0` the same
model before its first step, the loss of a pair is `-log sigmoid(beta * (r(chosen) - r(rejected)))`: Rafailov et al., Direct
Preference Optimization, 2023 (https://arxiv.org/abs/2305.18290), equation 7. The logprobs of `p0` are asked for once, and kept
with the record of the run. The way back goes through `forward_backward_custom` of the SDK, which any backend has.

Axis: P pairs of a batch.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from graftline.core.errors import DataError
from graftline.training.datums import render_all
from graftline.training.examples import Example, TrainingData, read_rows
from graftline.training.recipes.base import Gradients, Recipe, Training, gradients_of
from graftline.training.settings import TinkerTrainingConfig, batch_of, total_steps
from graftline.training.tinker import TinkerSDKClient

if TYPE_CHECKING:
    from tinker import TrainingClient, types


class DpoConfig(TinkerTrainingConfig):
    """Preferences: files of `graftline data export dpo`."""

    recipe: Literal["dpo"] = "dpo"
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    beta: float = Field(default=0.1, gt=0, le=10)
    """How much the model may move away from itself: less with a greater one."""


class Dpo(Recipe):
    """The recipe; an example is a pair: the chosen answer, and the rejected one.

    The held-out loss is that of the chosen answers: what a model that moves too far away from itself forgets.
    """

    def __init__(self, config: DpoConfig) -> None:
        self._config = config

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        dropped, too_long = Counter[str](), list[int]()
        train = self._pairs(root / self._config.dataset, tokenizer, dropped, too_long)
        held_out = self._pairs(root / self._config.held_out, tokenizer, Counter(), []) if self._config.held_out else []
        return TrainingData(train, held_out, self._config.digests(root), dropped, too_long)

    def prepare(self, service: TinkerSDKClient, trainer: "TrainingClient", data: TrainingData) -> dict[str, Any]:
        # of a run of few steps, most pairs are never used
        config, count = self._config, len(data.train)
        steps = range(total_steps(config, count))
        numbers = sorted({number for step in steps for number in batch_of(config, count, step)})
        datums = [datum for number in numbers for datum in data.train[number].datums]
        future = trainer.forward(datums, "cross_entropy")
        outputs = service.result(future, "what the model says before its first step").loss_fn_outputs
        sums = [
            float(_answer_logprob(datum, output["logprobs"].to_torch()))
            for datum, output in zip(datums, outputs, strict=True)
        ]
        reference: list[float | None] = [None] * (2 * count)
        for place, number in enumerate(numbers):
            reference[2 * number : 2 * number + 2] = sums[2 * place : 2 * place + 2]
        return {"reference": reference}

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        reference = [training.prepared["reference"][2 * number + side] for number in batch for side in (0, 1)]
        pairs = training.examples(batch)
        beta = self._config.beta

        def loss(datums: "list[types.Datum]", logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
            import torch

            policy = torch.stack(
                [_answer_logprob(datum, values) for datum, values in zip(datums, logprobs, strict=True)]
            )
            gains_P2 = (policy - torch.tensor(reference)).reshape(-1, 2)
            margins_P = gains_P2[:, 0] - gains_P2[:, 1]
            total = -torch.nn.functional.logsigmoid(beta * margins_P).sum()
            return total, {"dpo_loss:sum": float(total.detach()), "preferred:sum": float((margins_P > 0).sum())}

        datums = [datum for pair in pairs for datum in pair.datums]
        return gradients_of(pairs, training.trainer.forward_backward_custom(datums, loss))

    def loss(self, output: Any, gradients: Gradients, batch: Sequence[int]) -> float:
        return float(output.metrics["dpo_loss:sum"]) / len(batch)

    def _pairs(self, path: Path, tokenizer: Any, dropped: Counter[str], too_long: list[int]) -> list[Example]:
        config, pairs = self._config, []
        for row in read_rows(path, "chosen", "dpo"):
            if not isinstance(row.get("prompt"), list) or not isinstance(row.get("rejected"), list):
                raise DataError(
                    f"{path}: a row has no prompt or nothing rejected; `graftline data export dpo` writes such files"
                )
            chats = [[*row["prompt"], *row[side]] for side in ("chosen", "rejected")]
            rendered = render_all(chats, tokenizer, config.renderer, "last_assistant_message", config.max_tokens)
            if len(rendered.datums) == 2:
                pairs.append(Example(rendered.datums, rendered.tokens, rendered.trained_tokens))
            else:
                reason = min(rendered.dropped)
                dropped[reason] += 1
                too_long += [max(rendered.too_long)] if reason == "too_long" else []
        return pairs


def _answer_logprob(datum: "types.Datum", logprobs: Any) -> Any:
    """Return the sum of the `logprobs` of the tokens with a weight."""
    return (logprobs * datum.loss_fn_inputs["weights"].to_torch()).sum()
