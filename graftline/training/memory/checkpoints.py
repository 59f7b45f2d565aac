"""Checkpoints of the memory training service: in a dictionary, gone with it or when they expire."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Literal

import numpy as np

from graftline.core.clock import Clock
from graftline.core.errors import DataError, TrainingError
from graftline.training.memory.model import ALPHA, AdamW, Adapter

Kind = Literal["weights", "sampler_weights", "external_weights"]
_LAYER = "table"


@dataclass(frozen=True, slots=True)
class Shape:
    """What an adapter is of."""

    base_model: str
    rank: int
    train_mlp: bool
    train_attn: bool
    train_unembed: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An adapter as it was when it was saved."""

    path: str
    shape: Shape
    adapter: Adapter
    optimizer: AdamW | None = None
    """None where training cannot go on from it."""
    expires_at: datetime | None = None


class Checkpoints:
    """The checkpoints there are, by path."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, Checkpoint] = {}

    def save(self, checkpoint: Checkpoint, ttl_s: int | None, overwrite: bool = False) -> str:
        """Keep `checkpoint`, for `ttl_s` seconds; return its path.

        Raises:
            DataError: there is one of its path, and it is not to be overwritten.
        """
        path = checkpoint.path
        if not overwrite and self._find(path) is not None:
            raise DataError(f"checkpoint {path} exists already; choose another name, or ask to overwrite it")
        self._held[path] = replace(checkpoint, expires_at=self._after(ttl_s))
        return path

    def get(self, path: str, kind: Kind | None = None) -> Checkpoint:
        """Return the checkpoint at `path`.

        Raises:
            TrainingError: there is none; of status 404.
            DataError: it is of another kind.
        """
        found = self._find(path)
        if found is None:
            raise not_there(path, "check its name, and whether it has expired or was deleted")
        if kind is not None and f"/{kind}/" not in path:
            raise DataError(f"{path}: is not of the kind {kind}; name one that is")
        return found

    def delete(self, path: str) -> None:
        """Forget the checkpoint at `path`.

        Raises:
            TrainingError: as `get`.
        """
        self.get(path)
        del self._held[path]

    def set_ttl(self, path: str, seconds: int | None) -> None:
        """Have the checkpoint at `path` expire after `seconds` from now; None keeps it.

        Raises:
            TrainingError: as `get`.
        """
        self._held[path] = replace(self.get(path), expires_at=self._after(seconds))

    def _find(self, path: str) -> Checkpoint | None:
        found = self._held.get(path)
        if found is not None and found.expires_at is not None and found.expires_at <= self._clock():
            del self._held[path]
            return None
        return found

    def _after(self, seconds: int | None) -> datetime | None:
        return None if seconds is None else self._clock() + timedelta(seconds=seconds)


def not_there(what: str, remedy: str) -> TrainingError:
    """Return the error that a service gives for what it does not have."""
    error = TrainingError(f"{what}: there is no such thing; {remedy}")
    error.status = HTTPStatus.NOT_FOUND
    return error


def exported(checkpoint: Checkpoint) -> Mapping[str, bytes]:
    """Return the files of an adapter in the layout of PEFT, by name; its only layer is the table."""
    from safetensors.numpy import save

    shape, adapter = checkpoint.shape, checkpoint.adapter
    weights = {
        f"base_model.model.{_LAYER}.lora_A.weight": adapter.down.astype(np.float32),
        f"base_model.model.{_LAYER}.lora_B.weight": adapter.up.astype(np.float32),
    }
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": shape.base_model,
        "r": shape.rank,
        "lora_alpha": ALPHA,
        "target_modules": [_LAYER],
        "inference_mode": True,
    }
    return {
        "adapter_model.safetensors": save(weights),
        "adapter_config.json": (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
    }
