"""The memory training service beyond its port: its gradients, its tokens, and what becomes of it with time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import numpy as np
import pytest

from graftline.core.errors import DataError, TrainingError
from graftline.training.datums import render_chat_example
from graftline.training.local.losses import LOSSES, checked_options
from graftline.training.memory.model import Adapter, TableModel, loss_and_slopes, new_adapter, no_gradients
from graftline.training.memory.service import MemoryTrainingService
from graftline.training.memory.tokenizer import MARKS, MemoryTokenizer
from tests.unit.training.conftest import EXTRA

START = datetime(2026, 1, 1, tzinfo=UTC)
LOGPROBS = np.array([[-0.2, -1.5], [-2.5, -0.7]])
INPUTS = {
    "weights": np.array([[1.0, 0.0], [0.5, 2.0]]),
    "logprobs": np.array([[-0.9, -1.4], [-1.0, -0.9]]),
    "advantages": np.array([[1.0, -2.0], [0.5, -1.0]]),
    "sequence_ratio_mask": np.array([[1.0, 1.0], [1.0, 0.0]]),
}
HAS_CONSTANT_RATIO = ("cispo", "gspo", "stable_reinforce")
"""Losses whose slope is not that of their value: the ratio in them is a constant."""


class Clock:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def numeric_slope(value: Callable[[], float], at: np.ndarray) -> np.ndarray:
    """Return the slope of `value` by each number of `at`, from both sides."""
    slope, apart = np.zeros_like(at), 1e-6
    for index in np.ndindex(at.shape):
        kept = at[index]
        at[index] = kept + apart
        above = value()
        at[index] = kept - apart
        slope[index] = (above - value()) / (2 * apart)
        at[index] = kept
    return slope


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss not in HAS_CONSTANT_RATIO])
def test_slopes_of_losses_are_what_the_losses_do(loss: str) -> None:
    logprobs, options = LOGPROBS.copy(), checked_options(loss, {})
    found = loss_and_slopes(loss, options, logprobs, INPUTS)[1]
    assert found == pytest.approx(numeric_slope(lambda: loss_and_slopes(loss, options, logprobs, INPUTS)[0], logprobs))


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_those_of_the_backend_of_this_machine(loss: str) -> None:
    torch = pytest.importorskip("torch", reason=EXTRA)
    from graftline.training.local.losses import loss_sum, sequence_log_ratio

    logprobs, options = torch.tensor(LOGPROBS, requires_grad=True), checked_options(loss, {})
    inputs = {name: torch.tensor(one) for name, one in INPUTS.items()}
    inputs["sequence_log_ratio"] = sequence_log_ratio(logprobs, inputs)
    total = loss_sum(loss, options, logprobs, inputs)
    total.backward()
    value, slopes = loss_and_slopes(loss, options, LOGPROBS, INPUTS)
    assert value == pytest.approx(float(total.detach()))
    assert slopes == pytest.approx(logprobs.grad.numpy())


def test_gradients_are_what_the_adapter_does() -> None:
    model, tokens = TableModel(6, seed=0), [1, 2, 1]
    targets, weights = np.array([[2, 0], [1, 5], [1, 3]]), np.array([[1.0, 0.0], [0.5, 2.0], [0.0, 0.7]])
    adapter = new_adapter(6, 2, seed=0)
    adapter.up += 0.1

    def loss() -> float:
        chosen = np.take_along_axis(model.logprobs(adapter, tokens), targets, -1)
        return loss_and_slopes("cross_entropy", {}, chosen, {"weights": weights})[0]

    found = no_gradients(adapter)
    found.add(adapter, tokens, targets, model.logprobs(adapter, tokens), -weights)
    assert found.down == pytest.approx(numeric_slope(loss, adapter.down), abs=1e-6)
    assert found.up == pytest.approx(numeric_slope(loss, adapter.up), abs=1e-6)


def test_an_adapter_that_was_not_trained_changes_nothing() -> None:
    model = TableModel(6, seed=0)
    assert (model.logprobs(new_adapter(6, 2, seed=9), [3]) == model.logprobs(None, [3])).all()
    assert np.exp(model.logprobs(None, [0, 1])).sum(-1) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("text", ["", "plain", "für 🎉", "a<|im_end|>b<think>\n</think>", "<|im_end", "".join(MARKS)])
def test_a_text_is_its_tokens_and_back(text: str) -> None:
    tokenizer = MemoryTokenizer()
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert all(0 <= token < tokenizer.vocab_size for token in tokens)
    assert tokenizer.decode(tokenizer.encode(text, split_special_tokens=True)) == text


@pytest.mark.parametrize("renderer", ["role_colon", "qwen3_instruct", "qwen3"])
def test_renderers_of_the_cookbook_suit_its_tokens(renderer: str) -> None:
    pytest.importorskip("tinker_cookbook", reason=EXTRA)
    chat = [{"role": "user", "content": "two?"}, {"role": "assistant", "content": "é"}]
    datum = render_chat_example(chat, MemoryTokenizer(), renderer)
    trained = [
        token
        for token, weight in zip(
            datum.loss_fn_inputs["target_tokens"].data, datum.loss_fn_inputs["weights"].data, strict=True
        )
        if weight
    ]
    assert "é" in MemoryTokenizer().decode(trained)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def exported(service: MemoryTrainingService, **options: Any) -> str:
    return service.create_training_client("any", 2, 0).save_weights_external("final", **options).result().path


def test_a_checkpoint_expires(clock: Clock) -> None:
    pytest.importorskip("tinker", reason=EXTRA)
    with MemoryTrainingService(clock=clock) as service:
        path = exported(service, ttl_seconds=3600)
        clock.now += timedelta(seconds=3599)
        assert service.weights_info(path).lora_rank == 2
        clock.now += timedelta(seconds=1)
        with pytest.raises(TrainingError, match="whether it has expired"):
            service.weights_info(path)


def test_an_address_is_good_for_a_while_and_ends_with_the_service(clock: Clock) -> None:
    pytest.importorskip("tinker", reason=EXTRA)
    with MemoryTrainingService(clock=clock) as service:
        found = service.external_urls(exported(service))
        url = found.urls["adapter_config.json"]
        with urlopen(url) as answer:
            assert b'"r": 2' in answer.read()
        with pytest.raises(HTTPError, match="403") as other:
            urlopen(url.replace("adapter_config", "other"))
        other.value.close()
        clock.now = found.expires
        with pytest.raises(HTTPError, match="403") as late:
            urlopen(url)
        late.value.close()
    service.close()
    with pytest.raises(URLError, match="refused"):
        urlopen(url)


def test_what_a_checkpoint_is_not_for_is_refused() -> None:
    pytest.importorskip("tinker", reason=EXTRA)
    with MemoryTrainingService() as service:
        path = exported(service)
        with pytest.raises(DataError, match="is not of the kind weights"):
            service.from_state(path)


def test_what_a_loss_of_somebody_else_raises_is_told() -> None:
    pytest.importorskip("torch", reason=EXTRA)
    types = pytest.importorskip("tinker.types", reason=EXTRA)
    datum = types.Datum(model_input=types.ModelInput.from_ints([1]), loss_fn_inputs={"target_tokens": [2]})
    with MemoryTrainingService() as service:
        trainer = service.create_training_client("any", 2, 0)
        with pytest.raises(TrainingError, match=r"step 1: failed with ZeroDivisionError \(division by zero\)"):
            service.result(trainer.forward_backward_custom([datum], lambda data, logprobs: 1 / 0), "step 1")


def test_a_copy_of_an_adapter_is_not_trained_with_it() -> None:
    adapter = new_adapter(4, 2, seed=0)
    copied = adapter.copy()
    adapter.up += 1
    assert (copied.up == 0).all()
    assert isinstance(copied, Adapter)
