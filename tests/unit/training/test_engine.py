"""The engine on the tiny model, in this process: gradients, adapters, checkpoints, and what it refuses."""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graftline.core.errors import DataError, ModelError
from tests.unit.training.conftest import EXTRA

# which needs torch and transformers
pytest.importorskip("peft", reason=EXTRA)

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from graftline.training.local.engine import Engine, EngineSettings
from graftline.training.local.lora import ADAPTER_CONFIG, FACTS, LoraShape
from graftline.training.local.passes import Example
from tests.unit.training.tiny_model import CONTEXT, VOCABULARY, make_tiny_model

SHAPE = LoraShape(rank=4, seed=5)
ONE_THREAD = EngineSettings(threads=1)
NAME = "tiny-qwen3"


def example(length: int, seed: int = 0, **inputs: Any) -> Example:
    """A text of random tokens, each of which is to foretell the next one; weights are random unless given."""
    random = np.random.default_rng([length, seed])
    tokens = random.integers(20, 900, length + 1)
    given = {"weights": random.random(length, np.float32)} | inputs
    tensors = {name: torch.as_tensor(np.asarray(values, np.float32)) for name, values in given.items()}
    return Example(tokens[:-1].tolist(), {"target_tokens": torch.as_tensor(tokens[1:]), **tensors})


BATCH = [example(5), example(40), example(17)]


@pytest.fixture(scope="module")
def shared_engine(tiny_model: Path) -> Engine:
    return Engine(tiny_model, NAME, ONE_THREAD)


@pytest.fixture
def engine(shared_engine: Engine) -> Iterator[Engine]:
    """An engine with a run `run` that has taken a step, so that all of its weights have gradients."""
    shared_engine.create("run", SHAPE)
    train(shared_engine, "run")
    yield shared_engine
    for run_id in ("run", "other", "copy"):
        shared_engine.forget(run_id)


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> Any:
    """The model as transformers loads it, without an adapter."""
    return AutoModelForCausalLM.from_pretrained(tiny_model)


def train(engine: Engine, run_id: str, batch: list[Example] = BATCH, steps: int = 1, rate: float = 1e-2) -> None:
    for _ in range(steps):
        engine.forward_backward(run_id, batch, "cross_entropy", {}, True)
        engine.optim_step(run_id, learning_rate=rate)


def logprobs(engine: Engine, run_id: str, batch: list[Example] = BATCH) -> np.ndarray:
    found, _ = engine.forward_backward(run_id, batch, "cross_entropy", {}, False)
    return np.concatenate(found)


def gradients(engine: Engine, run_id: str) -> np.ndarray:
    """Those added up so far, which are dropped."""
    run = engine.run(run_id)
    found = [torch.zeros_like(one) if one.grad is None else one.grad for one in run.parameters]
    run.optimizer.zero_grad()
    return torch.cat([one.flatten() for one in found]).numpy().copy()


def weights(engine: Engine, run_id: str) -> np.ndarray:
    return torch.cat([one.detach().flatten() for one in engine.run(run_id).parameters]).numpy().copy()


def teacher_forced(model: Any, one: Example) -> np.ndarray:
    """Logprobs of the targets of `one`, of a whole pass through a model of transformers."""
    with torch.no_grad():
        table = model(input_ids=torch.tensor([one.tokens])).logits[0].float().log_softmax(-1)
    return table.gather(-1, one.inputs["target_tokens"][:, None])[:, 0].numpy()


# gradients


def test_the_ratio_of_gspo_is_that_of_the_sequence_and_not_of_what_goes_through_the_model_with_it(
    engine: Engine,
) -> None:
    sampled, _ = engine.forward_backward("run", BATCH, "cross_entropy", {}, False)
    # all ratios of the first text are e^0.1, and of the other 1; the first token of each does not count, whatever it is
    batch = []
    for number, (one, q) in enumerate(zip(BATCH, sampled, strict=True)):
        mask = torch.ones(len(one.tokens))
        mask[0] = 0
        drawn = torch.as_tensor(q) - (0.1 if number == 0 else 0.0)
        drawn[0] = -9.0
        advantages = torch.full((len(one.tokens),), 2.0)
        inputs = {"target_tokens": one.inputs["target_tokens"], "logprobs": drawn}
        batch.append(replace(one, inputs={**inputs, "advantages": advantages, "sequence_ratio_mask": mask}))

    _, metrics = engine.forward_backward("run", batch, "gspo", {}, False)

    lengths = [len(one.tokens) for one in BATCH]
    by_hand = -2.0 * (math.exp(0.1) * lengths[0] + sum(lengths[1:]))
    assert metrics["loss:sum"] == pytest.approx(by_hand, rel=1e-5)


# steps


def test_the_norm_of_the_gradients_is_told_before_they_are_clipped(engine: Engine) -> None:
    engine.forward_backward("run", BATCH, "cross_entropy", {}, True)
    norm = float(np.linalg.norm(gradients(engine, "run")))
    engine.forward_backward("run", BATCH, "cross_entropy", {}, True)

    metrics = engine.optim_step("run", learning_rate=0.0, grad_clip_norm=norm / 100)

    assert metrics["grad_norm:mean"] == pytest.approx(norm, rel=1e-4)


def test_a_step_is_that_of_adamw(engine: Engine) -> None:
    engine.create("other", SHAPE)
    before = weights(engine, "other")
    engine.forward_backward("other", BATCH, "cross_entropy", {}, True)
    slope = gradients(engine, "other")
    engine.forward_backward("other", BATCH, "cross_entropy", {}, True)

    engine.optim_step("other", learning_rate=0.01, beta1=0.5, beta2=0.5, eps=1e-3, weight_decay=0.1, grad_clip_norm=0)

    # the first step: both means, each divided by 1 - 0.5, are the gradient and its square
    by_hand = before * (1 - 0.01 * 0.1) - 0.01 * slope / (np.abs(slope) + 1e-3)
    assert weights(engine, "other") == pytest.approx(by_hand, abs=1e-5)


@pytest.mark.parametrize("weight", [math.nan, 1e30])
def test_after_gradients_that_were_dropped_all_is_as_if_they_had_not_been(engine: Engine, weight: float) -> None:
    engine.create("other", SHAPE)
    train(engine, "other")
    with suppress(DataError):
        engine.forward_backward("run", [example(9, weights=[weight] * 9)], "cross_entropy", {}, True)
    with pytest.raises(DataError, match="no step is taken"):
        engine.optim_step("run")

    train(engine, "run")
    train(engine, "other")

    assert np.array_equal(weights(engine, "run"), weights(engine, "other"))


# adapters


@pytest.mark.parametrize(
    ("flags", "matrices"),
    [
        # of seven layers in two blocks, and of the output layer
        ({}, 2 * (7 * 2 + 1)),
        ({"train_mlp": False, "train_unembed": False}, 2 * 4 * 2),
        ({"train_attn": False, "train_unembed": False}, 2 * 3 * 2),
        ({"train_attn": False, "train_mlp": False}, 2),
    ],
)
def test_only_the_layers_asked_for_are_trained(engine: Engine, flags: Mapping[str, bool], matrices: int) -> None:
    assert len(engine.create("other", replace(SHAPE, **flags)).parameters) == matrices


def test_after_the_last_run_is_forgotten_the_model_is_as_it_was(tiny_model: Path, plain: Any) -> None:
    engine = Engine(tiny_model, NAME, ONE_THREAD)
    engine.create("run", SHAPE)
    train(engine, "run")

    engine.forget("run")
    engine.forget("run")

    with engine.sampling_from("any", None) as model:
        assert teacher_forced(model, BATCH[1]) == pytest.approx(teacher_forced(plain, BATCH[1]), abs=1e-5)
    engine.create("run", SHAPE)
    assert logprobs(engine, "run", BATCH[:1]) == pytest.approx(teacher_forced(plain, BATCH[0]), abs=1e-5)


def test_matrices_may_be_multiplied_in_half_the_precision(engine: Engine, tiny_model: Path) -> None:
    other = Engine(tiny_model, NAME, EngineSettings(threads=1, precision="bfloat16"))
    other.create("run", SHAPE)
    train(other, "run")

    found = logprobs(other, "run")

    assert {one.dtype for one in other.run("run").parameters} == {torch.float32}
    assert found == pytest.approx(logprobs(engine, "run"), abs=0.2)
    assert not np.array_equal(found, logprobs(engine, "run"))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (LoraShape(rank=0), "rank is 0, but 1 to 512 was expected"),
        (LoraShape(rank=513), "rank is 513, but 1 to 512 was expected"),
        (LoraShape(train_attn=False, train_mlp=False, train_unembed=False), f"no layer of {NAME} is to be trained"),
    ],
)
def test_adapters_that_cannot_be_are_refused(engine: Engine, shape: LoraShape, message: str) -> None:
    with pytest.raises(DataError, match=message):
        engine.create("other", shape)


def test_a_seed_decides_the_first_weights_and_without_one_they_differ(engine: Engine) -> None:
    drawn = []
    for seed in (5, 5, 6, None, None):
        torch.manual_seed(0)
        engine.create("other", replace(SHAPE, seed=seed))
        drawn.append(weights(engine, "other").tobytes())
        engine.forget("other")

    assert [drawn.index(one) for one in drawn] == [0, 0, 2, 3, 4]


# checkpoints


@pytest.mark.parametrize("into", ["copy", "run"])
def test_without_the_optimizer_only_the_weights_are_loaded(engine: Engine, tmp_path: Path, into: str) -> None:
    engine.save("run", tmp_path, with_optimizer=True)
    before = weights(engine, "run")
    engine.create("other", SHAPE)
    engine.load("other", tmp_path, with_optimizer=False)
    train(engine, "run")
    # what is left of a batch is of the weights before
    engine.forward_backward("run", BATCH, "cross_entropy", {}, True)

    run = engine.load(into, tmp_path, with_optimizer=False)

    assert run.steps == 0
    assert np.array_equal(weights(engine, into), before)
    train(engine, into)
    train(engine, "other")
    assert np.array_equal(weights(engine, into), weights(engine, "other"))
    assert not np.array_equal(weights(engine, into), before)


def test_a_checkpoint_before_the_first_step_has_an_optimizer_without_a_state(engine: Engine, tmp_path: Path) -> None:
    engine.create("other", SHAPE)
    engine.save("other", tmp_path, with_optimizer=True)
    train(engine, "other")

    engine.load("copy", tmp_path, with_optimizer=True)
    train(engine, "copy")

    assert np.array_equal(weights(engine, "copy"), weights(engine, "other"))


def test_what_is_written_of_an_adapter_is_json_without_a_path_of_this_machine(engine: Engine, tmp_path: Path) -> None:
    engine.save("run", tmp_path, with_optimizer=False)

    config = json.loads((tmp_path / ADAPTER_CONFIG).read_text("utf-8"))
    facts = json.loads((tmp_path / FACTS).read_text("utf-8"))

    modules = ["down_proj", "gate_proj", "k_proj", "lm_head", "o_proj", "q_proj", "up_proj", "v_proj"]
    kept = {key: config[key] for key in ("peft_type", "base_model_name_or_path", "r", "lora_alpha", "inference_mode")}
    assert kept == {
        "peft_type": "LORA", "base_model_name_or_path": NAME, "r": 4, "lora_alpha": 32, "inference_mode": True,
    }  # fmt: skip
    assert sorted(config["target_modules"]) == modules
    assert facts == {
        "base_model": NAME, "rank": 4, "seed": 5, "train_attn": True, "train_mlp": True, "train_unembed": True,
        "steps": 1, "has_optimizer": False,
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == [ADAPTER_CONFIG, "adapter_model.safetensors", FACTS]


def test_the_output_layer_of_a_tied_model_has_an_adapter_of_its_own(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "tied", is_tied=True)
    engine = Engine(folder, "tied", ONE_THREAD)
    engine.create("run", SHAPE)
    embedding = engine.base.get_input_embeddings().weight.clone()
    before = logprobs(engine, "run").mean()
    train(engine, "run", steps=3)
    (tmp_path / "saved").mkdir()

    engine.save("run", tmp_path / "saved", with_optimizer=True)

    assert logprobs(engine, "run").mean() > before
    assert torch.equal(engine.base.get_input_embeddings().weight, embedding)
    with pytest.warns(UserWarning, match="tie_word_embeddings"):
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "saved")
    assert teacher_forced(model, BATCH[1]) == pytest.approx(logprobs(engine, "run", BATCH[1:2]), abs=1e-4)
    engine.load("copy", tmp_path / "saved", with_optimizer=True)
    assert np.array_equal(logprobs(engine, "copy"), logprobs(engine, "run"))


def test_samplers_are_kept_in_memory_until_others_were_used_more_recently(tiny_model: Path, tmp_path: Path) -> None:
    engine = Engine(tiny_model, NAME, EngineSettings(threads=1, samplers=2))
    engine.create("run", SHAPE)
    folders = {name: tmp_path / name for name in "abcz"}
    for folder in folders.values():
        folder.mkdir()
        train(engine, "run")
        engine.save("run", folder, with_optimizer=False)

    def sampled(name: str) -> np.ndarray:
        with engine.sampling_from(name, folders[name]) as model:
            return teacher_forced(model, BATCH[0])

    first = {name: sampled(name) for name in "aba"}
    size = sum(one.numel() for one in engine.base.parameters())
    # from now on whoever reads a folder anew finds another adapter there
    last = sampled("z")
    for name in "ab":
        shutil.copytree(folders["z"], folders[name], dirs_exist_ok=True)

    assert not np.array_equal(first["a"], first["b"])
    assert [engine.has_sampler(name) for name in "abcz"] == [True, False, False, True]
    # b was put out by z, a stays; then a puts out nothing, and b puts out z
    assert np.array_equal(sampled("a"), first["a"])
    assert np.array_equal(sampled("b"), last)
    assert sum(one.numel() for one in engine.base.parameters()) == size
    engine.forget_sampler("a")
    assert np.array_equal(sampled("a"), last)


def test_who_samples_does_not_disturb_who_trains(engine: Engine, tmp_path: Path) -> None:
    engine.save("run", tmp_path, with_optimizer=True)
    engine.load("copy", tmp_path, with_optimizer=True)
    engine.forward_backward("run", BATCH, "cross_entropy", {}, True)
    for folder in (None, tmp_path):
        with engine.sampling_from("sampler", folder) as model:
            teacher_forced(model, BATCH[0])
    engine.forget_sampler("sampler")

    engine.optim_step("run", learning_rate=1e-2)
    train(engine, "copy")

    assert np.array_equal(weights(engine, "run"), weights(engine, "copy"))


# refusals


WRONG: Mapping[str, tuple[Callable[[], Example], str]] = {
    "no tokens": (lambda: Example([], {}), "has no tokens"),
    "too long": (lambda: example(CONTEXT + 1), f"has {CONTEXT + 1} tokens, but {NAME} takes {CONTEXT}"),
    "token below 0": (
        lambda: replace(example(2), tokens=[-1, 5]),
        f"token -1 is not one of the {VOCABULARY} of {NAME}",
    ),
    "unknown target": (
        lambda: Example([5, 6], {"target_tokens": torch.tensor([5, VOCABULARY + 7])}),
        f"token {VOCABULARY + 7} is not one of the {VOCABULARY} of {NAME}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_datum_that_cannot_be_trained_on_is_named(engine: Engine, wrong: str) -> None:
    make, message = WRONG[wrong]
    before = weights(engine, "run")

    with pytest.raises(DataError) as refused:
        engine.forward_backward("run", [*BATCH, make()], "cross_entropy", {}, True)

    assert str(refused.value) == f"datum 3: {message}"
    with pytest.raises(DataError, match="no step is taken"):
        engine.optim_step("run", learning_rate=1.0)
    assert np.array_equal(weights(engine, "run"), before)


def test_a_text_as_long_as_the_model_takes_is_trained_on(engine: Engine) -> None:
    assert logprobs(engine, "run", [example(CONTEXT)]).shape == (CONTEXT,)


def test_no_datums_at_all_are_no_fault(engine: Engine) -> None:
    assert engine.forward_backward("run", [], "cross_entropy", {}, True) == ([], {"loss:sum": 0.0})


@pytest.mark.parametrize(
    ("change", "with_optimizer", "message"),
    [
        ({"base_model": "llama"}, False, "the checkpoint is one of 'llama', but this server has 'tiny-qwen3'"),
        ({"has_optimizer": False}, True, "the checkpoint has no state of the optimizer; load the one of `save_state`"),
        (
            {"rank": 8},
            False,
            "the checkpoint is of LoraShape(rank=8, train_attn=True, train_mlp=True, train_unembed=True, seed=5), but"
            " the run of LoraShape(rank=4, train_attn=True, train_mlp=True, train_unembed=True, seed=5); create a run"
            " from it instead",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    engine: Engine, tmp_path: Path, change: Mapping[str, Any], with_optimizer: bool, message: str
) -> None:
    engine.save("run", tmp_path, with_optimizer=True)
    facts = json.loads((tmp_path / FACTS).read_text("utf-8"))
    (tmp_path / FACTS).write_text(json.dumps(facts | change), "utf-8")
    before = weights(engine, "run")

    with pytest.raises(DataError) as refused:
        engine.load("run", tmp_path, with_optimizer)

    assert str(refused.value) == message
    assert np.array_equal(weights(engine, "run"), before)


def test_a_checkpoint_that_only_its_owner_can_read_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the checkpoint is encrypted; name one of `save_state`"):
        engine.load("copy", tmp_path, with_optimizer=False)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "holds no model, for it has no config.json; name the folder of a converted model"),
        ("tokenizer.json", r"its tokenizer cannot be loaded \(.+\); put tokenizer.json beside it"),
        ("model.safetensors", r"its weights cannot be loaded \(.+\); convert the model again"),
    ],
)
def test_a_model_of_which_a_part_is_missing_is_refused(
    tiny_model: Path, tmp_path: Path, missing: str, message: str
) -> None:
    for path in tiny_model.iterdir():
        if path.name != missing:
            (tmp_path / path.name).write_bytes(path.read_bytes())

    with pytest.raises(ModelError, match=f"^{tmp_path}: {message}$"):
        Engine(tmp_path, NAME)


def test_a_gpu_that_is_not_there_is_refused(tiny_model: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")

    with pytest.raises(ModelError, match="device is cuda, but torch sees no GPU; use cpu, or auto"):
        Engine(tiny_model, NAME, EngineSettings(device="cuda"))
