"""LoRA adapters in the layout of PEFT as GGUF files, which llama.cpp loads beside a base model.

numpy does it: neither torch nor transformers is needed. What llama.cpp could not apply as it was trained is refused, and
so is an adapter whose layers are not those of the base.
"""

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import MODEL_ARCH_NAMES, GGUFWriter, Keys, get_tensor_name_map

from graftline.core.build import Built, Contents, Request, build
from graftline.core.errors import DataError, ModelError
from graftline.core.hashing import code_version, sha256_file
from graftline.llm.weights.peft_files import CONFIG, WEIGHTS, Pair, PeftAdapter, read_adapter

KIND = "lora-gguf"
"""Of the record of a converted adapter."""
_ROTATED = ("attn_q", "attn_k")
_HAS_PERMUTED_ROTATION = {"llama": True, "qwen2": False, "qwen3": False}
"""Architectures whose files are converted. In those of llama, the rows of queries and keys stand in another order."""


@dataclass(frozen=True, slots=True)
class Base:
    """What is to be known of a base model: its architecture, and its matrices, (rows, columns) by name."""

    architecture: str
    heads: int
    key_heads: int
    layers: int
    shapes: Mapping[str, tuple[int, ...]]


def convert_adapter(folder: Path, base: Path, into: Path) -> Built:
    """Return the artifact in `into`, which holds the adapter in `folder` for `base` as `<name of folder>.gguf`."""
    name = f"{folder.resolve().name}.gguf"

    def make(partial: Path) -> Contents:
        return Contents({"layers": write_lora(folder, read_base(base), partial / name)})

    try:
        inputs = {file: sha256_file(folder / file) for file in (WEIGHTS, CONFIG)}
        inputs["base"] = sha256_file(base)
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); name a folder with an adapter") from None
    return build(into, Request(KIND, name, code_version(__name__), inputs), make)


def read_base(path: Path) -> Base:
    """Return what is to be known of a GGUF file; ModelError where it is none, or its adapters are not converted."""
    header = read_header(path)
    architecture = str(header.values.get("general.architecture", ""))
    if architecture not in _HAS_PERMUTED_ROTATION:
        architectures = ", ".join(_HAS_PERMUTED_ROTATION)
        raise ModelError(
            f"{path}: has the architecture {architecture!r}, but adapters are converted for {architectures} only"
        )

    def number(key: str, default: int = 0) -> int:
        return int(header.values.get(f"{architecture}.{key}", default))

    heads = number("attention.head_count")
    return Base(architecture, heads, number("attention.head_count_kv", heads), number("block_count"), header.shapes)


def write_lora(folder: Path, base: Base, target: Path) -> int:
    """Write the adapter in `folder` for `base` to `target`, whole or not at all; return how many layers it changes.

    Raises:
        DataError: `folder` holds no adapter that llama.cpp can apply to `base`.
    """
    adapter = read_adapter(folder, "llama.cpp")
    pairs = name_pairs(folder, adapter, base)
    # llama.cpp divides by the rank itself
    _write(target, base.architecture, folder.resolve().name, adapter.scaling * adapter.rank, pairs)
    return len(pairs)


def name_pairs(folder: Path, adapter: PeftAdapter, base: Base) -> dict[str, Pair]:
    """Return the matrices of `adapter`, which is in `folder`, by the names of layers in GGUF, rows in the order of llama.cpp.

    DataError if a layer is not one of `base`.
    """
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == base.architecture)
    names = get_tensor_name_map(architecture, base.layers)
    pairs = {}
    for own_name, pair in adapter.pairs.items():
        layer = names.get_name(own_name)
        if layer is None:
            raise DataError(
                f"{folder}: holds {own_name!r}, which {base.architecture} has not in GGUF; name another base"
            )
        pairs[layer] = _fit(folder, base, layer, pair)
    return pairs


def _fit(folder: Path, base: Base, layer: str, pair: Pair) -> Pair:
    shape = base.shapes.get(f"{layer}.weight")
    if shape is None:
        reason = (
            "its output layer is its embedding; train with train_unembed: false, or have `graftline model export` add it to a model"
            if layer == "output"
            else "name its own base"
        )
        raise DataError(f"{folder}: changes {layer!r}, which the base has not: {reason}")
    down, up = pair
    if (up.shape[0], down.shape[1]) != shape:
        raise DataError(
            f"{folder}: {layer!r} is for a matrix of {up.shape[0]} x {down.shape[1]}, but that of the base is"
            f" {shape[0]} x {shape[1]}; name the model that the adapter was trained on"
        )
    part = layer.rpartition(".")[2]
    if _HAS_PERMUTED_ROTATION[base.architecture] and part in _ROTATED:
        up = _permute_rows(up, base.heads if part == "attn_q" else base.key_heads)
    return down, up


def _write(target: Path, architecture: str, name: str, alpha: float, pairs: Mapping[str, Pair]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    writer = GGUFWriter(partial, architecture)
    writer.add_type("adapter")
    writer.add_name(name)
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)
    for layer, (down, up) in pairs.items():
        writer.add_tensor(f"{layer}.weight.lora_a", down)
        writer.add_tensor(f"{layer}.weight.lora_b", up)
    try:
        save(writer)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def save(writer: GGUFWriter) -> None:
    """Write the file of `writer`, until it is on disk."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    for stream in writer.fout or ():
        os.fsync(stream.fileno())
    writer.close()


def _permute_rows(rows: np.ndarray, heads: int) -> np.ndarray:
    """Put halves of every head side by side: rows 0 1 2 3 of one head become 0 2 1 3.

    PEFT has them in the order of transformers, which turns the first half of a head against the second one; llama.cpp
    turns neighbors.
    """
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


_VERSIONS = (2, 3)
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Types of numbers."""
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Of one file."""

    values: Mapping[str, str | int | float]
    """By key; arrays are left out."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the tensors by name; (rows, columns) of a matrix."""


def read_header(path: Path) -> GgufHeader:
    """Return what the file says of itself; ModelError where it is none in GGUF, or cannot be read."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Reader(content).header()
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelError(f"{path}: is no file in GGUF ({error}); fetch or convert it again") from None


class _Reader:
    """Goes through a file from its beginning."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = 0

    def header(self) -> GgufHeader:
        magic, version = self._content[:4], struct.unpack_from("<I", self._content, 4)[0]
        if magic != b"GGUF" or version not in _VERSIONS:
            raise ValueError(f"it begins with {magic!r} and version {version}")
        self._at = 8
        tensors, entries = self._number(10), self._number(10)
        values: dict[str, str | int | float] = {}
        for _ in range(int(entries)):
            key, kind = self._text(), int(self._number(4))
            if kind == _ARRAY:
                self._skip_array()
            else:
                values[key] = self._text() if kind == _STRING else self._number(kind)
        shapes = {}
        for _ in range(int(tensors)):
            name = self._text()
            sizes = [int(self._number(10)) for _ in range(int(self._number(4)))]
            # the file names the columns first
            shapes[name] = tuple(reversed(sizes))
            self._at += 12  # its type, and where it is
        return GgufHeader(values, shapes)

    def _number(self, kind: int) -> int | float:
        format = _FORMATS[kind]
        (value,) = struct.unpack_from(format, self._content, self._at)
        self._at += struct.calcsize(format)
        number: int | float = value
        return number

    def _text(self) -> str:
        size = int(self._number(10))
        if self._at + size > len(self._content):
            raise ValueError("it ends within a text")
        text = self._content[self._at : self._at + size]
        self._at += size
        return text.decode("utf-8", "replace")

    def _skip_array(self) -> None:
        kind, count = int(self._number(4)), int(self._number(10))
        if kind not in (_STRING, _ARRAY):
            self._at += count * struct.calcsize(_FORMATS[kind])
            return
        at, content, size_of = self._at, self._content, struct.Struct("<Q").unpack_from
        for _ in range(count):
            if kind == _ARRAY:
                raise ValueError("it holds arrays of arrays")
            at += 8 + size_of(content, at)[0]
        self._at = at
