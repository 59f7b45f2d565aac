"""LoRA adapters as GGUF files. What llama.cpp makes of them is a test of integration."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="pip install gguf safetensors")

import numpy as np
from click.testing import CliRunner
from gguf import GGUFReader, GGUFWriter
from safetensors.numpy import save_file

from graftline.cli.main import main
from graftline.cli.model import convert_adapter as adapter_command
from graftline.core.errors import DataError, ModelError
from graftline.core.record import load_verified
from graftline.llm.weights.lora_gguf import KIND, convert_adapter, read_base, read_header, write_lora

QUERIES, KEYS, OUTPUT = (f"base_model.model.model.layers.1.self_attn.{part}_proj" for part in "qko")
HEAD = "base_model.model.lm_head"


def write_base(path: Path, architecture: str = "llama", has_head: bool = False) -> Path:
    """Write a model of width 8 with two heads of 4 and one key head: nothing but what a header says."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(2)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_token_list(["a", "bc", ""])
    for name, rows in (("attn_q", 8), ("attn_k", 4), ("attn_output", 8)):
        writer.add_tensor(f"blk.1.{name}.weight", np.zeros((rows, 8), np.float32))
    if has_head:
        writer.add_tensor("output.weight", np.zeros((3, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rows_of(count: int) -> np.ndarray:
    """Return a matrix B of rank 2 whose rows say their number."""
    return np.arange(count, dtype=np.float32)[:, None].repeat(2, axis=1)


def write_adapter(folder: Path, layers: dict[str, int], **config: Any) -> Path:
    """Write an adapter of rank 2 for `layers` and their numbers of rows."""
    folder.mkdir()
    tensors = {}
    for layer, rows in layers.items():
        tensors |= {
            f"{layer}.lora_A.weight": np.full((2, 8), 0.5, np.float32),
            f"{layer}.lora_B.weight": rows_of(rows),
        }
    save_file(tensors, folder / "adapter_model.safetensors")
    values = {"peft_type": "LORA", "r": 2, "lora_alpha": 32, "bias": "none", **config}
    (folder / "adapter_config.json").write_text(json.dumps(values), "utf-8")
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base.gguf")


def written(folder: Path, base: Path) -> GGUFReader:
    target = folder.parent / "adapter.gguf"
    write_lora(folder, read_base(base), target)
    return GGUFReader(target)


def first_column(reader: GGUFReader, name: str) -> list[float]:
    (found,) = [tensor.data for tensor in reader.tensors if tensor.name == name]
    return [float(value) for value in found[:, 0]]


def test_the_file_says_what_it_is(tmp_path: Path, base: Path) -> None:
    reader = written(write_adapter(tmp_path / "style", {OUTPUT: 8}), base)
    said = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert said == {
        "general.architecture": "llama",
        "general.type": "adapter",
        "general.name": "style",
        "adapter.type": "lora",
        "adapter.lora.alpha": 32.0,
    }
    assert {tensor.name: tensor.data.shape for tensor in reader.tensors} == {
        "blk.1.attn_output.weight.lora_a": (2, 8),
        "blk.1.attn_output.weight.lora_b": (8, 2),
    }
    assert first_column(reader, "blk.1.attn_output.weight.lora_b") == [0, 1, 2, 3, 4, 5, 6, 7]


def test_rows_of_queries_and_keys_of_llama_are_put_in_its_order(tmp_path: Path, base: Path) -> None:
    reader = written(write_adapter(tmp_path / "style", {QUERIES: 8, KEYS: 4}), base)
    # two heads: 0 1 | 2 3 and 4 5 | 6 7, of which one of each half stand side by side; one head of keys
    assert first_column(reader, "blk.1.attn_q.weight.lora_b") == [0, 2, 1, 3, 4, 6, 5, 7]
    assert first_column(reader, "blk.1.attn_k.weight.lora_b") == [0, 2, 1, 3]


def test_rows_of_qwen2_stay_where_they_are(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base.gguf", "qwen2")
    reader = written(write_adapter(tmp_path / "style", {QUERIES: 8}), base)
    assert first_column(reader, "blk.1.attn_q.weight.lora_b") == [0, 1, 2, 3, 4, 5, 6, 7]


def test_the_scale_of_rslora_is_that_of_the_root_of_the_rank(tmp_path: Path, base: Path) -> None:
    reader = written(write_adapter(tmp_path / "style", {OUTPUT: 8}, use_rslora=True), base)
    # 32 / sqrt(2) is wanted, and llama.cpp divides by 2
    assert reader.fields["adapter.lora.alpha"].contents() == pytest.approx(32 * 2**0.5)


def test_weights_of_16_bits_are_read(tmp_path: Path, base: Path) -> None:
    folder = write_adapter(tmp_path / "style", {OUTPUT: 8})
    # 1.5 in bfloat16, which numpy does not know
    header = {
        f"{OUTPUT}.lora_A.weight": {"dtype": "BF16", "shape": [2, 8], "data_offsets": [0, 32]},
        f"{OUTPUT}.lora_B.weight": {"dtype": "F16", "shape": [8, 2], "data_offsets": [32, 64]},
    }
    head = json.dumps(header).encode()
    body = b"\xc0\x3f" * 16 + np.full(16, 0.25, "<f2").tobytes()
    (folder / "adapter_model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + body)
    reader = written(folder, base)
    assert first_column(reader, "blk.1.attn_output.weight.lora_a") == [1.5, 1.5]
    assert first_column(reader, "blk.1.attn_output.weight.lora_b") == [0.25] * 8


def test_an_output_layer_of_its_own_may_be_changed(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base.gguf", has_head=True)
    reader = written(write_adapter(tmp_path / "style", {HEAD: 3}), base)
    assert first_column(reader, "output.weight.lora_b") == [0, 1, 2]


@pytest.mark.parametrize(
    ("layers", "config", "said"),
    [
        ({HEAD: 3}, {}, "changes 'output', .*: its output layer is its embedding; train with train_unembed: false"),
        ({OUTPUT: 9}, {}, "is for a matrix of 9 x 8, but that of the base is 8 x 8; name the model"),
        ({OUTPUT.replace("layers.1", "layers.0"): 8}, {}, "changes 'blk.0.attn_output', which the base has not"),
        ({"base_model.model.vision.proj": 8}, {}, "which llama has not in GGUF"),
        ({OUTPUT: 8}, {"r": 4}, "rank of model.layers.1.self_attn.o_proj is 2, but adapter_config.json says 4"),
        ({OUTPUT: 8}, {"use_dora": True, "rank_pattern": {"q": 1}}, "cannot apply rank_pattern, use_dora"),
        ({OUTPUT: 8}, {"bias": "all"}, "cannot apply bias"),
        ({OUTPUT: 8}, {"peft_type": "IA3"}, "is not the configuration of a LoRA adapter"),
        ({}, {}, "is empty"),
    ],
)
def test_what_llama_cpp_could_not_apply_as_it_was_trained_is_refused(
    tmp_path: Path, base: Path, layers: dict[str, int], config: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        write_lora(write_adapter(tmp_path / "style", layers, **config), read_base(base), tmp_path / "adapter.gguf")
    assert not (tmp_path / "adapter.gguf").exists()


def test_weights_that_are_cut_off_are_refused(tmp_path: Path, base: Path) -> None:
    folder = write_adapter(tmp_path / "style", {OUTPUT: 8})
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="holds no weights of an adapter"):
        write_lora(folder, read_base(base), tmp_path / "adapter.gguf")


def test_a_base_of_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'gemma', but adapters are converted for llama, qwen2, qwen3 only"):
        read_base(write_base(tmp_path / "base.gguf", "gemma"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"PK\x03\x04" + bytes(60), b"GGUF\x03\x00\x00\x00" + b"\xff" * 60])
def test_what_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "base.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="is no file in GGUF"):
        read_header(path)


def test_a_header_is_that_of_the_reader_of_gguf(base: Path) -> None:
    reader, header = GGUFReader(base), read_header(base)
    assert header.shapes == {tensor.name: tensor.data.shape for tensor in reader.tensors}
    single = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    del single["tokenizer.ggml.tokens"]
    assert header.values == single


def test_the_record_names_the_adapter_and_its_base(tmp_path: Path, base: Path) -> None:
    folder, into = write_adapter(tmp_path / "style", {OUTPUT: 8}), tmp_path / "converted"
    first = convert_adapter(folder, base, into)
    assert sorted(first.record.inputs) == ["adapter_config.json", "adapter_model.safetensors", "base"]
    assert (first.is_fresh, convert_adapter(folder, base, into).is_fresh) == (True, False)
    assert [*load_verified(into, KIND).files] == ["style.gguf"]
    other = write_base(tmp_path / "other.gguf", has_head=True)
    assert convert_adapter(folder, other, into).reason == "input base changed"


def test_the_command_asks_for_the_fetched_model(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFTLINE_MODELS", str(tmp_path / "none"))
    folder = write_adapter(tmp_path / "style", {OUTPUT: 8})
    words = [str(folder), "--base", "smollm2-135m", "--output", str(tmp_path / "into")]
    # a command keeps the option for help that it was first asked with, which is that of the whole command line
    result = CliRunner().invoke(adapter_command, words, obj=checkout, **main.context_settings)
    assert "run `graftline model fetch smollm2-135m`" in str(result.exception)
