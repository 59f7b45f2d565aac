"""Weights of a GGUF file as safetensors in bfloat16, with tokenizer and chat template.

A script for a Python that has torch and transformers, started by `graftline.models.convert`; it imports nothing of this
library, asks no model hub, and prints one line of JSON at its end.

    python gguf_to_safetensors.py packages torch transformers
    python gguf_to_safetensors.py convert IN.gguf FOLDER
"""

import json
import os
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

_SAME_WEIGHTS = 0.25
"""Embedding and output that differ by less, relative to their norm, are one matrix in two precisions."""


def packages(names: list[str]) -> dict[str, str | None]:
    """Return the versions of installed packages."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def convert(source: Path, folder: Path) -> dict[str, int]:
    """Write the weights of `source` to `folder`."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    torch, transformers = import_module("torch"), import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    where, file = str(source.parent), source.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(where, gguf_file=file)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        where,
        gguf_file=file,
        dtype=torch.bfloat16,
        # packed weights could not be saved
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
    _tie(model, torch)
    for name in ("quantization_config", "_name_or_path"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    model.hf_quantizer, model.is_quantized = None, False
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # some are written for their owner alone, but folders of models are shared
    return {"parameters": sum(parameter.numel() for parameter in model.parameters())}


def _tie(model: Any, torch: Any) -> None:
    """Use one matrix for embedding and output where they were one before they were packed."""
    if model.config.tie_word_embeddings:
        return
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if embedding.shape != output.shape or (embedding - output).norm() > _SAME_WEIGHTS * output.norm():
        return
    with torch.no_grad():
        embedding.copy_(output)  # which was packed with the greater precision
    model.config.tie_word_embeddings = True
    model.tie_weights()


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    said = packages(arguments) if command == "packages" else convert(Path(arguments[0]), Path(arguments[1]))
    print(json.dumps(said))
