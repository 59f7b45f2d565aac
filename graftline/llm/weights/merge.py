"""A model with a LoRA adapter added to its weights: a full model of its own, for whatever loads models and knows no adapters.

Weights are changed where they lie in a copy of the files, one matrix at a time, in float32, and rounded to the precision that
they are stored in; so a model larger than the memory can be merged.
"""

import json
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from graftline.core.build import Built, Contents, Request, build
from graftline.core.errors import DataError, ModelError
from graftline.core.hashing import code_version, sha256_file
from graftline.core.record import RECORD_NAME, sync
from graftline.llm.weights.peft_files import CONFIG, WEIGHTS, PeftAdapter, decode_floats, encode_floats, read_adapter

KIND = "merged-model"
"""Of the record of a merged model."""
_MAX_HEADER_BYTES = 100 << 20


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file."""

    file: str
    kind: str
    """As safetensors calls it: `F32`, `BF16`."""
    shape: tuple[int, ...]
    start: int
    """Byte of the file at which it begins."""
    end: int


def merge_adapter(adapter: Path, base: Path, into: Path) -> Built:
    """Return the artifact in `into`: the model in the folder `base` with the adapter in `adapter` added to its weights.

    DataError if the adapter is none, or of another model; ModelError if there is no model in `base`.
    """
    lora, tensors = read_adapter(adapter, "a merge"), read_model(base)
    check_fits(adapter, lora, tensors)
    files = sorted(path for path in base.iterdir() if path.is_file() and path.name != RECORD_NAME)
    inputs = {f"base/{path.name}": sha256_file(path) for path in files}
    inputs |= {name: sha256_file(adapter / name) for name in (WEIGHTS, CONFIG)}

    def make(partial: Path) -> Contents:
        for path in files:
            shutil.copyfile(path, partial / path.name)
        for layer, (down, up) in lora.pairs.items():
            tensor = tensors[f"{layer}.weight"]
            with (partial / tensor.file).open("r+b") as stream:
                stream.seek(tensor.start)
                weights = decode_floats(stream.read(tensor.end - tensor.start), tensor.kind).reshape(tensor.shape)
                stream.seek(tensor.start)
                stream.write(encode_floats(weights + lora.scaling * (up @ down), tensor.kind))
        for file in {tensor.file for tensor in tensors.values()}:
            sync(partial / file)
        return Contents({"layers": len(lora.pairs)})

    request = Request(KIND, adapter.resolve().name, code_version(__name__), inputs)
    return build(into, request, make)


def read_model(folder: Path) -> dict[str, StoredTensor]:
    """Return where every tensor of the model in `folder` lies, by its name; ModelError if there is no model."""
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder}: holds no model, for it has no config.json; name the folder of a model in safetensors"
        )
    tensors = dict[str, StoredTensor]()
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= _read_header(path)
    if not tensors:
        raise ModelError(f"{folder}: has no file in safetensors; `graftline model convert` makes them")
    return tensors


def check_fits(folder: Path, adapter: PeftAdapter, tensors: dict[str, StoredTensor]) -> None:
    """Raise DataError unless every layer of the adapter in `folder` is one of the model."""
    for layer, (down, up) in adapter.pairs.items():
        tensor = tensors.get(f"{layer}.weight")
        if tensor is None:
            reason = "name the model that the adapter was trained on"
            if layer.rpartition(".")[2] == "lm_head":
                reason = "its output layer is its embedding; train with train_unembed: false"
            raise DataError(f"{folder}: changes {layer!r}, which the base has not: {reason}")
        shape = up.shape[0], down.shape[1]
        if tensor.shape != shape:
            own = " x ".join(map(str, tensor.shape))
            raise DataError(
                f"{folder}: {layer!r} is for a matrix of {shape[0]} x {shape[1]}, but that of the base is {own}; name the"
                " model that the adapter was trained on"
            )
        if tensor.kind not in ("F32", "F16", "BF16", "F64"):
            raise DataError(
                f"{layer}: is stored as {tensor.kind} in the base, which nothing can be added to; name a plain one"
            )


def _read_header(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file (https://huggingface.co/docs/safetensors: a length, JSON, and the numbers)."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size, _MAX_HEADER_BYTES):
                raise ValueError("its header is longer than the file")
            header = json.loads(stream.read(length))
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = (8 + length + int(offset) for offset in entry["data_offsets"])
            if not 8 + length <= start <= end <= size:
                raise ValueError(f"{name} lies outside of it")
            shape = tuple(int(number) for number in entry["shape"])
            tensors[name] = StoredTensor(path.name, str(entry["dtype"]), shape, start, end)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ModelError(f"{path}: is no file in safetensors ({error}); fetch or convert it again") from None
    return tensors
