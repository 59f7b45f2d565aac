"""Adapters of PEFT, trained anywhere, as checkpoints that the backend of this machine goes on from.

All adapters of the backend have an alpha of `LORA_ALPHA`, and train whole groups of layers. So the matrices B are scaled to
that alpha, and layers of a group that the adapter leaves alone get one that changes nothing yet: A is drawn as PEFT draws it, and
B is zero. What the model says stays the same.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig
from safetensors.torch import save_file

from graftline.core.build import lock_folder
from graftline.core.errors import DataError, ModelError
from graftline.core.hashing import digest, sha256_file
from graftline.llm.weights.merge import StoredTensor, check_fits, read_model, with_tied_head
from graftline.llm.weights.peft_files import CONFIG, WEIGHTS, Pair, read_adapter
from graftline.training.local.checkpoints import ADAPTER, ADAPTER_CONFIG, FACTS, CheckpointStore
from graftline.training.local.engine import MAX_RANK
from graftline.training.local.lora import LORA_ALPHA, PARTS, LoraShape, jsonable

_SEED = 0
"""Of the matrices A that are drawn: the same adapter is imported as the same checkpoint."""


def import_adapter(folder: Path, base: Path, base_name: str, store: Path) -> str:
    """Return the path of `tinker://` under which the adapter in `folder` can be trained on, by whoever serves `base_name`.

    `base` is the folder of that model, `store` that of the checkpoints. An adapter that was imported before is not again.

    Raises:
        DataError: there is no adapter that the backend can train, or it is one of another model.
        ModelError: there is no model in `base`, or a server has its checkpoints in `store`.
    """
    adapter, tensors = read_adapter(folder, "the backend"), with_tied_head(read_model(base))
    check_fits(folder, adapter, tensors)
    if adapter.rank > MAX_RANK:
        raise DataError(f"{folder}: has rank {adapter.rank}; the backend trains up to {MAX_RANK}")
    layers = {layer.rpartition(".")[2] for layer in adapter.pairs}
    if other := sorted(layers.difference(*PARTS.values())):
        trainable = ", ".join(part for parts in PARTS.values() for part in parts)
        raise DataError(f"{folder}: trains {', '.join(other)}; the backend trains {trainable}")
    shape = LoraShape(adapter.rank, **{flag: bool(layers & {*parts}) for flag, parts in PARTS.items()}, seed=_SEED)
    scale = adapter.scaling * adapter.rank / LORA_ALPHA
    pairs = {layer: (down, up * np.float32(scale)) for layer, (down, up) in adapter.pairs.items()}
    pairs |= _fill(pairs, shape, tensors)
    names = sorted({layer.rpartition(".")[2] for layer in pairs})
    config = LoraConfig(r=shape.rank, lora_alpha=LORA_ALPHA, lora_dropout=0.0, bias="none", target_modules=names)
    config.base_model_name_or_path, config.inference_mode = base_name, True
    facts = {"base_model": base_name, **asdict(shape), "steps": 0, "has_optimizer": False}
    key = digest([base_name, *(sha256_file(folder / name) for name in (WEIGHTS, CONFIG))])
    busy = ModelError(f"{store}: a server has its checkpoints there; stop it, or name another folder")
    with lock_folder(store, busy):
        checkpoints = CheckpointStore(store)
        checkpoint = checkpoints.at(f"imported-{key[:16]}", "weights", "imported")
        if checkpoints.has(checkpoint):
            return checkpoint.uri

        def make(partial: Path) -> None:
            save_file(
                {
                    f"base_model.model.{layer}.lora_{side}.weight": torch.from_numpy(np.ascontiguousarray(matrix))
                    for layer, pair in pairs.items()
                    for side, matrix in zip("AB", pair, strict=True)
                },
                partial / ADAPTER,
            )
            text = json.dumps(jsonable(config.to_dict()), indent=2, sort_keys=True)
            (partial / ADAPTER_CONFIG).write_text(f"{text}\n", "utf-8")
            (partial / FACTS).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")

        checkpoints.note_run(
            checkpoint.run_id,
            base_model=base_name,
            model_owner="local",
            is_lora=True,
            lora_rank=shape.rank,
            user_metadata={"imported_from": folder.resolve().name},
        )
        checkpoints.write(checkpoint, make)
    return checkpoint.uri


def _fill(pairs: dict[str, Pair], shape: LoraShape, tensors: dict[str, StoredTensor]) -> dict[str, Pair]:
    """Return matrices that change nothing for the layers that `shape` trains and `pairs` has not."""
    parts = {part for flag, names in PARTS.items() if getattr(shape, flag) for part in names}
    random = np.random.default_rng(_SEED)
    missing = {}
    for name in sorted(tensors):
        layer = name.removesuffix(".weight")
        if name.endswith(".weight") and layer.rpartition(".")[2] in parts and layer not in pairs:
            rows, columns = tensors[name].shape
            # as PEFT: Kaiming's uniform distribution with a = sqrt(5)
            bound = 1 / math.sqrt(columns)
            down = random.uniform(-bound, bound, (shape.rank, columns)).astype(np.float32)
            missing[layer] = down, np.zeros((rows, shape.rank), np.float32)
    return missing
