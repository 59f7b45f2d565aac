"""What the loop of `training.train` asks of a recipe."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from graftline.training.tinker import Awaited, TinkerSDKClient

if TYPE_CHECKING:
    from tinker import TrainingClient, types


@dataclass(frozen=True, slots=True)
class Example:
    """What a step is counted in: the datums that belong together."""

    datums: "tuple[types.Datum, ...]"
    tokens: int
    """That go through the model."""
    trained_tokens: int
    """Targets with a weight above 0."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Examples, and what they were made of."""

    train: list[Example]
    held_out: list[Example]
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files, by what they are."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows that no example was made of, by reason."""


class Recipe(Protocol):
    """How examples are made of files, and gradients of examples."""

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        """Read and render the files that the configuration names, below `root`.

        Raises:
            DataError: a file cannot be read, or is of another form.
            ConfigError: the renderer does not fit the tokenizer.
        """

    def prepare(self, sdk: TinkerSDKClient, trainer: "TrainingClient", data: TrainingData) -> dict[str, Any]:
        """Return what has to be known of the model before its first step, as JSON.

        Raises:
            TrainingError: the backend does not say.
        """

    def gradients(
        self, trainer: "TrainingClient", batch: Sequence[int], data: TrainingData, known: Any
    ) -> Awaited[Any]:
        """Send the gradients of the examples with the numbers `batch`; `known` is what `prepare` returned."""

    def loss(self, answer: Any, batch: Sequence[int], data: TrainingData) -> float:
        """Return the mean loss of an answer to `gradients`."""

    def look(self, sdk: TinkerSDKClient, trainer: "TrainingClient", examples: Sequence[Example]) -> float:
        """Return a mean loss of `examples` that needs nothing but the model as it is, without any gradient.

        Raises:
            TrainingError: the backend does not say.
        """
