"""The benchmark of instructions over a few edits of the sample."""

import json
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.instructions import draw_pairs, main, measure_model, read_edits
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel
from graftline.rollouts.round_trip import EditModel
from graftline.rollouts.round_trip_config import RoundTripConfig


def test_edits_are_asked_for_and_the_sentence_of_their_origin_asks_for_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--limit", "12"])
    line = json.loads(capsys.readouterr().out)
    assert (line["name"], line["figures"]["edits"], line["machine"]["cores"] > 0) == ("instructions", 12, True)
    assert line["figures"]["described"] > 0.8
    assert line["peers"] == {"sentence_of_origin": {"answered": 0.0}}


def test_a_model_does_edits_from_instructions_and_is_not_asked_twice(tmp_path: Path) -> None:
    pairs = [*islice(draw_pairs(read_edits()), 3)]
    targets = {worded.instruction: worded.post for worded, _ in pairs}

    async def answer(request: ChatRequest) -> str:
        """Do what instructions made of rules ask for, but for the first question; leave the code as it is otherwise."""
        code, _, instruction = request.messages[1].content.partition("\n\nInstruction:\n")
        return code if len(model.requests) == 1 else targets.get(instruction, code)

    model = MemoryChatModel(answer, "m")
    with BlockingChatModel(model) as blocking:
        edits = EditModel(blocking, 8192, RoundTripConfig(attempts=3))
        outcome = [measure_model(pairs, edits, 1, tmp_path / "answers.jsonl") for _ in range(2)]
    figures, peers = outcome[0]
    # the code is in the question and in each of three answers
    assert (tokens := figures.pop("tokens_per_edit")) > 3 * 2 * min(len(worded.pre.split()) for worded, _ in pairs)
    difference = {"difference": 1.0, "interval": [1.0, 1.0], "first_alone": 3, "other_alone": 0}
    assert figures == {
        "model": "m",
        "edits": 3,
        "attempts": 3,
        "solved": 1.0,
        "solved_by_majority": 1.0,
        "answers_right": round(8 / 9, 4),
        "less_sentence_of_origin": {"solved": difference, "solved_by_majority": difference},
    }
    assert peers["sentence_of_origin"]["solved"] == 0.0
    assert outcome[1][0].pop("tokens_per_edit") == tokens
    assert (outcome[1], len(model.requests)) == (outcome[0], 18)
