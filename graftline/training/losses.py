"""The losses of the Tinker API by name: what they are worked out of, and how they may be set.

What they are, with torch: `training/local/losses.py`; with numpy: `training/memory_model.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from graftline.core.errors import DataError

LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce")
CLIP_OPTIONS = ("clip_low_threshold", "clip_high_threshold")
"""Options that a datum may also have for each of its tokens, among its inputs."""
UNMARKED = "sequence_ratio_mask marks no token of a datum, but at least one was expected to be other than 0"
_CLIP = dict(zip(CLIP_OPTIONS, (0.8, 1.2), strict=True))
_OPTIONS = {"ppo": _CLIP, "cispo": _CLIP, "gspo": _CLIP, "dro": {"beta": 0.05}}


class Shaped(Protocol):
    """An array of numpy, or a tensor of torch."""

    @property
    def shape(self) -> Sequence[int]:
        """Its lengths."""


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


def used_inputs(loss: str, inputs: Mapping[str, Shaped]) -> tuple[str, ...]:
    """Return the names of the inputs that `loss` is worked out of."""
    if loss == "cross_entropy":
        return ("target_tokens", "weights") if "weights" in inputs else ("target_tokens",)
    mask = ("sequence_ratio_mask",) if loss == "gspo" else ()
    clips = (name for name in CLIP_OPTIONS if name in _OPTIONS.get(loss, {}) and name in inputs)
    return ("target_tokens", "logprobs", "advantages", *mask, *clips)


def check_inputs(loss: str, inputs: Mapping[str, Shaped], tokens: int) -> None:
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
