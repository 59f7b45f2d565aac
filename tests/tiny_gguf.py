"""A tiny language model as transformers has it, and as a GGUF file: the same weights, in float32.

It knows nothing. Its tokenizer is that of the tiny model of the tests of training.
"""

import json
from pathlib import Path

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGUFWriter, TokenType, get_tensor_name_map
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from graftline.training.local.engine import Engine
from graftline.training.local.lora import LoraShape
from tests.unit.training.tiny_model import VOCABULARY, make_tiny_model

ARCHITECTURES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
LAYERS, HEADS, KEY_HEADS, CONTEXT, EPSILON, ROPE = 3, 4, 2, 512, 1e-5, 10_000.0


def make_model(folder: Path, architecture: str, is_tied: bool = False, context_tokens: int = CONTEXT) -> Path:
    """Write a model of `architecture` with random weights into `folder`, and return it."""
    make_tiny_model(folder)  # for its tokenizer
    ends = json.loads((folder / "generation_config.json").read_text("utf-8"))["eos_token_id"]
    config_of, model_of = ARCHITECTURES[architecture]
    config = config_of(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=context_tokens,
        rms_norm_eps=EPSILON,
        rope_theta=ROPE,
        # so that the most probable tokens stand apart, and that positions matter
        initializer_range=0.15,
        tie_word_embeddings=is_tied,
        bos_token_id=None,
        eos_token_id=ends,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = model_of(config)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return folder


def write_gguf(folder: Path, architecture: str, target: Path) -> Path:
    """Write the model in `folder` to `target`, and return it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    writer = GGUFWriter(target, architecture)
    writer.add_context_length(model.config.max_position_embeddings)
    writer.add_embedding_length(model.config.hidden_size)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(model.config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(ROPE)
    writer.add_rope_dimension_count(model.config.hidden_size // HEADS)
    _add_tokenizer(writer, folder)
    key = next(key for key, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(key, LAYERS)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            values = _rotated(values, HEADS if "q_proj" in name else KEY_HEADS)
        writer.add_tensor(str(names.get_name(name, try_suffixes=(".weight", ".bias"))), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _rotated(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return `rows` in the order of llama.cpp: of every head, one of its first half, one of its second, and so on."""
    size = len(rows) // heads
    order = [
        head * size + half * size // 2 + place for head in range(heads) for place in range(size // 2) for half in (0, 1)
    ]
    return rows[order]


def _is_ascii(character: str) -> bool:
    """Return whether `character` stands for a byte of ASCII, of which those that cannot be seen begin at 256."""
    return ord(character) < 127 or 256 <= ord(character) <= 289


def _add_tokenizer(writer: GGUFWriter, folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    ids = {**tokenizer["model"]["vocab"], **{token["content"]: token["id"] for token in tokenizer["added_tokens"]}}
    # bytes that are no text by themselves would be held back until they are
    texts = {number: text for text, number in ids.items() if all(map(_is_ascii, text))}
    special = {token["id"] for token in tokenizer["added_tokens"] if token["special"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([texts.get(number, f"[unused {number}]") for number in range(VOCABULARY)])
    writer.add_token_types(
        [
            TokenType.CONTROL if number in special else TokenType.NORMAL if number in texts else TokenType.UNUSED
            for number in range(VOCABULARY)
        ]
    )
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text("utf-8"))


def random_adapter(engine: Engine, folder: Path, seed: int, size: float, shape: LoraShape) -> Path:
    """Write an adapter that changes every layer visibly."""
    run = engine.create(f"run-{seed}", shape)
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in run.parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=chance) * size)
    folder.mkdir()
    engine.save(f"run-{seed}", folder, with_optimizer=False)
    return folder
