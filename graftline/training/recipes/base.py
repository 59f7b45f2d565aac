"""What the loop of `training.train` asks of a recipe."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from graftline.sandbox.base import Sandbox
from graftline.training.datums import trained_tokens
from graftline.training.service import Awaited, Trainer, TrainingService

if TYPE_CHECKING:
    from tinker import types

OpenSandbox = Callable[[], Sandbox]
"""Returns the sandbox of whoever trains; called by recipes that grade answers."""


@dataclass(frozen=True, slots=True)
class Example:
    """What a step is counted in: the datums that belong together."""

    datums: "tuple[types.Datum, ...]"
    """Of a question whose answers are drawn while training goes on: the question."""
    tokens: int
    """That go through the model; at most, where answers are yet to be drawn."""
    trained_tokens: int
    """Targets with a weight above 0."""
    item: Any = None
    """What a recipe needs beside: the task of a question, say."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Examples, and what they were made of."""

    train: list[Example]
    held_out: list[Example]
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files, by what they are."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows that no example was made of, by reason."""
    too_long: Sequence[int] = ()
    """Tokens of those that were dropped for their length."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained, and by whom."""

    run_id: str
    service: TrainingService
    trainer: Trainer
    data: TrainingData
    known: Mapping[str, Any]
    """What `Recipe.prepare` returned."""

    def examples(self, batch: Sequence[int]) -> list[Example]:
        """Return the examples with the numbers in `batch`."""
        return [self.data.train[number] for number in batch]


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of a step, on their way."""

    future: Awaited[Any] | None
    """None where nothing is to be learned of the batch: then no step of the optimizer is taken."""
    tokens: int
    """That went through the model."""
    trained_tokens: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What is known already, such as the mean reward."""


class Recipe(Protocol):
    """How examples are made of files, and gradients of examples."""

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        """Read and render the files that the configuration names, below `root`.

        Raises:
            DataError: a file cannot be read, or is of another form.
            ConfigError: the renderer does not fit the tokenizer.
        """

    def prepare(self, service: TrainingService, trainer: Trainer, data: TrainingData) -> dict[str, Any]:
        """Return what has to be known of the model before its first step, as JSON.

        Raises:
            TrainingError: the backend does not say.
        """

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        """Send the gradients of the examples with the numbers `batch`.

        Raises:
            TrainingError, SandboxError: answers that are learned from cannot be had, or not be graded.
        """

    def loss(self, answer: Any, sent: Gradients, batch: Sequence[int]) -> float:
        """Return the mean loss of an answer to `gradients`."""

    def look(self, training: Training, examples: Sequence[Example]) -> float:
        """Return a number for `examples` that needs nothing but the model as it is; less is better.

        Raises:
            TrainingError, SandboxError: as `gradients`.
        """


def sent(examples: Sequence[Example], future: Awaited[Any]) -> Gradients:
    """Return the gradients of examples that were there before the step."""
    return Gradients(
        future, sum(example.tokens for example in examples), sum(example.trained_tokens for example in examples)
    )


def mean_nll(service: TrainingService, trainer: Trainer, examples: Sequence[Example]) -> float:
    """Return the mean of `-log p(token)` over the tokens with a weight, of the first datum of each example.

    Raises:
        TrainingError: the backend does not say.
    """
    datums = [example.datums[0] for example in examples]
    found = service.result(trainer.forward(datums, "cross_entropy"), "a loss without gradients")
    return float(found.metrics["loss:sum"]) / sum(map(trained_tokens, datums))
