"""Sequences drawn from the tiny model, beside those worked out with transformers alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graftline.core.errors import DataError
from tests.unit.training.conftest import EXTRA

# which needs torch and transformers
pytest.importorskip("peft", reason=EXTRA)

import torch
from transformers import AutoModelForCausalLM

from graftline.training.local.engine import Engine, EngineSettings
from graftline.training.local.sampling import Sampled, SampledSequence, Sampling, check_request, sample
from tests.unit.training.tiny_model import CONTEXT, VOCABULARY

PROMPTS = [[30, 40, 50], [*range(100, 117)], [7], [*range(300, 340)]]
FREE = Sampling(PROMPTS[0], max_tokens=12, stop=[])
GREEDY = replace(FREE, temperature=0.0)


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Engine:
    return Engine(tiny_model, "tiny-qwen3", EngineSettings(threads=1))


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_model)


def drawn(engine: Engine, *requests: Sampling) -> list[Sampled]:
    for request in requests:
        check_request(engine, request)
    with engine.sampling_from("", None) as model:
        return sample(engine, model, requests)


def one(engine: Engine, request: Sampling) -> SampledSequence:
    [found] = drawn(engine, request)
    [sequence] = found.sequences
    return sequence


def table(plain: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Logprobs of whatever could come after each of `tokens`."""
    with torch.no_grad():
        return plain(input_ids=torch.tensor([[*tokens]])).logits[0].log_softmax(-1)


def teacher_forced(plain: Any, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
    found = table(plain, [*prompt, *tokens])
    return [float(found[len(prompt) + number - 1, token]) for number, token in enumerate(tokens)]


# what is drawn


@pytest.mark.parametrize("how", [{}, {"temperature": 0.5}, {"temperature": 2.0, "top_k": 20}, {"top_p": 0.5}])
def test_logprobs_are_those_of_the_model_whatever_was_drawn_with(engine: Engine, plain: Any, how: Any) -> None:
    found = one(engine, replace(FREE, seed=3, **how))

    assert found.logprobs == pytest.approx(teacher_forced(plain, FREE.prompt, found.tokens), abs=1e-4)


def test_a_seed_decides_what_is_drawn_in_whatever_company(engine: Engine) -> None:
    request = replace(FREE, seed=11, count=3)

    [first] = drawn(engine, request)
    _, again = drawn(engine, replace(FREE, prompt=PROMPTS[3], seed=12), request)

    texts = [sequence.tokens for sequence in first.sequences]
    assert [sequence.tokens for sequence in again.sequences] == texts
    assert len({tuple(text) for text in texts}) == 3


def test_without_a_seed_something_else_is_drawn_every_time(engine: Engine) -> None:
    found = [one(engine, FREE).tokens for _ in range(3)]

    assert len({tuple(tokens) for tokens in found}) == 3


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
def test_tokens_are_drawn_as_often_as_the_temperature_says(engine: Engine, plain: Any, temperature: float) -> None:
    count = 2000
    request = replace(FREE, count=count, max_tokens=1, top_k=2, temperature=temperature, seed=1)

    [found] = drawn(engine, request)

    often = Counter(sequence.tokens[0] for sequence in found.sequences)
    values, tokens = table(plain, FREE.prompt)[-1].topk(2)
    share = float(torch.sigmoid((values[0] - values[1]) / temperature))
    assert set(often) == set(tokens.tolist())
    # within four standard deviations
    assert often[int(tokens[0])] / count == pytest.approx(share, abs=4 * (share * (1 - share) / count) ** 0.5)


@pytest.mark.parametrize("how", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-7}])
def test_what_leaves_one_token_only_is_greedy(engine: Engine, how: Any) -> None:
    # at this temperature all tokens are about as probable
    found = one(engine, replace(FREE, **({"temperature": 50.0} | how)))

    assert found.tokens == one(engine, GREEDY).tokens


def test_only_the_most_probable_tokens_that_make_up_top_p_are_drawn(engine: Engine, plain: Any) -> None:
    share = 0.1
    [found] = drawn(engine, replace(FREE, count=500, max_tokens=1, top_p=share, seed=2))

    values, order = table(plain, FREE.prompt)[-1].exp().sort(descending=True)
    size = int((values.cumsum(-1) < share).sum()) + 1
    seen = {sequence.tokens[0] for sequence in found.sequences}
    assert 1 < size < 100
    assert seen <= set(order[:size].tolist())
    assert len(seen) > size / 2


# where it ends


def test_the_context_can_be_filled_to_its_end(engine: Engine) -> None:
    prompt = [5] * (CONTEXT - 2)

    assert len(one(engine, replace(GREEDY, prompt=prompt, max_tokens=2)).tokens) == 2


@pytest.mark.parametrize("as_text", [True, False])
def test_a_text_ends_a_sequence_though_it_is_no_token(engine: Engine, as_text: bool) -> None:
    free = one(engine, GREEDY).tokens
    end = engine.tokenizer.decode(free[3:5])[1:]
    # shortest beginning with that text in it
    last = next(n for n in range(1, 13) if end in engine.tokenizer.decode(free[:n]))

    found = one(engine, replace(GREEDY, stop=end if as_text else ["no such text", end]))

    assert len(end) > 1
    assert (found.tokens, found.stop_reason) == (free[:last], "stop")


def test_a_text_of_the_prompt_ends_nothing(engine: Engine) -> None:
    free = one(engine, GREEDY)
    prompt = engine.tokenizer.encode("a lighthouse")
    drawn_text = engine.tokenizer.decode(one(engine, replace(GREEDY, prompt=prompt)).tokens)
    assert "house" not in drawn_text

    found = one(engine, replace(GREEDY, prompt=prompt, stop="house"))

    assert (len(found.tokens), found.stop_reason) == (len(free.tokens), "length")


# logprobs of the prompt, and tables


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logprobs_of_a_prompt_are_those_of_the_model(engine: Engine, plain: Any, prompt: list[int]) -> None:
    # what others want in the same pass does not matter
    asked = replace(GREEDY, prompt=prompt, has_prompt_logprobs=True, topk_prompt=3)

    _, found, _ = drawn(engine, replace(GREEDY, prompt=PROMPTS[1]), asked, replace(GREEDY, has_prompt_logprobs=True))

    expected = table(plain, prompt)
    values, tokens = expected[:-1].topk(3, -1)
    assert found.prompt_logprobs is not None
    assert found.prompt_logprobs[0] is None
    assert found.prompt_logprobs[1:] == pytest.approx(
        [float(expected[number, token]) for number, token in enumerate(prompt[1:])], abs=1e-4
    )
    assert found.prompt_top is not None
    assert found.prompt_top.ids.shape == (len(prompt), 3)
    assert found.prompt_top.ids[1:].tolist() == tokens.tolist()
    assert found.prompt_top.logprobs[1:] == pytest.approx(values.numpy(), abs=1e-4)
    assert found.prompt_top.ids.dtype == np.int32


def test_the_most_probable_tokens_are_told_at_every_step(engine: Engine, plain: Any) -> None:
    found = one(engine, replace(FREE, seed=1, topk_sampled=4, max_tokens=5))

    values, tokens = table(plain, [*FREE.prompt, *found.tokens])[2:-1].topk(4, -1)
    assert found.top is not None
    assert found.top.ids.tolist() == tokens.tolist()
    assert found.top.logprobs == pytest.approx(values.numpy(), abs=1e-4)


# refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": []}, "the prompt has no tokens"),
        ({"prompt": [-3]}, f"the prompt: token -3 is not one of the {VOCABULARY} of tiny-qwen3"),
        (
            {"prompt": [5] * 2000, "max_tokens": 49},
            "the prompt has 2000 tokens and max_tokens is 49, together more than the 2048 of tiny-qwen3",
        ),
        ({"count": 0}, "num_samples is 0, but 1 or more was expected"),
        ({"topk_prompt": 1089}, "topk_prompt_logprobs is 1089, but tiny-qwen3 has 1088 tokens"),
        (
            {"temperature": float("nan")},
            "temperature is nan and top_p 1.0; 0 or more, and above 0 to 1, were expected",
        ),
        ({"top_p": 0.0}, "temperature is 1.0 and top_p 0.0; 0 or more, and above 0 to 1, were expected"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(engine: Engine, change: Any, message: str) -> None:
    with pytest.raises(DataError) as refused:
        check_request(engine, replace(FREE, **change))

    assert str(refused.value) == message
