"""Attention on a processor, where that of torch is slow: over examples without padding, and of one token to those before.

While a model is trained, examples stand one after the other, and each sees itself alone. While it is sampled from, one token
of each sequence looks at keys and values that are kept.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_IN_ROWS, _TO_CACHE = "graftline_in_rows", "graftline_to_cache"
_SHORT_TOKENS = 256
"""Whose weights of attention take little memory."""


def can_attend_in_rows(base: Any, device: torch.device) -> bool:
    """Return whether `base` can be told where examples end: on a CPU, where every token attends to all before it.

    On a GPU, padding costs less than many small products.
    """
    config = base.config
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    return (
        device.type == "cpu"
        and config._attn_implementation == "sdpa"
        and getattr(config, "sliding_window", None) is None
        and set(kinds) == {"full_attention"}
    )


@contextmanager
def attending_in_rows(base: Any, lengths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield what a pass over examples of such `lengths`, (1, tokens) together, is to be called with besides its tokens."""
    with _attending(base, _IN_ROWS):
        yield {"position_ids": torch.cat([torch.arange(length) for length in lengths])[None], "row_lengths": lengths}


@contextmanager
def attending_to_cache(base: Any, device: torch.device) -> Iterator[None]:
    """Have passes with cached keys and values made by plain products where that is faster: on a CPU."""
    if device.type != "cpu" or base.config._attn_implementation != "sdpa":
        yield
        return
    with _attending(base, _TO_CACHE):
        yield


@contextmanager
def _attending(base: Any, name: str) -> Iterator[None]:
    usual = base.config._attn_implementation
    base.set_attn_implementation(name)
    try:
        yield
    finally:
        base.set_attn_implementation(usual)


def _attend_in_rows(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    row_lengths: Sequence[int],
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Return (1, tokens, heads, width), of a query (1, heads, tokens, width) and keys and values of as many heads or fewer."""
    lengths = list(row_lengths)
    queries, keys, values = (states[0].split(lengths, 1) for states in (query, key, value))
    rows = [_attend_row(*row, scaling) for row in zip(queries, keys, values, strict=True)]
    return torch.cat(rows, 1).transpose(0, 1)[None], None


def _attend_row(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
    heads, tokens, width = query.shape
    if tokens > _SHORT_TOKENS:
        return torch.nn.functional.scaled_dot_product_attention(
            query[None], key[None], value[None], is_causal=True, scale=scaling, enable_gqa=True
        )[0]
    # by plain products: torch's way back through its fused kernel is slow on a CPU. Heads that share keys are one product
    shared = query.reshape(len(key), -1, width)
    scores = (shared @ key.mT * scaling).view(-1, tokens, tokens) + _causal_mask()[:tokens, :tokens]
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(value.dtype)
    return (weights.view(len(key), -1, tokens) @ value).view(heads, tokens, width)


@cache
def _causal_mask() -> torch.Tensor:
    """Return what is added to scores, one row for each token that looks: minus infinity for those that come after it.

    Not made as this module is loaded: the thread that did so would keep a worker of OpenMP, and those of the thread that
    trains would no longer spin while they wait.
    """
    return torch.full((_SHORT_TOKENS, _SHORT_TOKENS), -torch.inf).triu(1)


def _attend_to_cache(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Return (sequences, tokens, heads, width); `attention_mask` is true where a token may look."""
    sequences, heads, tokens, width = query.shape
    if tokens > 1:
        output: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
        return output
    # heads that share keys are one product, for which keys need not be copied
    scores = query.view(sequences, key.shape[1], -1, width) @ key.mT * scaling
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, -torch.inf)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(value.dtype)
    return (weights @ value).view(sequences, 1, heads, width), None


AttentionInterface.register(_IN_ROWS, _attend_in_rows)
AttentionInterface.register(_TO_CACHE, _attend_to_cache)
AttentionMaskInterface.register(_TO_CACHE, sdpa_mask)
