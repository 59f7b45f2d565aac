"""What the loop of `training.train` asks of a recipe."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graftline.sandbox.base import Sandbox
from graftline.training.datums import count_trained_tokens
from graftline.training.examples import Example, TrainingData
from graftline.training.tinker import ResultFuture, TinkerSDKClient

if TYPE_CHECKING:
    from tinker import TrainingClient

OpenSandbox = Callable[[], Sandbox]
"""Returns the sandbox of whoever trains; called by recipes that grade answers."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained, and by whom."""

    run_id: str
    service: TinkerSDKClient
    trainer: "TrainingClient"
    data: TrainingData
    prepared: Mapping[str, Any]
    """What `Recipe.prepare` returned."""

    def examples(self, batch: Sequence[int]) -> list[Example]:
        """Return the examples with the numbers in `batch`."""
        return [self.data.train[number] for number in batch]


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of a step, on their way."""

    future: ResultFuture[Any] | None
    """None where nothing is to be learned of the batch: then no step of the optimizer is taken."""
    tokens: int
    """That went through the model."""
    trained_tokens: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What is known already, such as the mean reward."""


class Recipe:
    """How examples are made of files, and gradients of examples."""

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        """Read and render the files that the configuration names, below `root`; DataError where one has another form."""
        raise NotImplementedError

    def prepare(self, service: TinkerSDKClient, trainer: "TrainingClient", data: TrainingData) -> dict[str, Any]:
        """Return what has to be known of the model before its first step, as JSON."""
        return {}

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        """Send the gradients of the examples with the numbers `batch`.

        Raises:
            TrainingError, SandboxError: Answers that are learned from cannot be had, or not be graded.
        """
        raise NotImplementedError

    def loss(self, output: Any, gradients: Gradients, batch: Sequence[int]) -> float:
        """Return the mean loss in the output of `gradients`."""
        return float(output.metrics["loss:sum"]) / gradients.trained_tokens

    def evaluate(self, training: Training, examples: Sequence[Example]) -> float:
        """Return a number for `examples` that needs nothing but the model as it is; less is better."""
        return mean_nll(training.service, training.trainer, examples)


def gradients_of(examples: Sequence[Example], future: ResultFuture[Any]) -> Gradients:
    """Return the gradients of examples that were there before the step."""
    return Gradients(
        future, sum(example.tokens for example in examples), sum(example.trained_tokens for example in examples)
    )


def mean_nll(service: TinkerSDKClient, trainer: "TrainingClient", examples: Sequence[Example]) -> float:
    """Return the mean of `-log p(token)` over the tokens with a weight, of the first datum of each example."""
    datums = [example.datums[0] for example in examples]
    output = service.result(trainer.forward(datums, "cross_entropy"), "a loss without gradients")
    return float(output.metrics["loss:sum"]) / sum(map(count_trained_tokens, datums))
