"""Passes through the model, there and back: many examples at a time.

Axes of tensors: T tokens of all examples of a batch, K alternatives of a target, W width of hidden states.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graftline.core.errors import DataError
from graftline.training.local.attention import attending_in_rows, can_attend_in_rows
from graftline.training.local.losses import chosen_logprobs, has_gradient, input_names, loss_sum, sequence_log_ratio

_HIDDEN_THEN_HEAD = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""Architectures whose logits are the output layer's, with nothing after it."""
_PIECE_TOKENS = 256
"""That go through the output layer at once."""


@dataclass(frozen=True, slots=True)
class Example:
    """One datum: tokens (T,), and the inputs of its loss, each (T,) or (T, K)."""

    tokens: list[int]
    inputs: Mapping[str, torch.Tensor]


class Passes:
    """How examples go through `base`, with whatever adapter it has at the time."""

    def __init__(self, base: Any, device: torch.device, is_half: bool, max_tokens: int) -> None:
        self._base, self._device, self.is_half = base, device, is_half
        # of half the width, twice as many tokens take the same memory
        self._max_tokens = max_tokens * (2 if is_half else 1)
        self._has_plain_head = base.config.model_type in _HIDDEN_THEN_HEAD
        self._has_rows = self._has_plain_head and can_attend_in_rows(base, device)

    def run(
        self, model: Any, examples: Sequence[Example], loss: str, options: Mapping[str, float], is_training: bool
    ) -> tuple[list[np.ndarray], dict[str, float]]:
        """Return the logprobs of every example's target tokens, and metrics; add up gradients where it is trained."""
        logprobs: list[np.ndarray] = [np.zeros(0, np.float32)] * len(examples)
        total = 0.0
        for batch in self._batches(examples, loss):
            rows, value = self._run_batch(model, [examples[number] for number in batch], loss, options, is_training)
            if not math.isfinite(value):
                raise DataError(f"the loss is {value}; lower the learning rate, or look at the weights of the datums")
            total += value
            for number, row in zip(batch, rows, strict=True):
                logprobs[number] = row
        return logprobs, {"loss:sum": total}

    def _batches(self, examples: Sequence[Example], loss: str) -> Iterator[list[int]]:
        """Yield numbers of examples with inputs of one kind, and of about the same length where they are padded to it."""
        lengths = [len(example.tokens) for example in examples]
        kinds = [(input_names(loss, example.inputs), example.inputs["target_tokens"].shape[1:]) for example in examples]
        batch: list[int] = []
        for number in sorted(range(len(examples)), key=lambda number: (kinds[number], lengths[number])):
            tokens = sum(lengths[other] for other in batch) if self._has_rows else len(batch) * lengths[number]
            if batch and (tokens + lengths[number] > self._max_tokens or kinds[number] != kinds[batch[0]]):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    def _run_batch(
        self, model: Any, examples: Sequence[Example], loss: str, options: Mapping[str, float], is_training: bool
    ) -> tuple[list[np.ndarray], float]:
        with self.precision():
            hidden_TW = self._hidden(model, [example.tokens for example in examples])
        # what the output layer makes is by far the largest: it is gone through in pieces, there and back
        output_TW = hidden_TW.detach().requires_grad_(is_training)
        inputs = {
            name: torch.cat([example.inputs[name] for example in examples]).to(self._device)
            for name in input_names(loss, examples[0].inputs)
        }
        ends = np.cumsum([len(example.tokens) for example in examples])
        if loss == "gspo":
            inputs["sequence_log_ratio"] = self._sequence_log_ratios(
                model, output_TW.detach(), inputs, ends[:-1].tolist()
            )
        logprobs, value = self._through_head(model, output_TW, inputs, loss, options, is_training)
        if hidden_TW.requires_grad and output_TW.grad is not None and math.isfinite(value):
            hidden_TW.backward(output_TW.grad)
        return np.split(logprobs.cpu().numpy(), ends[:-1]), value

    def _through_head(
        self,
        model: Any,
        hidden_TW: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        loss: str,
        options: Mapping[str, float],
        is_training: bool,
    ) -> tuple[torch.Tensor, float]:
        """Return the logprobs of all targets, and the loss; add up gradients.

        Most tokens of a prompt move nothing, and the way back through the output layer is spared for them.
        """
        is_moving = has_gradient(loss, inputs)
        # first those that nothing is computed from but their logprobs
        logprobs, total = self._logprobs_without_gradient(model, hidden_TW, inputs["target_tokens"], ~is_moving), 0.0
        for piece in _pieces(is_moving):
            piece_logprobs = self._token_logprobs(model, hidden_TW[piece], inputs["target_tokens"][piece])
            part = loss_sum(loss, options, piece_logprobs, {name: values[piece] for name, values in inputs.items()})
            if is_training:
                part.backward()
            logprobs[piece], total = piece_logprobs.detach(), total + float(part.detach())
        return logprobs, total

    def _sequence_log_ratios(
        self, model: Any, hidden_TW: torch.Tensor, inputs: Mapping[str, torch.Tensor], ends: Sequence[int]
    ) -> torch.Tensor:
        """Return for every token the log ratio of its example, which all its tokens have to be known for."""
        mask = inputs["sequence_ratio_mask"]
        is_counted = mask.reshape(len(mask), -1).any(-1)
        logprobs = self._logprobs_without_gradient(model, hidden_TW, inputs["target_tokens"], is_counted)
        parts = [values.tensor_split(ends) for values in (logprobs, mask, inputs["logprobs"])]
        return torch.cat(
            [
                sequence_log_ratio(logprob, {"sequence_ratio_mask": mask, "logprobs": sampled})
                for logprob, mask, sampled in zip(*parts, strict=True)
            ]
        )

    def _logprobs_without_gradient(
        self, model: Any, hidden_TW: torch.Tensor, targets: torch.Tensor, is_chosen: torch.Tensor
    ) -> torch.Tensor:
        """Return the logprobs of the targets that are chosen; the others are not filled in."""
        logprobs = torch.empty(targets.shape, dtype=torch.float32, device=self._device)
        with torch.no_grad():
            for piece in _pieces(is_chosen):
                logprobs[piece] = self._token_logprobs(model, hidden_TW[piece], targets[piece])
        return logprobs

    def _hidden(self, model: Any, texts: Sequence[list[int]]) -> torch.Tensor:
        """Return what comes before the output layer, (T, W); logits where that is all one can have."""
        if self._has_rows:
            ids = torch.tensor([[token for tokens in texts for token in tokens]])
            with attending_in_rows(self._base, [len(tokens) for tokens in texts]) as arguments:
                states: torch.Tensor = model.model(input_ids=ids, use_cache=False, **arguments).last_hidden_state[0]
            return states
        length = max(map(len, texts))
        ids = torch.zeros((len(texts), length), dtype=torch.long)
        mask = torch.zeros((len(texts), length), dtype=torch.long)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        inputs = {"input_ids": ids.to(self._device), "attention_mask": mask.to(self._device), "use_cache": False}
        padded = model.model(**inputs).last_hidden_state if self._has_plain_head else model(**inputs).logits
        return padded[inputs["attention_mask"].bool()]

    def _token_logprobs(self, model: Any, hidden_TW: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with self.precision():
            logits = model.lm_head(hidden_TW) if self._has_plain_head else hidden_TW
        return chosen_logprobs(logits, targets.reshape(targets.shape[0], -1)).reshape(targets.shape)

    def precision(self) -> torch.autocast:
        """Return the context in which passes through the model are made."""
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self.is_half)


def _pieces(is_chosen: torch.Tensor) -> list[torch.Tensor]:
    """Return the numbers of the chosen tokens, so many at a time."""
    return [piece for piece in is_chosen.nonzero().flatten().split(_PIECE_TOKENS) if len(piece)]
