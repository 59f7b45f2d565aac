"""Sequences drawn from a model, many at a time: prompts of several requests share every pass through the model.

Logprobs are those of the model as it is, at temperature 1, whatever the sequence was drawn with: what policy gradients
need. Axes of tensors: P prompts, S sequences, T tokens, V vocabulary.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from transformers import DynamicCache

from graftline.core.errors import DataError
from graftline.training.local.attention import attending_to_cache
from graftline.training.local.engine import Engine

_GREEDY = 1e-6
_NO_LOGPROB = -99999.0
"""In cells of a table that have none, as the wire has it."""
_TAIL_TOKENS = 32
"""In which a text that ends a sequence is looked for."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """One request: a prompt, and how to continue it."""

    prompt: list[int]
    count: int = 1
    max_tokens: int = 256
    temperature: float = 1.0
    top_k: int = -1
    """The most probable so many; all if it is not above 0."""
    top_p: float = 1.0
    seed: int | None = None
    stop: str | Sequence[str | int] | None = None
    """Texts or tokens that end a sequence, and stay part of it; those of the model where none are given."""
    has_prompt_logprobs: bool = False
    topk_prompt: int = 0
    topk_sampled: int = 0

    @property
    def length(self) -> int:
        """The most tokens, prompt included."""
        return len(self.prompt) + self.max_tokens


@dataclass(frozen=True, slots=True)
class TopK:
    """The most probable tokens: ids int32 and logprobs float32, both (positions, k)."""

    ids: np.ndarray
    logprobs: np.ndarray


@dataclass(slots=True)
class SampledSequence:
    """One sequence that was drawn."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: Literal["stop", "length"] = "length"
    top: TopK | None = None


@dataclass(slots=True)
class Sampled:
    """The result of one request."""

    sequences: list[SampledSequence]
    prompt_logprobs: list[float | None] | None = None
    """None for the first token, before which there is nothing."""
    prompt_top: TopK | None = None


@dataclass(slots=True)
class _Row:
    """One sequence on its way."""

    request: Sampling
    sequence: SampledSequence
    generator: torch.Generator
    stop_tokens: frozenset[int]
    stop_texts: tuple[str, ...]
    top_ids: list[np.ndarray] = field(default_factory=list)
    top_logprobs: list[np.ndarray] = field(default_factory=list)


def check_request(engine: Engine, request: Sampling) -> None:
    """Raise DataError where there are no or unknown tokens, too long a sequence, or a parameter out of range."""
    if not request.prompt:
        raise DataError("the prompt has no tokens")
    engine.check_tokens("the prompt", request.prompt)
    if request.length > engine.context:
        raise DataError(
            f"the prompt has {len(request.prompt)} tokens and max_tokens is {request.max_tokens}, together more than the"
            f" {engine.context} of {engine.name}"
        )
    for name, value, least in (("num_samples", request.count, 1), ("max_tokens", request.max_tokens, 1)):
        if value < least:
            raise DataError(f"{name} is {value}, but {least} or more was expected")
    for name, value in (("topk_prompt_logprobs", request.topk_prompt), ("topk_sample_logprobs", request.topk_sampled)):
        if not 0 <= value <= engine.vocabulary:
            raise DataError(f"{name} is {value}, but {engine.name} has {engine.vocabulary} tokens")
    if not (request.temperature >= 0 and 0 < request.top_p <= 1):
        raise DataError(
            f"temperature is {request.temperature} and top_p {request.top_p}; 0 or more, and above 0 to 1, were expected"
        )


def sample(engine: Engine, model: Any, requests: Sequence[Sampling]) -> list[Sampled]:
    """Return what is drawn from `model` for each of `requests`, which `check_request` has let pass."""
    with torch.no_grad(), attending_to_cache(engine.base, engine.device):
        return _sample(engine, model, requests)


def _sample(engine: Engine, model: Any, requests: Sequence[Sampling]) -> list[Sampled]:
    ids_PT, mask_PT = _pad([request.prompt for request in requests], engine.device)
    cache = DynamicCache(config=engine.base.config)
    positions_PT = (mask_PT.cumsum(-1) - 1).clamp(min=0)
    # logits of all positions are only made where a request asks for those of the prompt
    positions = max(
        (len(request.prompt) for request in requests if request.has_prompt_logprobs or request.topk_prompt), default=1
    )
    logits_PTV = _forward(engine, model, ids_PT, mask_PT, positions_PT, cache, positions)
    results = [_prompt_result(request, logits_PTV[number]) for number, request in enumerate(requests)]
    prompts_S = [number for number, request in enumerate(requests) for _ in range(request.count)]
    rows = [
        _row(engine, requests[prompt], results[prompt], index - prompts_S.index(prompt))
        for index, prompt in enumerate(prompts_S)
    ]
    indices_S = torch.tensor(prompts_S, device=engine.device)
    cache.batch_select_indices(indices_S)
    mask_ST, positions_S, last_SV = (
        mask_PT[indices_S],
        positions_PT[indices_S, -1],
        logits_PTV[indices_S, -1].float(),
    )
    while rows:
        chosen_S = _draw_tokens(engine, rows, last_SV)
        alive = [number for number, row in enumerate(rows) if _continues(engine, row)]
        if not alive:
            break
        if len(alive) < len(rows):
            keep = torch.tensor(alive, device=engine.device)
            cache.batch_select_indices(keep)
            rows = [rows[number] for number in alive]
            mask_ST, positions_S, chosen_S = mask_ST[keep], positions_S[keep], chosen_S[keep]
        mask_ST = torch.cat([mask_ST, mask_ST.new_ones((len(rows), 1))], -1)
        positions_S = positions_S + 1
        logits_STV = _forward(engine, model, chosen_S[:, None], mask_ST, positions_S[:, None], cache, 1)
        last_SV = logits_STV[:, -1].float()
    return results


def _forward(
    engine: Engine,
    model: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    cache: Any,
    last_positions: int,
) -> torch.Tensor:
    # by their numbers: a slice would be one product for each sequence, with a copy of the output layer for each
    last = torch.arange(ids.shape[1] - min(last_positions, ids.shape[1]), ids.shape[1], device=ids.device)
    with engine.passes.precision():
        logits: torch.Tensor = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=last,
        ).logits
    return logits


def _pad(prompts: Sequence[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, (P, T), padded on the left: what comes next stands at the end of each."""
    length = max(map(len, prompts))
    ids_PT = torch.zeros((len(prompts), length), dtype=torch.long)
    mask_PT = torch.zeros((len(prompts), length), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids_PT[row, length - len(prompt) :] = torch.tensor(prompt)
        mask_PT[row, length - len(prompt) :] = 1
    return ids_PT.to(device), mask_PT.to(device)


def _row(engine: Engine, request: Sampling, result: Sampled, index: int) -> _Row:
    """Return the sequence `index` of `request`, which becomes one of its `result`."""
    sequence = SampledSequence()
    result.sequences.append(sequence)
    generator = torch.Generator(device=engine.device)
    seed = request.seed if request.seed is not None else int.from_bytes(os.urandom(6), "little")
    generator.manual_seed((seed + index) % (1 << 63))
    if request.stop is None:
        return _Row(request, sequence, generator, engine.end_tokens, ())
    stops: list[str | int] = [request.stop] if isinstance(request.stop, str) else [*request.stop]
    tokens = frozenset(stop for stop in stops if isinstance(stop, int))
    return _Row(request, sequence, generator, tokens, tuple(stop for stop in stops if isinstance(stop, str)))


def _prompt_result(request: Sampling, logits_TV: torch.Tensor) -> Sampled:
    """Return the logprobs of the prompt that were asked for, of logits of its last positions at least."""
    result = Sampled([])
    if not (request.has_prompt_logprobs or request.topk_prompt):
        return result
    length = len(request.prompt)
    table_TV = logits_TV[-length:-1].float().log_softmax(-1) if length > 1 else logits_TV[:0].float()
    if request.has_prompt_logprobs:
        targets = torch.tensor(request.prompt[1:], device=logits_TV.device)
        result.prompt_logprobs = [None, *table_TV.gather(-1, targets[:, None]).squeeze(-1).tolist()]
    if request.topk_prompt:
        values, ids = table_TV.topk(request.topk_prompt, -1)
        none = np.full((1, request.topk_prompt), _NO_LOGPROB, np.float32)
        result.prompt_top = TopK(
            np.vstack([np.zeros((1, request.topk_prompt), np.int32), ids.cpu().numpy().astype(np.int32)]),
            np.vstack([none, values.cpu().numpy()]),
        )
    return result


def _draw_tokens(engine: Engine, rows: Sequence[_Row], logits_SV: torch.Tensor) -> torch.Tensor:
    """Add a token to every row; return them, (S,)."""
    normal_S = torch.logsumexp(logits_SV, -1)
    chosen_S = torch.stack([_next_token(row, logits_SV[number]) for number, row in enumerate(rows)])
    logprobs = (logits_SV.gather(-1, chosen_S[:, None]).squeeze(-1) - normal_S).tolist()
    for number, (row, token) in enumerate(zip(rows, chosen_S.tolist(), strict=True)):
        row.sequence.tokens.append(token)
        row.sequence.logprobs.append(logprobs[number])
        if row.request.topk_sampled:
            values, ids = logits_SV[number].topk(row.request.topk_sampled)
            row.top_ids.append(ids.cpu().numpy().astype(np.int32))
            row.top_logprobs.append((values - normal_S[number]).cpu().numpy())
    return chosen_S


def _next_token(row: _Row, logits_V: torch.Tensor) -> torch.Tensor:
    request = row.request
    if request.temperature <= _GREEDY:
        return logits_V.argmax(-1)
    scaled_V = logits_V / request.temperature
    if 0 < request.top_k < scaled_V.shape[-1]:
        scaled_V = scaled_V.masked_fill(scaled_V < scaled_V.topk(request.top_k).values[-1], -torch.inf)
    if request.top_p < 1:
        values_V, order_V = scaled_V.sort(descending=True)
        before_V = values_V.softmax(-1).cumsum(-1) - values_V.softmax(-1)
        scaled_V = torch.full_like(scaled_V, -torch.inf).scatter(
            -1, order_V, values_V.masked_fill(before_V >= request.top_p, -torch.inf)
        )
    return torch.multinomial(scaled_V.softmax(-1), 1, generator=row.generator).squeeze(-1)


def _continues(engine: Engine, row: _Row) -> bool:
    """Return whether another token is to be drawn; where not, the sequence is complete."""
    tokens = row.sequence.tokens
    has_stopped = tokens[-1] in row.stop_tokens or (
        bool(row.stop_texts) and any(text in engine.tokenizer.decode(tokens[-_TAIL_TOKENS:]) for text in row.stop_texts)
    )
    if has_stopped:
        row.sequence.stop_reason = "stop"
    elif len(tokens) < row.request.max_tokens:
        return True
    if row.request.topk_sampled:
        row.sequence.top = TopK(np.array(row.top_ids), np.array(row.top_logprobs))
    return False
