"""The benchmark of instructions over a few edits of the sample."""

import json

import pytest

from benchmarks.instructions import main


def test_edits_are_asked_for_and_the_sentence_of_their_origin_asks_for_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--limit", "12"])
    line = json.loads(capsys.readouterr().out)
    assert (line["name"], line["figures"]["edits"], line["machine"]["cores"] > 0) == ("instructions", 12, True)
    assert line["figures"]["described"] > 0.8
    assert line["peers"] == {"sentence_of_origin": {"answered": 0.0}}
