"""A language model that is a table: what comes next depends on the token before it, and on nothing else.

Its logits are a row of a matrix `W` that a seed draws and nothing changes. An adapter is LoRA on that matrix
(https://arxiv.org/abs/2106.09685): `W + alpha / rank * B A`, with `A` drawn from a seed and `B` zero at first. Gradients
are worked out by hand: where `g` is the slope of a loss by the logprob of a token, its slope by the logits of all tokens is
`g * (one_hot - p)`. The optimizer is AdamW (https://arxiv.org/abs/1711.05101) as torch has it.

Deviation from the layers of PEFT: 1. `A` is drawn from a normal distribution of variance `1 / rank`, for a token chooses one
of its columns, and the uniform one of PEFT assumes inputs without zeros.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graftline.core.errors import DataError
from graftline.training.local.losses import CLIP_OPTIONS, UNMARKED

Array = NDArray[np.float64]

ALPHA = 32
"""Of every adapter, whatever its rank, as that of the service."""
CONTEXT_TOKENS = 8192


@dataclass(slots=True)
class Adapter:
    """The two matrices of LoRA: `down` is `A`, (rank, vocabulary), and `up` is `B`, (vocabulary, rank)."""

    down: Array
    up: Array

    @property
    def scale(self) -> float:
        """What their product is multiplied with."""
        return ALPHA / len(self.down)

    def matrices(self) -> tuple[Array, Array]:
        """Return both of them, not copied."""
        return self.down, self.up

    def copy(self) -> "Adapter":
        """Return an adapter that is trained apart from this one."""
        return Adapter(self.down.copy(), self.up.copy())


def new_adapter(vocabulary: int, rank: int, seed: int) -> Adapter:
    """Return an adapter that changes nothing yet."""
    chance = np.random.default_rng(seed)
    return Adapter(chance.normal(0.0, 1 / math.sqrt(rank), (rank, vocabulary)), np.zeros((vocabulary, rank)))


class TableModel:
    """The table; `vocabulary` tokens, drawn from `seed`."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self.vocabulary = vocabulary
        self._logits = np.random.default_rng(seed).normal(0.0, 1.0, (vocabulary, vocabulary))

    def check_tokens(self, what: str, tokens: Sequence[int]) -> None:
        """Refuse what the table cannot read.

        Raises:
            DataError: there is no token, there are too many, or one is unknown.
        """
        if not tokens:
            raise DataError(f"{what}: has no tokens")
        if len(tokens) > CONTEXT_TOKENS:
            raise DataError(f"{what}: has {len(tokens)} tokens, but the memory model takes {CONTEXT_TOKENS}")
        wrong = [token for token in tokens if not 0 <= token < self.vocabulary]
        if wrong:
            raise DataError(
                f"{what}: token {wrong[0]} is not one of the {self.vocabulary} of the memory model; use its tokenizer"
            )

    def logprobs(self, adapter: Adapter | None, tokens: Sequence[int]) -> Array:
        """Return the logprobs of what comes after each of `tokens`: (T, vocabulary)."""
        logits: Array = self._logits[tokens]
        if adapter is not None:
            logits = logits + adapter.scale * adapter.down[:, tokens].T @ adapter.up.T
        logits = logits - logits.max(-1, keepdims=True)
        found: Array = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return found


@dataclass(slots=True)
class Gradients:
    """What was added up for both matrices of an adapter."""

    down: Array
    up: Array

    def add(
        self, adapter: Adapter, tokens: Sequence[int], targets_TK: NDArray[np.int64], logprobs: Array, slopes_TK: Array
    ) -> None:
        """Add those of one text.

        Args:
            adapter: That the gradients are of.
            tokens: Of the text.
            targets_TK: What is to come after each of them, in one or more ways.
            logprobs: As `TableModel.logprobs` returns them.
            slopes_TK: Of the loss, by the logprobs of the targets.
        """
        by_logits = -np.exp(logprobs) * slopes_TK.sum(-1, keepdims=True)
        np.add.at(by_logits, (np.arange(len(tokens))[:, None], targets_TK), slopes_TK)
        self.up += adapter.scale * by_logits.T @ adapter.down[:, tokens].T
        # the same token stands in a text more than once
        np.add.at(self.down.T, tokens, adapter.scale * by_logits @ adapter.up)

    def norm(self) -> float:
        """Return the length of both together."""
        return math.sqrt(float((self.down**2).sum() + (self.up**2).sum()))


def no_gradients(adapter: Adapter) -> Gradients:
    """Return what gradients of `adapter` are added to."""
    return Gradients(np.zeros_like(adapter.down), np.zeros_like(adapter.up))


@dataclass(slots=True)
class AdamW:
    """The state of the optimizer: steps taken, and the means of gradients and of their squares, of `down` and `up`."""

    steps: int = 0
    means: list[Array] = field(default_factory=list)
    squares: list[Array] = field(default_factory=list)

    def copy(self) -> "AdamW":
        """Return a state that goes on apart from this one."""
        return AdamW(self.steps, [one.copy() for one in self.means], [one.copy() for one in self.squares])

    def step(
        self,
        adapter: Adapter,
        gradients: Gradients,
        learning_rate: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        grad_clip_norm: float,
    ) -> float:
        """Change `adapter`; return the norm of the gradients before they were clipped."""
        norm = gradients.norm()
        clip = min(1.0, grad_clip_norm / (norm + 1e-6)) if grad_clip_norm > 0 else 1.0
        if not self.means:
            self.means = [np.zeros_like(one) for one in adapter.matrices()]
            self.squares = [np.zeros_like(one) for one in adapter.matrices()]
        self.steps += 1
        for number, (matrix, raw) in enumerate(zip(adapter.matrices(), (gradients.down, gradients.up), strict=True)):
            gradient = raw * clip
            mean, square = self.means[number], self.squares[number]
            mean += (1 - beta1) * (gradient - mean)
            square += (1 - beta2) * (gradient**2 - square)
            matrix *= 1 - learning_rate * weight_decay
            deviation = np.sqrt(square / (1 - beta2**self.steps)) + eps
            matrix -= learning_rate / (1 - beta1**self.steps) * mean / deviation
        return norm


def loss_and_slopes(
    loss: str, options: Mapping[str, float], logprobs: Array, inputs: Mapping[str, Array]
) -> tuple[float, Array]:
    """Return a loss of `training.local.losses`, summed, and its slope by each of `logprobs`; inputs have their shape.

    What each loss is stands in `training/local/losses.py`.
    """
    if loss == "cross_entropy":
        weights = inputs.get("weights", np.ones_like(logprobs))
        return float(-(logprobs * weights).sum()), -weights
    sampled, advantages = inputs["logprobs"], inputs["advantages"]
    ratio = np.exp(logprobs - sampled)
    if loss == "importance_sampling":
        return float(-(ratio * advantages).sum()), -ratio * advantages
    if loss == "dro":
        apart = logprobs - sampled
        total = -(logprobs * advantages - 0.5 * options["beta"] * apart**2).sum()
        return float(total), options["beta"] * apart - advantages
    if loss == "stable_reinforce":
        truncated = np.minimum(ratio, 1.0)
        return float(-(truncated * logprobs * advantages).sum()), -truncated * advantages
    if loss == "gspo":
        is_counted = inputs["sequence_ratio_mask"] != 0
        if not is_counted.any():
            raise DataError(UNMARKED)
        ratio = np.full_like(ratio, np.exp((logprobs - sampled)[is_counted].mean()))
    low, high = (inputs.get(name, np.array(options[name])) for name in CLIP_OPTIONS)
    clipped = np.clip(ratio, low, high)
    if loss in ("ppo", "gspo"):
        # where the clipped one is the smaller, nothing that the model does changes the loss
        is_clipped = clipped * advantages < ratio * advantages
        return float(-np.minimum(ratio * advantages, clipped * advantages).sum()), np.where(
            is_clipped, 0.0, -ratio * advantages
        )
    return float(-(clipped * logprobs * advantages).sum()), -clipped * advantages
