"""Weights of a GGUF file as safetensors in bfloat16, with tokenizer and chat template.

A script for a Python that has torch and transformers, started by `graftline.llm.weights.convert`; it imports nothing of this
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

_CONTROL = 3
"""Type of tokens that stand for no text."""
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How a text is cut before pairs are joined, from tokenizer.json of Qwen/Qwen2.5-Coder-1.5B-Instruct."""


def packages(names: list[str]) -> dict[str, str | None]:
    """Return the versions of installed packages."""
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def convert(source: Path, folder: Path) -> dict[str, int]:
    """Write the weights of `source` to `folder`."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    torch, transformers = import_module("torch"), import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder_name, file = str(source.parent), source.name
    tokenizer = _tokenizer(source, transformers)
    # packed weights could not be saved; versions without this setting always unpack them
    unpacking = {"quantization_config": transformers.GgufConfig(dequantize=True)} if _keeps_packed(transformers) else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder_name, gguf_file=file, dtype=torch.bfloat16, **unpacking
    )
    _tie(model, torch)
    for name in ("quantization_config", "_name_or_path"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    model.hf_quantizer, model.is_quantized = None, False
    for config in (model.config, model.generation_config):
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(config, name, getattr(tokenizer, name))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # some are written for their owner alone, but folders of models are shared
    return {"parameters": sum(parameter.numel() for parameter in model.parameters())}


def _keeps_packed(transformers: Any) -> bool:
    return hasattr(transformers, "GgufConfig")


def _tokenizer(source: Path, transformers: Any) -> Any:
    """Return the tokenizer that `source` describes: that of transformers 5.5 for such files has another vocabulary."""
    gguf, tokenizers = import_module("gguf"), import_module("tokenizers")
    fields = gguf.GGUFReader(source).fields

    def field(key: str, default: Any = None) -> Any:
        return fields[f"tokenizer.{key}"].contents() if f"tokenizer.{key}" in fields else default

    kind, cut = field("ggml.model"), field("ggml.pre", "")
    if kind != "gpt2" or cut not in _PIECES:
        raise SystemExit(
            f"{source.name}: has a tokenizer of the kind {kind}/{cut}; known are gpt2/{', gpt2/'.join(_PIECES)}"
        )
    texts = field("ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("ggml.merges")]
    model = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={text: id for id, text in enumerate(texts)}, merges=merges)
    )
    model.pre_tokenizer, model.normalizer = (
        _PIECES[cut](tokenizers),
        tokenizers.normalizers.NFC() if cut == "qwen2" else None,
    )
    model.decoder = tokenizers.decoders.ByteLevel()
    special = [text for text, type in zip(texts, field("ggml.token_type"), strict=True) if type == _CONTROL]
    model.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in special])

    def token(name: str, default: int) -> str:
        return str(texts[field(f"ggml.{name}_token_id", default)])

    end = field("ggml.eos_token_id")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=model,
        bos_token=token("bos", end),
        eos_token=token("eos", end),
        pad_token=token("padding", end),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = field("chat_template")
    return tokenizer


def _of_smollm(tokenizers: Any) -> Any:
    cutters = tokenizers.pre_tokenizers
    return cutters.Sequence([cutters.Digits(individual_digits=True), cutters.ByteLevel(add_prefix_space=False)])


def _of_qwen2(tokenizers: Any) -> Any:
    cutters = tokenizers.pre_tokenizers
    words = cutters.Split(tokenizers.Regex(_QWEN2), behavior="isolated")
    return cutters.Sequence([words, cutters.ByteLevel(add_prefix_space=False, use_regex=False)])


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


_PIECES = {"smollm": _of_smollm, "qwen2": _of_qwen2}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    report = packages(arguments) if command == "packages" else convert(Path(arguments[0]), Path(arguments[1]))
    print(json.dumps(report))
