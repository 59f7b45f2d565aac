"""Adapters of PEFT, made by peft itself: imported and trained on, merged, and exported as GGUF."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

import torch
from click.testing import CliRunner
from gguf import GGUFReader
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from graftline.cli.main import main
from graftline.core.errors import DataError, GraftlineError, ModelError
from graftline.llm.weights.merge import merge_adapter
from graftline.llm.weights.merge_gguf import export_gguf
from graftline.llm.weights.peft_files import decode_floats, encode_floats
from graftline.training.local.checkpoints import CheckpointStore
from graftline.training.local.engine import Engine, EngineSettings
from graftline.training.local.passes import Example
from graftline.training.local.peft_import import import_adapter
from tests.tiny_gguf import make_model, write_gguf
from tests.unit.training.tiny_model import make_tiny_model

TOKENS = [5, 17, 300, 42, 8, 99, 640, 12]
SETTINGS = EngineSettings(threads=1)


def make_adapter(base: Path, folder: Path, **config: Any) -> Path:
    """Write an adapter that peft made, with matrices that change what the model says."""
    values = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.1, **config}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), LoraConfig(**values))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder, save_embedding_layers=False)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    return make_adapter(base, tmp_path / "style")


def logits(model: Any) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(model.eval()(torch.tensor([TOKENS])).logits[0].float())


def by_peft(base: Path, adapter: Path) -> np.ndarray:
    return logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapter))


def plain(folder: Path) -> np.ndarray:
    return logits(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))


def example() -> Example:
    targets = {"target_tokens": torch.tensor([*TOKENS[1:], 7]), "weights": torch.ones(len(TOKENS))}
    return Example(TOKENS, targets)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"use_rslora": True, "lora_alpha": 5},
        {"target_modules": ["down_proj", "lm_head"], "r": 3},
    ],
)
def test_an_adapter_is_imported_trained_on_and_loaded_by_peft_again(
    base: Path, tmp_path: Path, config: dict[str, Any]
) -> None:
    adapter = make_adapter(base, tmp_path / "style", **config)
    uri = import_adapter(adapter, base, "tiny", tmp_path / "store")
    assert import_adapter(adapter, base, "tiny", tmp_path / "store") == uri
    store = CheckpointStore(tmp_path / "store")
    engine = Engine(base, "tiny", SETTINGS)
    engine.load("run", store.files(store.parse(uri)), with_optimizer=False)

    def by_engine() -> np.ndarray:
        with engine._using(engine.run("run").id, is_training=False):
            return logits(engine._peft)

    imported = by_engine()
    assert imported == pytest.approx(by_peft(base, adapter), abs=1e-4)
    assert np.abs(imported - plain(base)).max() > 0.1
    engine.forward_backward("run", [example()], "cross_entropy", {}, is_training=True)
    engine.optim_step("run", learning_rate=0.05)
    trained = by_engine()
    assert np.abs(trained - imported).max() > 0.1
    (tmp_path / "saved").mkdir()
    engine.save("run", tmp_path / "saved", with_optimizer=False)
    assert by_peft(base, tmp_path / "saved") == pytest.approx(trained, abs=1e-4)


def test_layers_that_were_left_alone_are_trained_as_well(base: Path, adapter: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    folder = store.files(store.parse(import_adapter(adapter, base, "tiny", tmp_path / "store")))
    tensors = load_file(folder / "adapter_model.safetensors")
    keys = "base_model.model.model.layers.0.self_attn.k_proj.lora_{}.weight"
    assert (tensors[keys.format("A")].std() > 0, np.abs(tensors[keys.format("B")]).max()) == (True, 0)
    facts = json.loads((folder / "facts.json").read_text("utf-8"))
    assert (facts["train_attn"], facts["train_mlp"], facts["train_unembed"], facts["rank"]) == (True, False, False, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_merged_model_is_the_base_with_the_adapter(adapter: Path, base: Path, tmp_path: Path, dtype: Any) -> None:
    stored = tmp_path / "stored"
    make_tiny_model(stored)  # for its tokenizer
    AutoModelForCausalLM.from_pretrained(base, dtype=dtype).save_pretrained(stored)
    first = merge_adapter(adapter, stored, tmp_path / "merged")
    assert (first.is_fresh, merge_adapter(adapter, stored, tmp_path / "merged").is_fresh) == (True, False)
    tolerance = 1e-4 if dtype == torch.float32 else 0.1  # bfloat16 has three digits
    assert plain(tmp_path / "merged") == pytest.approx(by_peft(stored, adapter), abs=tolerance)
    assert (tmp_path / "merged" / "tokenizer.json").is_file()


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # of peft: what it says is done here
@pytest.mark.parametrize("shard", ["1GB", "60KB"])
def test_an_output_layer_that_is_the_embedding_becomes_one_of_its_own(tmp_path: Path, shard: str) -> None:
    tied = make_tiny_model(tmp_path / "tied", is_tied=True)
    AutoModelForCausalLM.from_pretrained(tied, dtype=torch.float32).save_pretrained(tied, max_shard_size=shard)
    if shard == "60KB":
        (tied / "model.safetensors").unlink()
    adapter = make_adapter(tied, tmp_path / "style", target_modules=["q_proj", "lm_head"])
    folder = merge_adapter(adapter, tied, tmp_path / "merged").folder
    assert plain(folder) == pytest.approx(by_peft(tied, adapter), abs=1e-4)
    merged = AutoModelForCausalLM.from_pretrained(folder)
    before = AutoModelForCausalLM.from_pretrained(tied)
    assert merged.config.tie_word_embeddings is False
    assert torch.equal(merged.get_input_embeddings().weight, before.get_input_embeddings().weight)
    if shard == "60KB":
        index = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))
        tensors = {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}
        assert (index["metadata"]["total_size"], set(index["weight_map"])) == (
            sum(tensor.nbytes for tensor in tensors.values()), set(tensors),
        )  # fmt: skip
    # what is merged into it once more is an ordinary layer, also where a model says of a layer of its own that it is the embedding
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}), "utf-8")
    tied_again = plain(merge_adapter(adapter, folder, tmp_path / "tied_again").folder)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    again = merge_adapter(adapter, folder, tmp_path / "again").folder
    assert plain(again) == pytest.approx(by_peft(folder, adapter), abs=1e-4)
    assert tied_again == pytest.approx(plain(again))


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # of peft: what it says is done here
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_an_exported_file_has_an_output_layer_of_its_own_where_the_adapter_changes_it(
    tmp_path: Path, architecture: str
) -> None:
    model = make_model(tmp_path / "model", architecture, is_tied=True)
    adapter = make_adapter(model, tmp_path / "style", target_modules=["k_proj", "lm_head"])
    source = write_gguf(model, architecture, tmp_path / "base.gguf")
    export_gguf(adapter, source, tmp_path / "out", "f32")
    merge_adapter(adapter, model, tmp_path / "merged")
    expected = GGUFReader(write_gguf(tmp_path / "merged", architecture, tmp_path / "merged.gguf"))
    tensors = {tensor.name: np.asarray(tensor.data) for tensor in GGUFReader(tmp_path / "out" / "style.gguf").tensors}
    assert {*tensors} == {tensor.name for tensor in expected.tensors} > {"output.weight", "token_embd.weight"}
    for tensor in expected.tensors:
        assert tensors[tensor.name] == pytest.approx(np.asarray(tensor.data), abs=1e-6), tensor.name


def test_sixteen_bits_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    values = torch.tensor([1.0, 1.00390625, 1.01171875, -2.3456, 3e38, 1e-40])  # the second and third lie half way
    expected = values.to(torch.bfloat16).float().numpy()
    assert np.array_equal(decode_floats(encode_floats(values.numpy(), "BF16"), "BF16"), expected)


# of every packing, and of every architecture
@pytest.mark.parametrize(
    ("architecture", "packing", "tolerance"),
    [("llama", "f32", 1e-6), ("qwen2", "f16", 1e-3), ("llama", "bf16", 1e-2), ("qwen2", "q8_0", 2e-2)],
)
def test_an_exported_file_has_the_tensors_of_the_merged_model(
    tmp_path: Path, architecture: str, packing: Any, tolerance: float
) -> None:
    model = make_model(tmp_path / "model", architecture)
    adapter = make_adapter(model, tmp_path / "style", target_modules=["q_proj", "k_proj", "down_proj", "lm_head"])
    source = write_gguf(model, architecture, tmp_path / "base.gguf")
    export_gguf(adapter, source, tmp_path / "out", packing)
    merge_adapter(adapter, model, tmp_path / "merged")
    # the file that the tests write of a model, rows in the order of llama.cpp, of the merged one
    wanted = GGUFReader(write_gguf(tmp_path / "merged", architecture, tmp_path / "merged.gguf"))
    exported, original = GGUFReader(tmp_path / "out" / "style.gguf"), GGUFReader(source)
    fields = {name: field.contents() for name, field in exported.fields.items() if not name.startswith("GGUF.")}
    assert fields == {name: field.contents() for name, field in original.fields.items() if not name.startswith("GGUF.")}
    from gguf.quants import dequantize

    tensors = {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in exported.tensors}
    assert [*tensors] == [tensor.name for tensor in original.tensors]
    for tensor in wanted.tensors:
        assert tensors[tensor.name] == pytest.approx(np.asarray(tensor.data), abs=tolerance), tensor.name


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A model of another shape."""
    return make_model(tmp_path / "other", "llama")


def spoil_weights(adapter: Path) -> None:
    (adapter / "adapter_model.safetensors").write_bytes(b"\xff" * 40)


def spoil_rank(adapter: Path) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(path.read_text().replace('"r": 4', '"r": 8'))


def spoil_layer(adapter: Path) -> None:
    path = adapter / "adapter_model.safetensors"
    save_file({name.replace("layers.1", "layers.7"): value for name, value in load_file(path).items()}, path)


def remove_config(adapter: Path) -> None:
    (adapter / "adapter_config.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_weights, "holds no weights of an adapter"),
        (spoil_rank, "is 4, but adapter_config.json says 8"),
        (spoil_layer, "which the base has not"),
        (remove_config, "is not the configuration of a LoRA adapter"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_everywhere(
    adapter: Path, base: Path, tmp_path: Path, spoil: Any, message: str
) -> None:
    spoil(adapter)
    for use in (
        lambda: merge_adapter(adapter, base, tmp_path / "merged"),
        lambda: import_adapter(adapter, base, "tiny", tmp_path / "store"),
    ):
        with pytest.raises(DataError, match=message):
            use()
    assert not (tmp_path / "merged").exists()


def test_a_base_that_is_another_or_none_is_refused(base: Path, other: Path, tmp_path: Path) -> None:
    adapter = make_adapter(base, tmp_path / "style", target_modules=["down_proj"])
    (tmp_path / "empty").mkdir()
    for model, error, message in (
        (other, DataError, "name the model that the adapter was trained on"),
        (tmp_path / "empty", ModelError, "holds no model"),
    ):
        with pytest.raises(error, match=message):
            merge_adapter(adapter, model, tmp_path / "merged")
        with pytest.raises(error, match=message):
            import_adapter(adapter, model, "tiny", tmp_path / "store")
    (tmp_path / "empty" / "config.json").write_text("{}")
    (tmp_path / "empty" / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(ModelError, match="is no file in safetensors"):
        merge_adapter(adapter, tmp_path / "empty", tmp_path / "merged")


def test_layers_that_the_backend_does_not_train_are_named(base: Path, tmp_path: Path) -> None:
    adapter = make_adapter(base, tmp_path / "style", target_modules=["q_proj", "embed_tokens"])
    with pytest.raises(GraftlineError, match=r"embed_tokens|no matrix of a LoRA adapter"):
        import_adapter(adapter, base, "tiny", tmp_path / "store")


def test_the_commands_do_the_same(adapter: Path, base: Path, tmp_path: Path) -> None:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)

    def run(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(main, ["--root", str(tmp_path), "model", *arguments])
        assert result.exit_code == code, result.output
        return result

    merged = run("merge", str(adapter), "--base", str(base), "--output", str(tmp_path / "merged"), "--json")
    assert json.loads(merged.stdout)["layers"] == 4
    assert plain(tmp_path / "merged") == pytest.approx(by_peft(base, adapter), abs=1e-4)
    model = make_model(tmp_path / "llama", "llama")
    lora = make_adapter(model, tmp_path / "lora")
    source = write_gguf(model, "llama", tmp_path / "base.gguf")
    words = ("export", str(lora), "--base", str(source), "--output", str(tmp_path / "out"))
    assert "say --gguf" in run(*words, code=2).output
    assert run(*words, "--gguf").stdout.strip() == str(tmp_path / "out" / "lora.gguf")
    path = run("import", str(adapter), "--base", "tiny", "--folder", str(base)).stdout.strip()
    assert path.startswith("tinker://imported-")
    assert CheckpointStore(tmp_path / "data" / "tinker").files(
        CheckpointStore(tmp_path / "data" / "tinker").parse(path)
    )
    assert "does not say what it was trained on" in run("merge", str(adapter), "--output", "x", code=1).output
    assert "is no folder, and no adapter of a recipe" in run("merge", "nobody", "--output", "x", code=1).output
