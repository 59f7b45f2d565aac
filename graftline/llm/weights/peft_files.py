"""LoRA adapters in the layout of PEFT, read by numpy: neither torch nor transformers nor peft is needed.

What would change the meaning of the matrices, such as DoRA or ranks that differ from layer to layer, is refused.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from graftline.core.errors import DataError

Pair = tuple[np.ndarray, np.ndarray]
"""The matrices A, (rank, columns), and B, (rows, rank), of one layer, in float32."""
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_NAME = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<side>[AB])\.weight")
_NOT_APPLIED = (
    "alpha_pattern", "rank_pattern", "use_dora", "fan_in_fan_out", "modules_to_save", "lora_bias", "ensure_weight_tying",
)  # fmt: skip
"""Settings of PEFT that change what an adapter does."""


@dataclass(frozen=True, slots=True)
class PeftAdapter:
    """An adapter."""

    rank: int
    scaling: float
    """What B A is multiplied by before it is added to the weights."""
    pairs: Mapping[str, Pair]
    """By the names of layers, as transformers has them: `model.layers.0.self_attn.q_proj`."""
    base_name: str
    """What its configuration calls the model that it was trained on; may be empty."""


def read_adapter(folder: Path, applier: str) -> PeftAdapter:
    """Return the adapter in `folder`; `applier` is what a message says cannot apply it.

    DataError if there is none, its files do not fit each other, or `applier` could not apply it as it was trained.
    """
    config = _read_config(folder, applier)
    rank, pairs = int(config["r"]), _read_pairs(folder)
    for layer, (down, _) in pairs.items():
        if down.shape[0] != rank:
            raise DataError(
                f"{folder}: rank of {layer} is {down.shape[0]}, but {CONFIG} says {rank}; download it again"
            )
    scaling = float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return PeftAdapter(rank, scaling, pairs, str(config.get("base_model_name_or_path") or ""))


def _read_config(folder: Path, applier: str) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = json.loads(path.read_bytes())
        if config["peft_type"] != "LORA" or int(config["r"]) < 1 or not float(config["lora_alpha"]):
            raise ValueError("it describes no LoRA")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: is not the configuration of a LoRA adapter of PEFT ({error}); name its folder"
        ) from None
    lost = [key for key in _NOT_APPLIED if config.get(key)]
    if config.get("bias", "none") != "none":
        lost.append("bias")
    if lost:
        raise DataError(f"{path}: {applier} cannot apply {', '.join(lost)}; train the adapter without")
    return dict(config)


def _read_pairs(folder: Path) -> dict[str, Pair]:
    sides: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in _read_tensors(folder / WEIGHTS).items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise DataError(f"{folder}: holds {name!r}, which is no matrix of a LoRA adapter of linear layers")
        sides.setdefault(match["layer"], {})[match["side"]] = tensor
    for layer, matrices in sides.items():
        if {*matrices} != {"A", "B"} or any(matrix.ndim != 2 for matrix in matrices.values()):
            raise DataError(f"{folder}: {layer!r} has not one matrix A and one matrix B; download the adapter again")
        if matrices["B"].shape[1] != matrices["A"].shape[0]:
            raise DataError(f"{folder}: the matrices of {layer!r} do not fit each other; download the adapter again")
    return {layer: (matrices["A"], matrices["B"]) for layer, matrices in sides.items()}


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file in float32; safetensors' own reader for numpy knows no bfloat16."""
    try:
        tensors = {name: _float32(view) for name, view in deserialize(path.read_bytes())}  # type: ignore[no-untyped-call]
    except (OSError, SafetensorError, KeyError) as error:
        raise DataError(f"{path}: holds no weights of an adapter ({error}); download it again") from None
    if not tensors:
        raise DataError(f"{path}: is empty; download the adapter again")
    return tensors


def _float32(view: Mapping[str, Any]) -> np.ndarray:
    return decode_floats(view["data"], view["dtype"]).reshape(view["shape"])


def decode_floats(data: bytes | memoryview, kind: str) -> np.ndarray:
    """Return numbers as safetensors stores them in float32; KeyError for a kind that is none of numbers with a fraction."""
    if kind == "BF16":
        # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2", "F64": "<f8"}[kind]).astype("<f4")


def encode_floats(values: np.ndarray, kind: str) -> bytes:
    """Return numbers in float32 as safetensors stores them, rounded to the nearest; KeyError as of `decode_floats`."""
    if kind == "BF16":
        bits = np.ascontiguousarray(values, "<f4").view("<u4")
        # half of the last place is added, less one where that place is even: ties go to the even number
        stored = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    else:
        stored = values.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[kind])
    return bytes(stored.tobytes())
