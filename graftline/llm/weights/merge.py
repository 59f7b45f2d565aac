"""A model with a LoRA adapter added to its weights: a full model of its own, for whatever loads models and knows no adapters.

Weights are changed where they lie in a copy of the files, one matrix at a time, in float32, and rounded to the precision that
they are stored in; so a model larger than the memory can be merged. An output layer that is the embedding becomes one of its own
where the adapter changes it, for the embedding stays as it was; and the configuration no longer says that they are one.
"""

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftline.core.build import Built, Contents, Request, build
from graftline.core.errors import DataError, ModelError
from graftline.core.hashing import code_version, sha256_file
from graftline.core.record import RECORD_NAME, sync
from graftline.llm.weights.peft_files import CONFIG, WEIGHTS, PeftAdapter, decode_floats, encode_floats, read_adapter

KIND = "merged-model"
"""Of the record of a merged model."""
_HEAD, _EMBEDDING = "lm_head", "model.embed_tokens.weight"
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
    lora, tensors = read_adapter(adapter, "a merge"), with_tied_head(read_model(base))
    check_fits(adapter, lora, tensors)
    files = sorted(path for path in base.iterdir() if path.is_file() and path.name != RECORD_NAME)
    inputs = {f"base/{path.name}": sha256_file(path) for path in files}
    inputs |= {name: sha256_file(adapter / name) for name in (WEIGHTS, CONFIG)}

    def make(partial: Path) -> Contents:
        for path in files:
            shutil.copyfile(path, partial / path.name)
        # an output layer that is added to a file moves all that is in it: it comes last
        for layer, (down, up) in sorted(lora.pairs.items(), key=lambda item: item[0] == _HEAD):
            tensor = tensors[f"{layer}.weight"]
            with (partial / tensor.file).open("r+b") as stream:
                stream.seek(tensor.start)
                weights = decode_floats(stream.read(tensor.end - tensor.start), tensor.kind).reshape(tensor.shape)
                merged = encode_floats(weights + lora.scaling * (up @ down), tensor.kind)
                if layer == _HEAD and tensor == tensors.get(_EMBEDDING):
                    # what goes in is looked up in the matrix that the adapter was not trained to change
                    _add_head(partial, tensor, merged)
                    continue
                stream.seek(tensor.start)
                stream.write(merged)
        if _HEAD in lora.pairs:  # who loads a model that says so takes the embedding, whatever output layer it stores
            _edit_json(partial / "config.json", lambda config: {**config, "tie_word_embeddings": False})
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


def with_tied_head(tensors: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return `tensors` with the embedding as the output layer, where a model has none of its own."""
    tied = tensors.get(_EMBEDDING)
    return {f"{_HEAD}.weight": tied, **tensors} if tied is not None else tensors


def _add_head(folder: Path, embedding: StoredTensor, head: bytes) -> None:
    """Give the model in `folder` an output layer of its own, behind the other tensors of the file with its embedding."""
    name, path = f"{_HEAD}.weight", folder / embedding.file
    partial = path.with_name(f".{path.name}.partial")
    with path.open("rb") as old, partial.open("wb") as new:
        (length,) = struct.unpack("<Q", old.read(8))
        header = json.loads(old.read(length))
        size = path.stat().st_size - 8 - length
        header[name] = {"dtype": embedding.kind, "shape": embedding.shape, "data_offsets": [size, size + len(head)]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8
        new.write(struct.pack("<Q", len(text)) + text)
        shutil.copyfileobj(old, new)
        new.write(head)
    partial.replace(path)

    def add_to_index(content: dict[str, Any]) -> dict[str, Any]:
        metadata = dict(content.get("metadata") or {})
        if "total_size" in metadata:
            metadata["total_size"] += len(head)
        return {**content, "metadata": metadata, "weight_map": {**content.get("weight_map", {}), name: embedding.file}}

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        _edit_json(index, add_to_index)


def _edit_json(path: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    try:
        content = edit(json.loads(path.read_bytes()))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); fetch or convert the model again") from None
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    sync(path)


def check_fits(folder: Path, adapter: PeftAdapter, tensors: dict[str, StoredTensor]) -> None:
    """Raise DataError unless every layer of the adapter in `folder` is one of the model."""
    for layer, (down, up) in adapter.pairs.items():
        tensor = tensors.get(f"{layer}.weight")
        if tensor is None:
            raise DataError(
                f"{folder}: changes {layer!r}, which the base has not: name the model that the adapter was trained on"
            )
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
