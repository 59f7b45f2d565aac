"""`MemoryTrainingService`: a training service in this process, for as long as it lasts.

It is really trained: losses fall, adapters are of the rank that was asked for, what goes on from a checkpoint goes on
exactly, and the same calls give the same numbers. What it cannot do is understand anything: `model.py` says what it knows.
It answers to the name of any model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from graftline.core.clock import Clock, utc_now
from graftline.core.errors import ConfigError, DataError, GraftlineError, TrainingError
from graftline.training.memory.checkpoints import Checkpoints, Shape, exported, not_there
from graftline.training.memory.files import FileServer
from graftline.training.memory.model import CONTEXT_TOKENS, AdamW, Adapter, TableModel, new_adapter
from graftline.training.memory.sampler import MemorySampler
from graftline.training.memory.tokenizer import MemoryTokenizer
from graftline.training.memory.trainer import MemoryTrainer
from graftline.training.sdk import check_path
from graftline.training.service import Awaited, Ending

if TYPE_CHECKING:
    from tinker import types

_MAX_RANK = 512
_URL_TTL = timedelta(minutes=15)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Begun:
    """A run that was begun."""

    shape: Shape
    at: datetime
    metadata: dict[str, str] | None


class MemoryTrainingService:
    """A service of one table.

    Args:
        seed: Of the table, and of what nobody gave a seed for.
        clock: By which checkpoints and addresses expire.
    """

    base_url = "memory"
    tokenizer = MemoryTokenizer()
    """Of the table, whatever its name."""

    def __init__(self, seed: int = 0, clock: Clock = utc_now) -> None:
        self._seed, self._clock = seed, clock
        self._model = TableModel(self.tokenizer.vocab_size, seed)
        self._checkpoints = Checkpoints(clock)
        self._files = FileServer(clock)
        self._runs: dict[str, _Begun] = {}
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self, ending: Ending = "success") -> None:
        self._files.close()

    def result(self, future: Awaited[_T], what: str, deadline_s: float | None = None) -> _T:
        try:
            return future.result(deadline_s)
        except GraftlineError as error:
            raise _about(what, error) from None
        except Exception as error:
            raise TrainingError(
                f"{what}: failed with {type(error).__name__} ({error}); see where it comes from"
            ) from error

    def create_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: Mapping[str, str] | None = None,
    ) -> MemoryTrainer:
        if not (train_mlp or train_attn or train_unembed):
            raise ConfigError("train_mlp, train_attn and train_unembed are all false; one of them has to be trained")
        if not 1 <= rank <= _MAX_RANK:
            raise DataError(f"creating an adapter on {base_model!r}: rank is {rank}, but 1 to {_MAX_RANK} was expected")
        shape = Shape(base_model, rank, train_mlp, train_attn, train_unembed)
        adapter = new_adapter(self._model.vocabulary, rank, self._seed if seed is None else seed)
        return self._begun(shape, adapter, None, user_metadata)

    def from_state(
        self, path: str, with_optimizer: bool = True, user_metadata: Mapping[str, str] | None = None
    ) -> MemoryTrainer:
        check_path(path)
        found = self._checkpoints.get(path, "weights")
        optimizer = found.optimizer.copy() if with_optimizer and found.optimizer else None
        return self._begun(found.shape, found.adapter.copy(), optimizer, user_metadata)

    def sampling_client(self, model_path: str | None = None, base_model: str | None = None) -> MemorySampler:
        if model_path is not None:
            check_path(model_path)
            return MemorySampler(self._model, self._checkpoints.get(model_path).adapter, self._seed)
        if base_model is None:
            raise ConfigError("neither model_path nor base_model says what to sample from; give one of them")
        return MemorySampler(self._model, None, self._seed)

    def training_run(self, run_id: str) -> "types.TrainingRun":
        from tinker import types

        if run_id not in self._runs:
            raise not_there(f"looking up run {run_id}", f"known: {', '.join(self._runs) or 'none'}")
        begun = self._runs[run_id]
        return types.TrainingRun(
            training_run_id=run_id,
            base_model=begun.shape.base_model,
            model_owner="memory",
            is_lora=True,
            lora_rank=begun.shape.rank,
            last_request_time=begun.at,
            user_metadata=begun.metadata,
        )

    def weights_info(self, path: str) -> "types.WeightsInfoResponse":
        check_path(path)
        from tinker import types

        shape = self._checkpoints.get(path).shape
        return types.WeightsInfoResponse(
            base_model=shape.base_model,
            is_lora=True,
            lora_rank=shape.rank,
            train_unembed=shape.train_unembed,
            train_mlp=shape.train_mlp,
            train_attn=shape.train_attn,
        )

    def external_urls(self, path: str) -> "types.ExternalWeightsUrlsResponse":
        check_path(path)
        from tinker import types

        expires = self._clock() + _URL_TTL
        with self._lock:
            files = exported(self._checkpoints.get(path, "external_weights"))
            return types.ExternalWeightsUrlsResponse(urls=self._files.addresses(files, expires), expires=expires)

    def delete_checkpoint(self, path: str) -> None:
        check_path(path)
        self._checkpoints.delete(path)

    def set_ttl(self, path: str, seconds: int | None) -> None:
        check_path(path)
        self._checkpoints.set_ttl(path, seconds)

    def capabilities(self) -> "types.GetServerCapabilitiesResponse":
        from tinker import types

        table = types.SupportedModel(
            model_name="memory", max_context_length=CONTEXT_TOKENS, trainable=True, sampleable=True
        )
        return types.GetServerCapabilitiesResponse(supported_models=[table])

    def computed_with(self) -> dict[str, str]:
        return {}

    def _begun(
        self, shape: Shape, adapter: Adapter, optimizer: AdamW | None, metadata: Mapping[str, str] | None
    ) -> MemoryTrainer:
        with self._lock:
            run_id = f"memory-{len(self._runs) + 1}"
            self._runs[run_id] = _Begun(shape, self._clock(), dict(metadata) if metadata else None)
        return MemoryTrainer(run_id, self._model, shape, adapter, self._checkpoints, optimizer)


def _about(what: str, error: GraftlineError) -> GraftlineError:
    said = type(error)(f"{what}: {error}")
    if isinstance(said, TrainingError) and isinstance(error, TrainingError):
        said.status = error.status
    return said
