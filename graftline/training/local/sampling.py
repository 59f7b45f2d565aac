"""Sequences drawn from a model, many at a time: prompts of several requests share every pass through the model.

Logprobs are those of the model as it is, at temperature 1, whatever the sequence was drawn with: what policy gradients
need.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from transformers import DynamicCache

from graftline.core.errors import DataError
from graftline.training.local.attention import attending_to_kept
from graftline.training.local.engine import Engine

_GREEDY = 1e-6
_NO_LOGPROB = -99999.0
"""In cells of a table that have none, as the wire has it."""
_TAIL_TOKENS = 32
"""In which a text that ends a sequence is looked for."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """One request: a prompt, and how to go on from it."""

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
class Drawn:
    """One sequence that was drawn."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: Literal["stop", "length"] = "length"
    top: TopK | None = None


@dataclass(slots=True)
class Sampled:
    """What came of one request."""

    sequences: list[Drawn]
    prompt_logprobs: list[float | None] | None = None
    """None for the first token, before which there is nothing."""
    prompt_top: TopK | None = None


@dataclass(slots=True)
class _Row:
    """One sequence on its way."""

    request: Sampling
    drawn: Drawn
    generator: torch.Generator
    stop_tokens: frozenset[int]
    stop_texts: tuple[str, ...]
    top_ids: list[np.ndarray] = field(default_factory=list)
    top_logprobs: list[np.ndarray] = field(default_factory=list)


def check_request(engine: Engine, request: Sampling) -> None:
    """Refuse what cannot be drawn.

    Raises:
        DataError: no or unknown tokens, too long a sequence, or a parameter out of range.
    """
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
    with torch.no_grad(), attending_to_kept(engine.base, engine.device):
        return _sample(engine, model, requests)


def _sample(engine: Engine, model: Any, requests: Sequence[Sampling]) -> list[Sampled]:
    ids, mask = _padded([request.prompt for request in requests], engine.device)
    cache = DynamicCache(config=engine.base.config)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    # logits of all positions are only made where somebody wants those of the prompt
    wanted = max((len(one.prompt) for one in requests if one.has_prompt_logprobs or one.topk_prompt), default=1)
    logits = _forward(engine, model, ids, mask, positions, cache, wanted)
    found = [_of_prompt(request, logits[number]) for number, request in enumerate(requests)]
    owners = [number for number, request in enumerate(requests) for _ in range(request.count)]
    rows = [_row(engine, requests[number], found[number], index) for index, number in _counted(owners)]
    indices = torch.tensor(owners, device=engine.device)
    cache.batch_select_indices(indices)
    mask, positions, last = mask[indices], positions[indices, -1], logits[indices, -1].float()
    while rows:
        chosen = _draw(engine, rows, last)
        alive = [number for number, row in enumerate(rows) if _goes_on(engine, row)]
        if not alive:
            break
        if len(alive) < len(rows):
            keep = torch.tensor(alive, device=engine.device)
            cache.batch_select_indices(keep)
            rows, mask, positions, chosen = [rows[n] for n in alive], mask[keep], positions[keep], chosen[keep]
        mask = torch.cat([mask, mask.new_ones((len(rows), 1))], -1)
        positions = positions + 1
        last = _forward(engine, model, chosen[:, None], mask, positions[:, None], cache, 1)[:, -1].float()
    return found


def _forward(
    engine: Engine, model: Any, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any, wanted: int
) -> torch.Tensor:
    # by their numbers: a slice would be one product for each sequence, with a copy of the output layer for each
    last = torch.arange(ids.shape[1] - min(wanted, ids.shape[1]), ids.shape[1], device=ids.device)
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


def _padded(prompts: Sequence[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, (prompts, tokens), padded on the left: what comes next stands at the end of each."""
    length = max(map(len, prompts))
    ids = torch.zeros((len(prompts), length), dtype=torch.long)
    mask = torch.zeros((len(prompts), length), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.tensor(prompt)
        mask[row, length - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


def _counted(owners: Sequence[int]) -> list[tuple[int, int]]:
    """Return for every row which one of its request it is, and the request."""
    return [(number - owners.index(owner), owner) for number, owner in enumerate(owners)]


def _row(engine: Engine, request: Sampling, found: Sampled, index: int) -> _Row:
    drawn = Drawn()
    found.sequences.append(drawn)
    generator = torch.Generator(device=engine.device)
    seed = request.seed if request.seed is not None else int.from_bytes(os.urandom(6), "little")
    generator.manual_seed((seed + index) % (1 << 63))
    if request.stop is None:
        return _Row(request, drawn, generator, engine.end_tokens, ())
    several: list[str | int] = [request.stop] if isinstance(request.stop, str) else [*request.stop]
    tokens = frozenset(one for one in several if isinstance(one, int))
    return _Row(request, drawn, generator, tokens, tuple(one for one in several if isinstance(one, str)))


def _of_prompt(request: Sampling, logits: torch.Tensor) -> Sampled:
    """Return what is known of the prompt: `logits` (positions, vocabulary), of its last positions at least."""
    found = Sampled([])
    if not (request.has_prompt_logprobs or request.topk_prompt):
        return found
    length = len(request.prompt)
    table = logits[-length:-1].float().log_softmax(-1) if length > 1 else logits[:0].float()
    if request.has_prompt_logprobs:
        targets = torch.tensor(request.prompt[1:], device=logits.device)
        found.prompt_logprobs = [None, *table.gather(-1, targets[:, None]).squeeze(-1).tolist()]
    if request.topk_prompt:
        values, ids = table.topk(request.topk_prompt, -1)
        none = np.full((1, request.topk_prompt), _NO_LOGPROB, np.float32)
        found.prompt_top = TopK(
            np.vstack([np.zeros((1, request.topk_prompt), np.int32), ids.cpu().numpy().astype(np.int32)]),
            np.vstack([none, values.cpu().numpy()]),
        )
    return found


def _draw(engine: Engine, rows: Sequence[_Row], logits: torch.Tensor) -> torch.Tensor:
    """Add a token to every row; return them, (rows,)."""
    normal = torch.logsumexp(logits, -1)
    chosen = torch.stack([_next(row, logits[number]) for number, row in enumerate(rows)])
    logprobs = (logits.gather(-1, chosen[:, None]).squeeze(-1) - normal).tolist()
    for number, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
        row.drawn.tokens.append(token)
        row.drawn.logprobs.append(logprobs[number])
        if row.request.topk_sampled:
            values, ids = logits[number].topk(row.request.topk_sampled)
            row.top_ids.append(ids.cpu().numpy().astype(np.int32))
            row.top_logprobs.append((values - normal[number]).cpu().numpy())
    return chosen


def _next(row: _Row, logits: torch.Tensor) -> torch.Tensor:
    request = row.request
    if request.temperature <= _GREEDY:
        return logits.argmax(-1)
    scaled = logits / request.temperature
    if 0 < request.top_k < scaled.shape[-1]:
        scaled = scaled.masked_fill(scaled < scaled.topk(request.top_k).values[-1], -torch.inf)
    if request.top_p < 1:
        values, order = scaled.sort(descending=True)
        before = values.softmax(-1).cumsum(-1) - values.softmax(-1)
        scaled = torch.full_like(scaled, -torch.inf).scatter(
            -1, order, values.masked_fill(before >= request.top_p, -torch.inf)
        )
    return torch.multinomial(scaled.softmax(-1), 1, generator=row.generator).squeeze(-1)


def _goes_on(engine: Engine, row: _Row) -> bool:
    """Return whether another token is to be drawn; what is known of the sequence is complete where not."""
    tokens = row.drawn.tokens
    has_stopped = tokens[-1] in row.stop_tokens or (
        bool(row.stop_texts) and any(text in engine.tokenizer.decode(tokens[-_TAIL_TOKENS:]) for text in row.stop_texts)
    )
    if has_stopped:
        row.drawn.stop_reason = "stop"
    elif len(tokens) < row.request.max_tokens:
        return True
    if row.request.topk_sampled:
        row.drawn.top = TopK(np.array(row.top_ids), np.array(row.top_logprobs))
    return False
