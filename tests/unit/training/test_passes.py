"""Passes with an adapter through models of several architectures, against the same adapter in peft, example by example."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.training.conftest import EXTRA

pytest.importorskip("peft", reason=EXTRA)

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from graftline.training.local.attention import can_attend_in_rows
from graftline.training.local.engine import Engine, EngineSettings
from graftline.training.local.lora import LoraShape
from graftline.training.local.passes import Example
from graftline.training.local.sampling import Sampling, sample
from tests.unit.training.tiny_model import VOCABULARY, make_tiny_model

_COMMON = {
    "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "initializer_range": 0.1, "max_position_embeddings": 512,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**_COMMON),
    # its layers for queries, keys and values have a bias
    "qwen2": Qwen2Config(**_COMMON),
    "sliding": MistralConfig(**_COMMON, sliding_window=64),
}
LENGTHS = (300, 1, 256, 17, 257)
"""On both sides of where attention is made in another way."""


@pytest.fixture(scope="module", params=CONFIGS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of one architecture."""
    folder = make_tiny_model(tmp_path_factory.mktemp("models") / request.param)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(CONFIGS[request.param]).save_pretrained(folder)
    return folder


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    """An engine with a run whose adapter changes what every layer does."""
    engine = Engine(folder, "tiny", EngineSettings(threads=1, micro_batch_tokens=300))
    torch.manual_seed(2)
    for parameter in engine.create("run", LoraShape(rank=4, seed=3)).parameters:
        torch.nn.init.normal_(parameter, std=0.1)
    yield engine
    engine.forget("run")


def example(length: int) -> Example:
    random = np.random.default_rng(length)
    tokens = random.integers(20, 900, length + 1)
    weights = random.random(length) * (np.arange(length) >= length // 2)
    inputs = {"target_tokens": torch.as_tensor(tokens[1:]), "weights": torch.as_tensor(weights, dtype=torch.float32)}
    return Example(tokens[:-1].tolist(), inputs)


def test_examples_of_any_length_move_an_adapter_together_as_peft_moves_it_one_by_one(
    engine: Engine, folder: Path, tmp_path: Path
) -> None:
    batch = [example(length) for length in LENGTHS]
    engine.save("run", tmp_path, with_optimizer=False)
    peft: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path, is_trainable=True)
    expected = []
    for one in batch:
        table = peft(input_ids=torch.tensor([one.tokens])).logits[0].log_softmax(-1)
        chosen = table.gather(-1, one.inputs["target_tokens"][:, None])[:, 0]
        (-chosen * one.inputs["weights"]).sum().backward()
        expected.append(chosen.detach().numpy())

    found, _ = engine.forward_backward("run", batch, "cross_entropy", {}, True)

    for logprobs, others in zip(found, expected, strict=True):
        assert logprobs == pytest.approx(others, abs=1e-4)
    slopes = [parameter.grad for path, parameter in peft.named_parameters() if ".lora_" in path]
    for parameter, slope in zip(engine.run("run").parameters, slopes, strict=True):
        assert torch.allclose(parameter.grad, slope, atol=1e-3, rtol=1e-3)


def test_without_an_adapter_a_model_is_what_it_was(engine: Engine, folder: Path) -> None:
    tokens = torch.tensor([example(20).tokens])
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder)(input_ids=tokens).logits
        with engine.sampling_from("none", None) as model:
            found = model(input_ids=tokens).logits

    assert torch.allclose(found, expected, atol=1e-5)


def test_sequences_of_several_prompts_are_what_transformers_generates_one_by_one(engine: Engine, folder: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(folder)
    # past where one of the architectures looks back
    prompts, new = [example(length).tokens for length in (3, 50, 17)], 60

    with engine.sampling_from("none", None) as model:
        found = sample(engine, model, [Sampling(one, max_tokens=new, temperature=0.0, stop=[]) for one in prompts])

    for prompt, one in zip(prompts, found, strict=True):
        expected = plain.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=new, min_new_tokens=new)
        assert one.sequences[0].tokens == expected[0, len(prompt) :].tolist()


def test_examples_with_tables_of_other_widths_share_a_request(engine: Engine) -> None:
    several = Example(
        example(12).tokens,
        {"target_tokens": torch.arange(36).reshape(12, 3) + 20, "weights": torch.ones(12, 3)},
    )
    batch = [example(12), several, example(30)]
    alone = [engine.forward_backward("run", [one], "cross_entropy", {}, False)[0][0] for one in batch]

    found, _ = engine.forward_backward("run", batch, "cross_entropy", {}, False)

    assert [one.shape for one in found] == [(12,), (12, 3), (30,)]
    for together, single in zip(found, alone, strict=True):
        assert together == pytest.approx(single, abs=1e-4)


@pytest.mark.parametrize(("name", "expected"), [("llama", True), ("qwen2", True), ("sliding", False)])
def test_where_tokens_look_back_so_far_only_examples_are_padded(name: str, expected: bool) -> None:
    model = AutoModelForCausalLM.from_config(CONFIGS[name])

    assert can_attend_in_rows(model, torch.device("cpu")) is expected
