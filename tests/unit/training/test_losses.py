"""The losses of the Tinker API, worked out by hand for two tokens."""

import math
from typing import Any

import pytest

from graftline.core.errors import DataError
from tests.unit.training.conftest import EXTRA

pytest.importorskip("torch", reason=EXTRA)

import torch

from graftline.training.local.losses import (
    LOSSES,
    check_inputs,
    chosen_logprobs,
    has_gradient,
    input_names,
    loss_options,
    loss_sum,
    sequence_log_ratio,
)

LN2 = math.log(2)
# p is 1/2 and 1/4, q is 1/4 and 1/2, and so the ratios are 2 and 1/2
LOGPROBS = [-LN2, -2 * LN2]
SAMPLED = {
    "target_tokens": [5, 6],
    "logprobs": [-2 * LN2, -LN2],
    "advantages": [1.0, -2.0],
    "sequence_ratio_mask": [1.0, 1.0],
}
FIRST_COUNTS = {**SAMPLED, "sequence_ratio_mask": [1.0, 0.0]}


def inputs(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {
        name: torch.tensor(values, dtype=torch.int64 if name == "target_tokens" else torch.float32)
        for name, values in given.items()
    }


def loss_and_slope(loss: str, given: dict[str, Any], options: dict[str, float]) -> tuple[float, list[float]]:
    logprobs = torch.tensor(LOGPROBS, requires_grad=True)
    tensors = inputs(given)
    if loss == "gspo":
        tensors["sequence_log_ratio"] = sequence_log_ratio(logprobs, tensors)
    value = loss_sum(loss, loss_options(loss, options), logprobs, tensors)
    value.backward()
    return float(value.detach()), logprobs.grad.tolist()


@pytest.mark.parametrize(
    ("loss", "given", "options", "value", "slope"),
    [
        # 1/2 * ln 2 + 2 * 2 ln 2
        ("cross_entropy", {"target_tokens": [5, 6], "weights": [0.5, 2.0]}, {}, 4.5 * LN2, [-0.5, -2.0]),
        ("cross_entropy", {"target_tokens": [5, 6]}, {}, 3 * LN2, [-1.0, -1.0]),
        # -(2 * 1 - 1/2 * 2); the slope of r is r
        ("importance_sampling", SAMPLED, {}, -1.0, [-2.0, 1.0]),
        # -(min(2, 1.2) + min(-1, -1.6)); both are clipped, and so do not move
        ("ppo", SAMPLED, {}, 0.4, [0.0, 0.0]),
        # min(1/2 * -2, 0.4 * -2) and min(2, 3): nothing is clipped
        ("ppo", SAMPLED, {"clip_low_threshold": 0.4, "clip_high_threshold": 3.0}, -1.0, [-2.0, 1.0]),
        # a gain is not clipped where it makes the loss larger: -(min(-2, -1.2) + min(1, 1.6))
        ("ppo", {**SAMPLED, "advantages": [-1.0, 2.0]}, {}, 1.0, [2.0, -1.0]),
        # -(1.2 * -ln 2 * 1 + 0.8 * -2 ln 2 * -2); the ratio is a constant
        ("cispo", SAMPLED, {}, -2 * LN2, [-1.2, 1.6]),
        ("cispo", SAMPLED, {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0}, 0.0, [-2.0, 1.0]),
        # a datum may say for each token how its ratio is clipped: -(min(2, 3) + min(-1, -2 * 0.9))
        (
            "ppo",
            {**SAMPLED, "clip_low_threshold": [0.0, 0.9], "clip_high_threshold": [3.0, 1.1]},
            {},
            -0.2,
            [-2.0, 0.0],
        ),
        # the mean of ln 2 and -ln 2 is 0: -(1 * 1 - 1 * 2), and the slope of both is that of one token
        ("gspo", SAMPLED, {}, 1.0, [-1.0, 2.0]),
        # only the first counts, so both ratios are 2: -(min(2, 1.2) + min(-4, -2.4))
        ("gspo", FIRST_COUNTS, {}, 2.8, [0.0, 4.0]),
        ("gspo", FIRST_COUNTS, {"clip_high_threshold": 2.0}, 2.0, [-2.0, 4.0]),
        # only the second counts, so both ratios are 1/2: -(min(-1/2, -0.8) + min(1, 1.6))
        (
            "gspo",
            {**SAMPLED, "advantages": [-1.0, 2.0], "sequence_ratio_mask": [0.0, 1.0]},
            {},
            -0.2,
            [0.0, -1.0],
        ),
        # -(min(2, 1) * -ln 2 * 1 + 1/2 * -2 ln 2 * -2); the ratio is a constant
        ("stable_reinforce", SAMPLED, {}, -LN2, [-1.0, 1.0]),
        # -(-ln 2 + 4 ln 2 - 0.025 * 2 ln² 2)
        ("dro", SAMPLED, {}, -3 * LN2 + 0.05 * LN2**2, [-1 + 0.05 * LN2, 2 - 0.05 * LN2]),
        ("dro", SAMPLED, {"beta": 2}, -3 * LN2 + 2 * LN2**2, [-1 + 2 * LN2, 2 - 2 * LN2]),
    ],
)
def test_the_loss_and_its_slope_are_those_worked_out_by_hand(
    loss: str, given: dict[str, Any], options: dict[str, float], value: float, slope: list[float]
) -> None:
    assert loss_and_slope(loss, given, options) == (pytest.approx(value, abs=1e-6), pytest.approx(slope, abs=1e-6))


def test_several_targets_for_one_token_are_summed_as_if_they_were_tokens() -> None:
    logprobs = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    given = inputs({"target_tokens": [[1, 2], [3, 4]], "weights": [[1.0, 0.5], [0.0, 2.0]]})

    assert float(loss_sum("cross_entropy", {}, logprobs, given)) == 1 + 1 + 8


@pytest.mark.parametrize(
    ("loss", "given", "moves"),
    [
        ("cross_entropy", {"target_tokens": [5, 6], "weights": [0.0, -1.0]}, [False, True]),
        ("cross_entropy", {"target_tokens": [[5, 6], [7, 8]], "weights": [[0.0, 0.0], [0.0, 1.0]]}, [False, True]),
        ("ppo", {**SAMPLED, "advantages": [0.0, -2.0]}, [False, True]),
        # of the weights of a datum for another loss nothing is used
        ("importance_sampling", {**SAMPLED, "weights": [0.0, 0.0]}, [True, True]),
        # it is drawn to q whatever the advantage is
        ("dro", {**SAMPLED, "advantages": [0.0, 0.0]}, [True, True]),
    ],
)
def test_tokens_that_move_the_loss_are_found(loss: str, given: dict[str, Any], moves: list[bool]) -> None:
    assert has_gradient(loss, inputs(given)).tolist() == moves


@pytest.mark.parametrize("loss", LOSSES)
def test_tokens_without_a_gradient_are_exactly_those_that_need_none(loss: str) -> None:
    given = {**SAMPLED, "advantages": [0.0, 1.0], "weights": [0.0, 1.0]}
    options = {"clip_low_threshold": 0.1, "clip_high_threshold": 9.0} if loss in ("ppo", "cispo", "gspo") else {}

    _, slope = loss_and_slope(loss, given, options)

    assert [value != 0 for value in slope] == has_gradient(loss, inputs(given)).tolist()


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (
            "reinforce",
            {},
            "loss_fn 'reinforce' is not one of this backend; it has cross_entropy, importance_sampling, ppo, cispo, dro,"
            " gspo, stable_reinforce",
        ),
        ("dro", {"bta": 1}, "dro has no option 'bta'; it has beta"),
        ("cross_entropy", {"beta": 1}, "cross_entropy has no option 'beta'; it has none"),
        ("dro", {"beta": "much"}, "beta of dro is 'much', but a number was expected"),
    ],
)
def test_options_that_a_loss_does_not_have_are_refused(loss: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError) as refused:
        loss_options(loss, options)

    assert str(refused.value) == message


@pytest.mark.parametrize("loss", LOSSES)
def test_inputs_that_a_loss_does_not_use_are_not_looked_at(loss: str) -> None:
    given = inputs({**SAMPLED, "temperature": [1.0]} | ({} if loss == "cross_entropy" else {"weights": [1.0]}))

    check_inputs(loss, given, 2)

    assert {"temperature", "weights"}.isdisjoint(input_names(loss, given))


@pytest.mark.parametrize(
    ("loss", "given", "message"),
    [
        ("cross_entropy", {}, "cross_entropy needs target_tokens in loss_fn_inputs; there are none"),
        (
            "gspo",
            {"target_tokens": [5, 6], "advantages": [1.0, 1.0], "logprobs": [0.0, 0.0]},
            "gspo needs sequence_ratio_mask in loss_fn_inputs; there are advantages, logprobs, target_tokens",
        ),
        (
            "cispo",
            {**SAMPLED, "clip_low_threshold": [0.8]},
            "clip_low_threshold is of shape (1,), but target_tokens of (2,)",
        ),
        ("cross_entropy", {"target_tokens": [5]}, "target_tokens is of shape (1,), but model_input has 2 tokens"),
        (
            "dro",
            {**SAMPLED, "advantages": [[1.0], [1.0]]},
            "advantages is of shape (2, 1), but target_tokens of (2,)",
        ),
    ],
)
def test_inputs_that_a_loss_cannot_be_worked_out_of_are_refused(loss: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as refused:
        check_inputs(loss, inputs(given), 2)

    assert str(refused.value) == message


def test_a_sequence_of_which_no_token_counts_is_refused() -> None:
    with pytest.raises(DataError, match="sequence_ratio_mask marks no token of a datum"):
        loss_and_slope("gspo", {**SAMPLED, "sequence_ratio_mask": [0.0, 0.0]}, {})


def test_the_logprobs_of_chosen_tokens_and_their_gradient_are_those_of_log_softmax() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((3, 7), generator=generator, requires_grad=True)
    same = logits.detach().clone().requires_grad_()
    chosen = torch.tensor([[0, 6], [2, 2], [5, 1]])
    weights = torch.randn((3, 2), generator=generator)

    found = chosen_logprobs(logits, chosen)
    (found * weights).sum().backward()
    expected = same.log_softmax(-1).gather(-1, chosen)
    (expected * weights).sum().backward()

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(logits.grad, same.grad)
