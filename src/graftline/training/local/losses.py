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

Source: https://tinker-docs.thinkingmachines.ai/losses. `gspo` and `stable_reinforce` are names of the SDK whose formulas are
published nowhere; both are refused. The SDK makes `custom` losses of two passes of `cross_entropy`.
"""

from collections.abc import Mapping

import torch

from graftline.errors import DataError

LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro")
_CLIP_LOW, _CLIP_HIGH, _BETA = 0.8, 1.2, 0.05
_OPTIONS = {
    "ppo": {"clip_low_threshold": _CLIP_LOW, "clip_high_threshold": _CLIP_HIGH},
    "cispo": {"clip_low_threshold": _CLIP_LOW, "clip_high_threshold": _CLIP_HIGH},
    "dro": {"beta": _BETA},
}

Inputs = Mapping[str, torch.Tensor]


def checked_options(loss: str, given: Mapping[str, object]) -> dict[str, float]:
    """Return the options of `loss`, defaults where none are given.

    Raises:
        DataError: there is no such loss, or it has no such option.
    """
    if loss not in LOSSES:
        raise DataError(f"loss_fn {loss!r} is not one of this backend; it has {', '.join(LOSSES)}")
    known = _OPTIONS.get(loss, {})
    for name, value in given.items():
        if name not in known:
            raise DataError(f"{loss} has no option {name!r}; it has {', '.join(known) or 'none'}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"{name} of {loss} is {value!r}, but a number was expected")
    return {name: float(str(given.get(name, default))) for name, default in known.items()}


def used_inputs(loss: str, inputs: Inputs) -> tuple[str, ...]:
    """Return the names of the inputs that `loss` is worked out of."""
    if loss == "cross_entropy":
        return ("target_tokens", "weights") if "weights" in inputs else ("target_tokens",)
    return ("target_tokens", "logprobs", "advantages")


def check_inputs(loss: str, inputs: Inputs, tokens: int) -> None:
    """Refuse a datum of `tokens` tokens that `loss` cannot be worked out of.

    Raises:
        DataError: an input is missing, or of another shape.
    """
    used = used_inputs(loss, inputs)
    for name in used:
        if name not in inputs:
            raise DataError(f"{loss} needs {name} in loss_fn_inputs; there are {', '.join(sorted(inputs)) or 'none'}")
    shape = inputs["target_tokens"].shape
    if not 1 <= len(shape) <= 2 or shape[0] != tokens:
        raise DataError(f"target_tokens is of shape {tuple(shape)}, but model_input has {tokens} tokens")
    for name in used:
        if inputs[name].shape != shape:
            raise DataError(f"{name} is of shape {tuple(inputs[name].shape)}, but target_tokens of {tuple(shape)}")


def has_gradient(loss: str, inputs: Inputs) -> torch.Tensor:
    """Return for every token whether it moves the loss: (T,) of bool."""
    if loss == "dro" or (loss == "cross_entropy" and "weights" not in inputs):
        return torch.ones(inputs["target_tokens"].shape[0], dtype=torch.bool)
    factors = inputs["weights" if loss == "cross_entropy" else "advantages"]
    return (factors != 0).reshape(factors.shape[0], -1).any(-1)


def loss_sum(loss: str, options: Mapping[str, float], logprobs: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return the loss of tokens whose `logprobs` and `inputs` have the same shape, (N,) or (N, K)."""
    if loss == "cross_entropy":
        weights = inputs.get("weights")
        return -(logprobs if weights is None else logprobs * weights).sum()
    sampled, advantages = inputs["logprobs"], inputs["advantages"]
    ratio = torch.exp(logprobs - sampled)
    if loss == "importance_sampling":
        return -(ratio * advantages).sum()
    if loss == "dro":
        return -(logprobs * advantages - 0.5 * options["beta"] * (logprobs - sampled) ** 2).sum()
    clipped = ratio.clamp(options["clip_low_threshold"], options["clip_high_threshold"])
    if loss == "ppo":
        return -torch.minimum(ratio * advantages, clipped * advantages).sum()
    return -(clipped.detach() * logprobs * advantages).sum()
