"""The losses of the Tinker API, each a sum over the tokens of one datum.

With `p` the logprobs of the model that is trained, `q` those the tokens were sampled with, `A` the advantages and
`r = exp(p - q)`:

| loss | is |
|---|---|
| `cross_entropy` | `-(p * weights)` |
| `importance_sampling` | `-(r * A)` |
| `ppo` | `-min(r * A, clip(r) * A)` |
| `cispo` | `-(clip(r) * p * A)`, without a gradient through the ratio |
| `dro` | `-(p * A - beta / 2 * (p - q)^2)` |
| `gspo` | `-min(s * A, clip(s) * A)`; `s` has the value `exp(mean(p - q))` over a sequence and the gradient of its own `p` |
| `stable_reinforce` | `-(min(r, 1) * p * A)`, without a gradient through the ratio; `q` is what the sampler recorded |

Source: https://tinker-docs.thinkingmachines.ai/tinker/losses; `gspo` is the token variant of https://arxiv.org/abs/2507.18071,
over the tokens that `sequence_ratio_mask` marks. The SDK makes `custom` losses of two passes of `cross_entropy`.

Deviation: the service publishes how `stable_reinforce` is called and what it is for, but no formula. Here it is REINFORCE with
the truncated importance weights of https://arxiv.org/abs/1802.01561: a token that has become more probable since it was drawn
counts once, and one that has become less probable counts less.
"""

from collections.abc import Mapping
from typing import Any

import torch

from graftline.core.errors import DataError

Inputs = Mapping[str, torch.Tensor]

LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce")
_CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
"""Options that a datum may also have for each of its tokens, among its inputs."""
_OPTIONS = {"ppo": _CLIP, "cispo": _CLIP, "gspo": _CLIP, "dro": {"beta": 0.05}}


def loss_options(loss: str, values: Mapping[str, object]) -> dict[str, float]:
    """Return the options of `loss`, those in `values` in place of defaults; DataError where it has no such option."""
    if loss not in LOSSES:
        raise DataError(f"loss_fn {loss!r} is not one of this backend; it has {', '.join(LOSSES)}")
    defaults = _OPTIONS.get(loss, {})
    for name, value in values.items():
        if name not in defaults:
            raise DataError(f"{loss} has no option {name!r}; it has {', '.join(defaults) or 'none'}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"{name} of {loss} is {value!r}, but a number was expected")
    return {name: float(str(values.get(name, default))) for name, default in defaults.items()}


def input_names(loss: str, inputs: Inputs) -> tuple[str, ...]:
    """Return the names of the inputs that `loss` is computed from."""
    if loss == "cross_entropy":
        return ("target_tokens", "weights") if "weights" in inputs else ("target_tokens",)
    mask = ("sequence_ratio_mask",) if loss == "gspo" else ()
    clips = (name for name in _CLIP if name in _OPTIONS.get(loss, {}) and name in inputs)
    return ("target_tokens", "logprobs", "advantages", *mask, *clips)


def check_inputs(loss: str, inputs: Inputs, tokens: int) -> None:
    """Raise DataError where an input of a datum of so many `tokens` is missing, or of another shape."""
    names = input_names(loss, inputs)
    for name in names:
        if name not in inputs:
            raise DataError(f"{loss} needs {name} in loss_fn_inputs; there are {', '.join(sorted(inputs)) or 'none'}")
    shape = inputs["target_tokens"].shape
    if not 1 <= len(shape) <= 2 or shape[0] != tokens:
        raise DataError(f"target_tokens is of shape {tuple(shape)}, but model_input has {tokens} tokens")
    for name in names:
        if inputs[name].shape != shape:
            raise DataError(f"{name} is of shape {tuple(inputs[name].shape)}, but target_tokens of {tuple(shape)}")


def has_gradient(loss: str, inputs: Inputs) -> torch.Tensor:
    """Return for every token whether it moves the loss: (T,) of bool."""
    if loss == "dro" or (loss == "cross_entropy" and "weights" not in inputs):
        return torch.ones(inputs["target_tokens"].shape[0], dtype=torch.bool)
    factors = inputs["weights" if loss == "cross_entropy" else "advantages"]
    return (factors != 0).reshape(factors.shape[0], -1).any(-1)


class _ChosenLogprobs(torch.autograd.Function):  # type: ignore[misc]
    """Over the whole vocabulary, where each pass over a table takes longer than what it computes."""

    @staticmethod
    def forward(ctx: Any, logits_TV: torch.Tensor, chosen_TK: torch.Tensor) -> torch.Tensor:
        table_TV = torch.log_softmax(logits_TV, -1, dtype=torch.float32)
        ctx.save_for_backward(table_TV, chosen_TK)
        ctx.dtype = logits_TV.dtype
        return table_TV.gather(-1, chosen_TK)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient_TK,), (table_TV, chosen_TK) = gradients, ctx.saved_tensors
        slopes_TV = table_TV.exp().mul_(-gradient_TK.sum(-1, keepdim=True)).scatter_add_(-1, chosen_TK, gradient_TK)
        return slopes_TV.to(ctx.dtype), None


def chosen_logprobs(logits_TV: torch.Tensor, chosen_TK: torch.Tensor) -> torch.Tensor:
    """Return the logprobs (T, K), in float32, of the chosen tokens of a vocabulary."""
    logprobs_TK: torch.Tensor = _ChosenLogprobs.apply(logits_TV, chosen_TK)
    return logprobs_TK


def sequence_log_ratio(logprobs: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return for every token of one sequence the mean of `p - q` over the tokens that `sequence_ratio_mask` marks."""
    is_counted = inputs["sequence_ratio_mask"] != 0
    if not bool(is_counted.any()):
        raise DataError(
            "sequence_ratio_mask marks no token of a datum, but at least one was expected to be other than 0"
        )
    return (logprobs.detach() - inputs["logprobs"])[is_counted].mean().expand(logprobs.shape)


def loss_sum(loss: str, options: Mapping[str, float], logprobs: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return the loss of tokens whose `logprobs` and `inputs` have the same shape, (T,) or (T, K).

    Of `gspo`, `inputs` have the `sequence_log_ratio` as well, for the tokens may be a part of a sequence.
    """
    if loss == "cross_entropy":
        weights = inputs.get("weights")
        return -(logprobs if weights is None else logprobs * weights).sum()
    sampled, advantages = inputs["logprobs"], inputs["advantages"]
    ratio = torch.exp(logprobs - sampled)
    if loss == "importance_sampling":
        return -(ratio * advantages).sum()
    if loss == "dro":
        return -(logprobs * advantages - 0.5 * options["beta"] * (logprobs - sampled) ** 2).sum()
    if loss == "stable_reinforce":
        return -(ratio.clamp(max=1).detach() * logprobs * advantages).sum()
    if loss == "gspo":
        ratio = torch.exp(inputs["sequence_log_ratio"] + logprobs - logprobs.detach())
    low, high = (inputs.get(name, ratio.new_tensor(options[name])) for name in _CLIP)
    clipped = ratio.clamp(low, high)
    if loss in ("ppo", "gspo"):
        return -torch.minimum(ratio * advantages, clipped * advantages).sum()
    return -(clipped.detach() * logprobs * advantages).sum()
