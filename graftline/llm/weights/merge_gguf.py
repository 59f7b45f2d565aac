"""A model in GGUF with a LoRA adapter added to its weights, for llama.cpp.

What the file says of itself, its tokenizer, and the tensors that the adapter does not change are taken as they are. Those that it
changes are unpacked to float32, and packed again as asked. Where the output layer is the embedding, and the adapter changes it, it
becomes one of its own.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, Keys, ReaderTensor, quants

from graftline.core.build import Built, Contents, Request, build
from graftline.core.errors import DataError
from graftline.core.hashing import code_version, sha256_file
from graftline.llm.weights.lora_gguf import name_pairs, read_base, save
from graftline.llm.weights.peft_files import CONFIG, WEIGHTS, read_adapter

KIND = "merged-gguf"
"""Of the record of such a model."""
Packing = Literal["f32", "f16", "bf16", "q8_0"]
PACKINGS: tuple[Packing, ...] = get_args(Packing)
_OUTPUT, _EMBEDDING = "output", "token_embd.weight"
_BLOCK = 32
"""Numbers that `q8_0` packs together."""


def export_gguf(adapter: Path, base: Path, into: Path, packing: Packing = "f16") -> Built:
    """Return the artifact in `into`, which holds the model of the file `base` with the adapter as `<name of folder>.gguf`.

    DataError if the adapter is none, or of another model; ModelError if `base` is no file in GGUF, or of another architecture.
    """
    name = f"{adapter.resolve().name}.gguf"
    lora = read_adapter(adapter, "llama.cpp")
    own = read_base(base)
    embedding = own.shapes.get(_EMBEDDING, ())
    pairs = name_pairs(adapter, lora, replace(own, shapes={f"{_OUTPUT}.weight": embedding, **own.shapes}))
    is_tied = f"{_OUTPUT}.weight" not in own.shapes
    if packing == "q8_0" and (odd := [layer for layer, (down, _) in pairs.items() if down.shape[1] % _BLOCK]):
        raise DataError(
            f"{adapter}: {odd[0]} has rows that q8_0 cannot pack, {_BLOCK} numbers at a time; say another packing"
        )
    inputs = {"base": sha256_file(base), **{file: sha256_file(adapter / file) for file in (WEIGHTS, CONFIG)}}

    def make(partial: Path) -> Contents:
        reader, kind = GGUFReader(base), GGMLQuantizationType[packing.upper()]
        architecture = str(reader.fields[Keys.General.ARCHITECTURE].contents())
        writer = GGUFWriter(partial / name, architecture)
        for field in reader.fields.values():
            if not field.name.startswith("GGUF.") and field.name != Keys.General.ARCHITECTURE:
                sub_type = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)

        def add_merged(layer: str, tensor: ReaderTensor) -> None:
            down, up = pairs[layer]
            weights = quants.dequantize(tensor.data, tensor.tensor_type) + np.float32(lora.scaling) * (up @ down)
            writer.add_tensor(f"{layer}.weight", quants.quantize(weights, kind), raw_dtype=kind)

        for tensor in reader.tensors:
            layer = tensor.name.removesuffix(".weight")
            if layer in pairs:
                add_merged(layer, tensor)
            else:
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            if tensor.name == _EMBEDDING and is_tied and _OUTPUT in pairs:
                # the output layer was the embedding, which stays as it is
                add_merged(_OUTPUT, tensor)
        save(writer)
        return Contents({"layers": len(pairs)})

    return build(into, Request(KIND, name, code_version(__name__), inputs, {"packing": packing}), make)
