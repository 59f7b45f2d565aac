"""The port `TrainingService`: what training asks of whatever trains.

What is asked for comes later where a method returns something `Awaited`, and the calls of one trainer are worked on in the
order they were sent in. A loss, however poor, is a result. An error is raised where nothing answers (`TrainingError`, with
the `status` 404 where there is no such checkpoint), where what was sent is at fault (`DataError`), and where what was
configured is (`ConfigError`).

`TinkerSDKClient` is the implementation over the Tinker SDK, `MemoryTrainingService` the one in this process; neither
inherits from here. Data and answers are those of `tinker.types`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from tinker import types

Ending = Literal["success", "errored", "interrupted"]
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Awaited(Protocol[_T_co]):
    """What comes later: futures of the SDK, and those of the standard library."""

    def result(self, timeout: float | None = None) -> _T_co:
        """Wait for it, for `timeout` seconds at most."""


class Saved(Protocol):
    """A checkpoint that was saved."""

    @property
    def path(self) -> str:
        """By which it is asked for: `tinker://RUN/KIND/NAME`."""


class Trainer(Protocol):
    """A new adapter, and its optimizer. Answers to `forward` and `forward_backward` are in the order of `data`."""

    model_id: str
    """As the service calls the run."""

    def forward(
        self,
        data: "list[types.Datum]",
        loss_fn: "types.LossFnType",
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> "Awaited[types.ForwardBackwardOutput]":
        """Send `data` for its logprobs and its loss, a sum over all tokens, in the metric `loss:sum`."""

    def forward_backward(
        self,
        data: "list[types.Datum]",
        loss_fn: "types.LossFnType",
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> "Awaited[types.ForwardBackwardOutput]":
        """As `forward`; gradients are added to those since the last step."""

    def forward_backward_custom(
        self,
        data: "list[types.Datum]",
        loss_fn: Callable[["list[types.Datum]", list[Any]], tuple[Any, dict[str, float]]],
    ) -> "Awaited[types.ForwardBackwardOutput]":
        """As `forward_backward`, by a loss of logprobs (tensors of torch) that is worked out here; it gives metrics too."""

    def optim_step(self, optim_params: "types.AdamParams") -> "Awaited[types.OptimStepResponse]":
        """Take a step with the gradients that were added up."""

    def save_state(self, name: str, ttl_seconds: int | None = None, overwrite: bool = False) -> Awaited[Saved]:
        """Save what training can go on from: weights and optimizer."""

    def save_weights_for_sampler(self, name: str, ttl_seconds: int | None = None) -> Awaited[Saved]:
        """Save what can be sampled from."""

    def save_weights_external(self, name: str, ttl_seconds: int | None = None) -> Awaited[Saved]:
        """Save files in the layout of PEFT, which `external_urls` gives the addresses of."""


class Sampler(Protocol):
    """A model, or one with an adapter, as it was when it was asked for."""

    def sample(
        self, prompt: "types.ModelInput", num_samples: int, sampling_params: "types.SamplingParams"
    ) -> "Awaited[types.SampleResponse]":
        """Ask for `num_samples` sequences that go on from `prompt`; logprobs are those at temperature 1."""

    def compute_logprobs(self, prompt: "types.ModelInput") -> Awaited[list[float | None]]:
        """Ask for the logprob of every token of `prompt`; None for the first, before which there is nothing."""


class TrainingService(Protocol):
    """What trains, and keeps what was trained."""

    @property
    def base_url(self) -> str:
        """The address, or what stands for one in records."""

    def result(self, future: Awaited[_T], what: str, deadline_s: float | None = None) -> _T:
        """Return what `future` comes to, within `deadline_s` or the deadline of the service.

        Args:
            future: Of a trainer or sampler of this service.
            what: What was asked for, as the message of an error begins: `step 3`.
            deadline_s: In place of that of the service.

        Raises:
            DataError: what was sent is refused.
            TrainingError: it is not there in time, or the service refuses or fails.
        """

    def create_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: Mapping[str, str] | None = None,
    ) -> Trainer:
        """Return a new adapter on `base_model`; like all that follow, it raises what `result` does.

        Raises:
            ConfigError: there is nothing to train, or the service is not to be had as it is configured.
        """

    def from_state(
        self, path: str, with_optimizer: bool = True, user_metadata: Mapping[str, str] | None = None
    ) -> Trainer:
        """Return a new run that goes on from the checkpoint of `save_state` at `path`.

        Raises:
            ConfigError: `path` is no path of a checkpoint.
        """

    def sampling_client(self, model_path: str | None = None, base_model: str | None = None) -> Sampler:
        """Return what samples from the checkpoint at `model_path`, or from `base_model` itself.

        Raises:
            ConfigError: neither is given, or `model_path` is no path of a checkpoint.
        """

    def training_run(self, run_id: str) -> "types.TrainingRun":
        """Return what the service knows of a run."""

    def weights_info(self, path: str) -> "types.WeightsInfoResponse":
        """Return what a checkpoint is of: its model, its rank, and what is trained."""

    def external_urls(self, path: str) -> "types.ExternalWeightsUrlsResponse":
        """Return an address for every file of an export, good for a while."""

    def delete_checkpoint(self, path: str) -> None:
        """Delete a checkpoint, for ever."""

    def set_ttl(self, path: str, seconds: int | None) -> None:
        """Have a checkpoint deleted after `seconds` from now; None keeps it."""

    def capabilities(self) -> "types.GetServerCapabilitiesResponse":
        """Return which models the service has."""

    def computed_with(self) -> dict[str, str]:
        """Return the `precision` and the `device` that the service computes with, as far as it tells them."""

    def close(self, ending: Ending = "success") -> None:
        """End what was begun with the service. A second call does nothing."""
