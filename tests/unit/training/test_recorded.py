"""Sequences that were recorded when they were sampled, and datums made of them."""

from typing import Any

import pytest

from graftline.core.errors import DataError
from tests.unit.training.conftest import EXTRA

pytest.importorskip("torch", reason=EXTRA)

import torch

from graftline.training.local.passes import Example
from graftline.training.local.sessions import Recordings, Span, with_recorded_logprobs

DAY_S = 86_400.0
# a prompt of three tokens, and two that were sampled after it
INPUT_SPANS = [Span("s/0", False, 0, 3), Span("s/0", True, 0, 1)]
TARGET_SPANS = [Span("s/0", False, 1, 2), Span("s/0", True, 0, 2)]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recordings(clock: Clock) -> Recordings:
    recordings = Recordings(clock)
    recordings.record("s/0", [5, 6, 7], [8, 9], [-0.5, -0.25])
    return recordings


def datum(**inputs: Any) -> Example:
    given = {"target_tokens": [6, 7, 8, 9], "advantages": [0.0, 0.0, 2.0, 2.0], **inputs}
    return Example([5, 6, 7, 8], {name: torch.tensor(values) for name, values in given.items()})


def test_a_datum_gets_the_logprobs_that_its_targets_were_drawn_with(recordings: Recordings) -> None:
    # whatever it says itself
    example = datum(logprobs=[-9.0, -9.0, -9.0, -9.0])

    filled = with_recorded_logprobs("stable_reinforce", example, INPUT_SPANS, TARGET_SPANS, recordings)

    assert filled.inputs["logprobs"].tolist() == [0.0, 0.0, -0.5, -0.25]


@pytest.mark.parametrize(
    ("inputs", "input_spans", "target_spans", "message"),
    [
        ({}, [], [], "needs the sequences that the tokens come from"),
        ({}, [Span("s/1", False, 0, 4)], TARGET_SPANS, "sequence 's/1' is not recorded in this session"),
        ({}, [Span("s/0", False, 0, 4)], TARGET_SPANS, "has 3 tokens in its prompt, but 0 to 4 were named"),
        ({}, INPUT_SPANS[:1], TARGET_SPANS, "named for model_input have 3 tokens, but it has 4"),
        (
            {},
            [Span("s/0", True, 1, 1), Span("s/0", False, 0, 3)],
            TARGET_SPANS,
            "model_input 0 to 1 are not the tokens of sequence 's/0'",
        ),
        ({"target_tokens": [6, 7, 9, 8]}, INPUT_SPANS, TARGET_SPANS, "target_tokens 2 to 4 are not the tokens of"),
        ({"advantages": [0.0, 1.0, 1.0, 1.0]}, INPUT_SPANS, TARGET_SPANS, "advantages are not 0 on tokens of a prompt"),
        (
            {"target_tokens": [[6], [7], [8], [9]], "advantages": [[0.0], [0.0], [1.0], [1.0]]},
            INPUT_SPANS,
            TARGET_SPANS,
            "but stable_reinforce has one target for each token",
        ),
    ],
)
def test_a_datum_that_is_not_what_was_recorded_is_refused(
    recordings: Recordings, inputs: dict[str, Any], input_spans: list[Span], target_spans: list[Span], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        with_recorded_logprobs("stable_reinforce", datum(**inputs), input_spans, target_spans, recordings)


def test_a_recording_lasts_for_a_day_after_its_last_use(recordings: Recordings, clock: Clock) -> None:
    clock.now = 0.9 * DAY_S
    assert recordings.get("s/0").tokens.tolist() == [8, 9]
    clock.now = 1.8 * DAY_S
    recordings.record("s/1", [5], [6], [-1.0])
    assert recordings.get("s/0").prompt.tolist() == [5, 6, 7]

    clock.now = 2.9 * DAY_S

    with pytest.raises(DataError, match="sequence 's/0' is not recorded in this session"):
        recordings.get("s/0")
