"""What samples from the table, with an adapter or without: as `SamplingClient` of the Tinker SDK, its sampling alone."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from graftline.core.errors import DataError
from graftline.training.memory.answers import answered
from graftline.training.memory.model import CONTEXT_TOKENS, Adapter, Array, TableModel
from graftline.training.memory.tokenizer import MemoryTokenizer

if TYPE_CHECKING:
    from tinker import types

_GREEDY = 1e-6
_DEFAULT_MAX_TOKENS = 256
_TAIL_TOKENS = 32
"""In which a text that ends a sequence is looked for."""


class MemorySampler:
    """A model as it was when it was asked for.

    Args:
        model: The table.
        adapter: None for the table itself.
        seed: Of what is drawn where a request has none; the same requests in the same order draw the same.
    """

    def __init__(self, model: TableModel, adapter: Adapter | None, seed: int) -> None:
        self._model, self._adapter = model, adapter
        self._seeds = np.random.default_rng(seed)
        self._tokenizer = MemoryTokenizer()

    def sample(
        self,
        prompt: "types.ModelInput",
        num_samples: int,
        sampling_params: "types.SamplingParams",
        include_prompt_logprobs: bool = False,
    ) -> "Future[types.SampleResponse]":
        """See `Sampler`."""
        return answered(lambda: self._sampled(prompt.to_ints(), num_samples, sampling_params, include_prompt_logprobs))

    def compute_logprobs(self, prompt: "types.ModelInput") -> "Future[list[float | None]]":
        """See `Sampler`."""
        return answered(lambda: self._prompt_logprobs(prompt.to_ints()))

    def _sampled(
        self, prompt: list[int], count: int, params: "types.SamplingParams", include_prompt_logprobs: bool
    ) -> "types.SampleResponse":
        from tinker import types

        self._check(prompt, count, params)
        seed = params.seed if params.seed is not None else int(self._seeds.integers(1 << 31))
        sequences = []
        for number in range(count):
            tokens, logprobs, has_stopped = self._drawn(prompt[-1], params, np.random.default_rng([seed, number]))
            sequences.append(
                types.SampledSequence(
                    stop_reason="stop" if has_stopped else "length",
                    sequence_id=f"{seed}-{number}",
                    tokens_np=np.array(tokens, np.int32),
                    logprobs_np=np.array(logprobs, np.float32),
                )
            )
        found = self._prompt_logprobs(prompt) if include_prompt_logprobs else None
        return types.SampleResponse(sequences, _prompt_logprobs_list=found)

    def _check(self, prompt: Sequence[int], count: int, params: "types.SamplingParams") -> None:
        self._model.check_tokens("the prompt", prompt)
        if count < 1:
            raise DataError(f"num_samples is {count}, but 1 or more was expected")
        max_tokens = params.max_tokens
        if max_tokens is not None and not 1 <= max_tokens <= CONTEXT_TOKENS - len(prompt):
            raise DataError(
                f"max_tokens is {max_tokens} after a prompt of {len(prompt)}, but 1 to {CONTEXT_TOKENS} in all was expected"
            )
        if not (params.temperature >= 0 and 0 < params.top_p <= 1):
            raise DataError(
                f"temperature is {params.temperature} and top_p {params.top_p}; 0 or more, and above 0 to 1, were expected"
            )

    def _drawn(
        self, last: int, params: "types.SamplingParams", chance: np.random.Generator
    ) -> tuple[list[int], list[float], bool]:
        """Return tokens, their logprobs, and whether a stop ended them."""
        given = params.stop if params.stop is not None else [self._tokenizer.eos_token_id]
        stops: list[str | int] = [given] if isinstance(given, str) else [*given]
        texts = [stop for stop in stops if isinstance(stop, str)]
        tokens: list[int] = []
        logprobs: list[float] = []
        for _ in range(params.max_tokens or _DEFAULT_MAX_TOKENS):
            row = self._model.logprobs(self._adapter, [tokens[-1] if tokens else last])[0]
            token = _chosen(row, params, chance)
            tokens.append(token)
            logprobs.append(float(row[token]))
            tail = self._tokenizer.decode(tokens[-_TAIL_TOKENS:]) if texts else ""
            if token in stops or any(text in tail for text in texts):
                return tokens, logprobs, True
        return tokens, logprobs, False

    def _prompt_logprobs(self, prompt: list[int]) -> list[float | None]:
        self._model.check_tokens("the prompt", prompt)
        table = self._model.logprobs(self._adapter, prompt[:-1])
        return [None, *(float(row[token]) for row, token in zip(table, prompt[1:], strict=True))]


def _chosen(logprobs: Array, params: "types.SamplingParams", chance: np.random.Generator) -> int:
    if params.temperature <= _GREEDY:
        return int(logprobs.argmax())
    scaled = logprobs / params.temperature
    order = np.argsort(-scaled, kind="stable")
    chances = np.exp(scaled - scaled.max())[order]
    if params.top_k > 0:
        chances[params.top_k :] = 0.0
    chances /= chances.sum()
    # the most probable one always stays
    chances[np.cumsum(chances) - chances >= params.top_p] = 0.0
    return int(chance.choice(order, p=chances / chances.sum()))
