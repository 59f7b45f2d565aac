"""What trains an adapter of the table: as `TrainingClient` of the Tinker SDK, as far as recipes use it."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graftline.core.errors import DataError
from graftline.training.local.losses import check_inputs, checked_options, used_inputs
from graftline.training.memory.answers import answered
from graftline.training.memory.checkpoints import Checkpoint, Checkpoints, Kind, Shape
from graftline.training.memory.model import AdamW, Adapter, Array, Gradients, TableModel, loss_and_slopes, no_gradients
from graftline.training.service import Saved

if TYPE_CHECKING:
    from tinker import types

CustomLoss = Callable[["list[types.Datum]", list[Any]], tuple[Any, dict[str, float]]]


@dataclass(frozen=True, slots=True)
class _SavedAt:
    path: str


@dataclass(frozen=True, slots=True)
class _Text:
    """A datum, and what the model says of it."""

    tokens: list[int]
    targets_TK: NDArray[np.int64]
    shape: tuple[int, ...]
    """Of its inputs, (T,) or (T, K)."""
    table: Array
    """Logprobs of all tokens, (T, vocabulary)."""
    chosen_TK: Array
    """Those of the targets."""


class MemoryTrainer:
    """A run; its calls are done when they return, one at a time, whichever threads they come from."""

    def __init__(
        self,
        model_id: str,
        model: TableModel,
        shape: Shape,
        adapter: Adapter,
        checkpoints: Checkpoints,
        optimizer: AdamW | None = None,
    ) -> None:
        self.model_id = model_id
        self._model, self._shape, self._adapter, self._checkpoints = model, shape, adapter, checkpoints
        self._optimizer = optimizer or AdamW()
        self._gradients = no_gradients(adapter)
        self._is_spoilt = False
        self._lock = Lock()

    def forward(
        self,
        data: "list[types.Datum]",
        loss_fn: "types.LossFnType",
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> "Future[types.ForwardBackwardOutput]":
        """See `Trainer`."""
        return self._alone(lambda: self._passed(data, loss_fn, loss_fn_config or {}, None))

    def forward_backward(
        self,
        data: "list[types.Datum]",
        loss_fn: "types.LossFnType",
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> "Future[types.ForwardBackwardOutput]":
        """See `Trainer`."""
        return self._alone(
            lambda: self._unspoilt(lambda added: self._passed(data, loss_fn, loss_fn_config or {}, added))
        )

    def forward_backward_custom(
        self, data: "list[types.Datum]", loss_fn: CustomLoss
    ) -> "Future[types.ForwardBackwardOutput]":
        """See `Trainer`; this one needs torch."""
        return self._alone(lambda: self._unspoilt(lambda added: self._passed_custom(data, loss_fn, added)))

    def optim_step(self, optim_params: "types.AdamParams") -> "Future[types.OptimStepResponse]":
        """See `Trainer`."""
        return self._alone(lambda: self._stepped(optim_params))

    def save_state(self, name: str, ttl_seconds: int | None = None, overwrite: bool = False) -> "Future[Saved]":
        """See `Trainer`."""
        return self._alone(lambda: self._saved("weights", name, ttl_seconds, overwrite))

    def save_weights_for_sampler(self, name: str, ttl_seconds: int | None = None) -> "Future[Saved]":
        """See `Trainer`."""
        return self._alone(lambda: self._saved("sampler_weights", name, ttl_seconds))

    def save_weights_external(self, name: str, ttl_seconds: int | None = None) -> "Future[Saved]":
        """See `Trainer`."""
        return self._alone(lambda: self._saved("external_weights", name, ttl_seconds))

    def _alone(self, work: Callable[[], Any]) -> "Future[Any]":
        with self._lock:
            return answered(work)

    def _unspoilt(self, work: Callable[[Gradients], Any]) -> Any:
        """Do `work`, and see to it that no step is taken with a part of its gradients alone."""
        try:
            return work(self._gradients)
        except Exception:
            self._is_spoilt = True
            raise

    def _passed(
        self, data: "Sequence[types.Datum]", loss: str, given: Mapping[str, object], gradients: Gradients | None
    ) -> "types.ForwardBackwardOutput":
        options, total = checked_options(loss, given), 0.0
        if loss == "stable_reinforce":
            raise DataError(f"{loss} needs sequences that were recorded when they were sampled; a table records none")
        texts = [self._read(number, datum, loss) for number, datum in enumerate(data)]
        for datum, text in zip(data, texts, strict=True):
            inputs = {
                name: datum.loss_fn_inputs[name].to_numpy().astype(np.float64).reshape(text.chosen_TK.shape)
                for name in used_inputs(loss, _arrays(datum))
                if name != "target_tokens"
            }
            value, slopes = loss_and_slopes(loss, options, text.chosen_TK, inputs)
            if not math.isfinite(value):
                raise DataError(f"the loss is {value}; lower the learning rate, or look at the weights of the datums")
            total += value
            if gradients is not None:
                gradients.add(self._adapter, text.tokens, text.targets_TK, text.table, slopes)
        return _output(texts, {"loss:sum": total})

    def _passed_custom(
        self, data: "list[types.Datum]", loss_fn: CustomLoss, gradients: Gradients
    ) -> "types.ForwardBackwardOutput":
        import torch

        texts = [self._read(number, datum, "cross_entropy") for number, datum in enumerate(data)]
        logprobs = [
            torch.tensor(text.chosen_TK.reshape(text.shape), dtype=torch.float32, requires_grad=True) for text in texts
        ]
        loss, metrics = loss_fn(data, logprobs)
        loss.backward()
        for text, one in zip(texts, logprobs, strict=True):
            if one.grad is None:
                raise DataError("the loss does not depend on the logprobs of every datum; leave those others out")
            slopes = one.grad.numpy().astype(np.float64).reshape(text.chosen_TK.shape)
            gradients.add(self._adapter, text.tokens, text.targets_TK, text.table, slopes)
        return _output(texts, metrics)

    def _read(self, number: int, datum: "types.Datum", loss: str) -> _Text:
        tokens = datum.model_input.to_ints()
        self._model.check_tokens(f"datum {number}", tokens)
        try:
            check_inputs(loss, _arrays(datum), len(tokens))
        except DataError as error:
            raise DataError(f"datum {number}: {error}") from None
        targets = datum.loss_fn_inputs["target_tokens"].to_numpy()
        self._model.check_tokens(f"datum {number}", [int(targets.min()), int(targets.max())])
        targets_TK = targets.reshape(len(tokens), -1)
        table = self._model.logprobs(self._adapter, tokens)
        return _Text(tokens, targets_TK, targets.shape, table, np.take_along_axis(table, targets_TK, -1))

    def _stepped(self, params: "types.AdamParams") -> "types.OptimStepResponse":
        from tinker import types

        gradients, self._gradients = self._gradients, no_gradients(self._adapter)
        if self._is_spoilt:
            self._is_spoilt = False
            raise DataError("no step is taken, for forward_backward failed before it; its gradients are dropped")
        norm = self._optimizer.step(
            self._adapter,
            gradients,
            params.learning_rate,
            params.beta1,
            params.beta2,
            params.eps,
            params.weight_decay,
            params.grad_clip_norm,
        )
        return types.OptimStepResponse(
            metrics={"grad_norm:mean": norm, "optimizer_step:mean": float(self._optimizer.steps)}
        )

    def _saved(self, kind: Kind, name: str, ttl_s: int | None, overwrite: bool = False) -> Saved:
        is_state = kind == "weights"
        checkpoint = Checkpoint(
            path=f"tinker://{self.model_id}/{kind}/{name}",
            shape=self._shape,
            adapter=self._adapter.copy(),
            optimizer=self._optimizer.copy() if is_state else None,
        )
        return _SavedAt(self._checkpoints.save(checkpoint, ttl_s, overwrite))


def _arrays(datum: "types.Datum") -> dict[str, NDArray[Any]]:
    return {name: one.to_numpy() for name, one in datum.loss_fn_inputs.items()}


def _output(texts: Sequence[_Text], metrics: Mapping[str, float]) -> "types.ForwardBackwardOutput":
    from tinker import types

    outputs = [
        {"logprobs": types.TensorData.from_numpy(text.chosen_TK.reshape(text.shape).astype(np.float32))}
        for text in texts
    ]
    return types.ForwardBackwardOutput("ArrayRecord", outputs, dict(metrics))
