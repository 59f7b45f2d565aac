"""Passes through the model, there and back: many examples at a time."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graftline.core.errors import DataError
from graftline.training.local.attention import attending_in_rows, can_attend_in_rows
from graftline.training.local.losses import chosen_logprobs, has_gradient, loss_sum, sequence_log_ratio, used_inputs

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

    def __init__(self, base: Any, device: torch.device, is_half: bool, most_tokens: int) -> None:
        self._base, self._device, self.is_half = base, device, is_half
        # of half the width, twice as many tokens take the same memory
        self._most_tokens = most_tokens * (2 if is_half else 1)
        self._has_plain_head = base.config.model_type in _HIDDEN_THEN_HEAD
        self._has_rows = self._has_plain_head and can_attend_in_rows(base, device)

    def over(
        self, model: Any, examples: Sequence[Example], loss: str, options: Mapping[str, float], is_training: bool
    ) -> tuple[list[np.ndarray], dict[str, float]]:
        """Return the logprobs of every example's target tokens, and metrics; add up gradients where it is trained.

        Raises:
            DataError: the loss is not finite.
        """
        logprobs: list[np.ndarray] = [np.zeros(0, np.float32)] * len(examples)
        total = 0.0
        for batch in self._batches(examples, loss):
            found, value = self._pass(model, [examples[number] for number in batch], loss, options, is_training)
            if not math.isfinite(value):
                raise DataError(f"the loss is {value}; lower the learning rate, or look at the weights of the datums")
            total += value
            for number, values in zip(batch, found, strict=True):
                logprobs[number] = values
        return logprobs, {"loss:sum": total}

    def _batches(self, examples: Sequence[Example], loss: str) -> Iterator[list[int]]:
        """Yield numbers of examples that go through the model together.

        They have inputs of one kind, and about the same length where they are padded to it.
        """
        lengths = [len(example.tokens) for example in examples]
        kinds = [(used_inputs(loss, one.inputs), one.inputs["target_tokens"].shape[1:]) for one in examples]
        batch: list[int] = []
        for number in sorted(range(len(examples)), key=lambda number: (kinds[number], lengths[number])):
            before = sum(lengths[one] for one in batch) if self._has_rows else len(batch) * lengths[number]
            if batch and (before + lengths[number] > self._most_tokens or kinds[number] != kinds[batch[0]]):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    def _pass(
        self, model: Any, examples: Sequence[Example], loss: str, options: Mapping[str, float], is_training: bool
    ) -> tuple[list[np.ndarray], float]:
        with self.precision():
            hidden = self._hidden(model, [example.tokens for example in examples])
        # what the output layer makes is by far the largest: it is gone through in pieces, there and back
        output = hidden.detach().requires_grad_(is_training)
        inputs = {
            name: torch.cat([example.inputs[name] for example in examples]).to(self._device)
            for name in used_inputs(loss, examples[0].inputs)
        }
        ends = np.cumsum([len(example.tokens) for example in examples])
        if loss == "gspo":
            inputs["sequence_log_ratio"] = self._sequence_log_ratios(model, output.detach(), inputs, ends[:-1].tolist())
        logprobs, value = self._through_head(model, output, inputs, loss, options, is_training)
        if hidden.requires_grad and output.grad is not None and math.isfinite(value):
            hidden.backward(output.grad)
        return np.split(logprobs.cpu().numpy(), ends[:-1]), value

    def _through_head(
        self,
        model: Any,
        hidden: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        loss: str,
        options: Mapping[str, float],
        is_training: bool,
    ) -> tuple[torch.Tensor, float]:
        """Return the logprobs of all targets, and the loss; add up gradients.

        Most tokens of a prompt move nothing, and the way back through the output layer is spared for them.
        """
        targets, total = inputs["target_tokens"], 0.0
        logprobs = torch.empty(targets.shape, dtype=torch.float32, device=self._device)
        moving = has_gradient(loss, inputs)
        for piece in _pieces(moving):
            found = self._token_logprobs(model, hidden[piece], targets[piece])
            part = loss_sum(loss, options, found, {name: one[piece] for name, one in inputs.items()})
            if is_training:
                part.backward()
            logprobs[piece], total = found.detach(), total + float(part.detach())
        with torch.no_grad():
            for piece in _pieces(~moving):
                logprobs[piece] = self._token_logprobs(model, hidden[piece], targets[piece])
        return logprobs, total

    def _sequence_log_ratios(
        self, model: Any, hidden: torch.Tensor, inputs: Mapping[str, torch.Tensor], ends: Sequence[int]
    ) -> torch.Tensor:
        """Return for every token the log ratio of its example, which all its tokens have to be known for."""
        targets = inputs["target_tokens"]
        logprobs = torch.empty(targets.shape, dtype=torch.float32, device=self._device)
        with torch.no_grad():
            for piece in _pieces(inputs["sequence_ratio_mask"].reshape(len(targets), -1).any(-1)):
                logprobs[piece] = self._token_logprobs(model, hidden[piece], targets[piece])
        parts = [one.tensor_split(ends) for one in (logprobs, inputs["sequence_ratio_mask"], inputs["logprobs"])]
        return torch.cat(
            [
                sequence_log_ratio(p, {"sequence_ratio_mask": mask, "logprobs": q})
                for p, mask, q in zip(*parts, strict=True)
            ]
        )

    def _hidden(self, model: Any, texts: Sequence[list[int]]) -> torch.Tensor:
        """Return what comes before the output layer, (tokens of all texts, width); logits where that is all one can have."""
        if self._has_rows:
            ids = torch.tensor([[token for tokens in texts for token in tokens]])
            with attending_in_rows(self._base, [len(tokens) for tokens in texts]) as places:
                states: torch.Tensor = model.model(input_ids=ids, use_cache=False, **places).last_hidden_state[0]
            return states
        length = max(map(len, texts))
        ids = torch.zeros((len(texts), length), dtype=torch.long)
        mask = torch.zeros((len(texts), length), dtype=torch.long)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        asked = {"input_ids": ids.to(self._device), "attention_mask": mask.to(self._device), "use_cache": False}
        padded = model.model(**asked).last_hidden_state if self._has_plain_head else model(**asked).logits
        return padded[asked["attention_mask"].bool()]

    def _token_logprobs(self, model: Any, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with self.precision():
            logits = model.lm_head(hidden) if self._has_plain_head else hidden
        return chosen_logprobs(logits, targets.reshape(targets.shape[0], -1)).reshape(targets.shape)

    def precision(self) -> torch.autocast:
        """Return what the passes through the model are made in."""
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self.is_half)


def _pieces(chosen: torch.Tensor) -> list[torch.Tensor]:
    """Return the numbers of the tokens that are `chosen`, so many at a time."""
    return [piece for piece in chosen.nonzero().flatten().split(_PIECE_TOKENS) if len(piece)]
