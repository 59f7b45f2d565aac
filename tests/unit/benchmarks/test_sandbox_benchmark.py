"""The benchmark of the sandbox, at sizes that show that it runs and measures what it says; no clock is judged."""

import tempfile
from pathlib import Path

import pytest

from benchmarks import sandbox
from benchmarks.endurance import endurance
from graftline.astgrep.binding import LANGUAGES, parse

TINY = sandbox.Sizes(actions=32, repetitions=1, singles=3, agreement=16, cases=1, endurance=64)


def test_programs_are_as_long_as_said_and_all_different() -> None:
    found = sandbox.programs(12, 1)
    assert len({text for _, text in found}) == 12
    assert all(sandbox.LINES <= text.count("\n") < 2 * sandbox.LINES for _, text in found)
    assert {language for language, _ in found} <= set(LANGUAGES)
    assert all(parse(text, language).root.children for language, text in found)


def test_the_same_is_measured_in_every_run() -> None:
    assert sandbox.requests(4, 3) == sandbox.requests(4, 3)


@pytest.mark.long
def test_every_figure_is_there_and_no_difference_is_found() -> None:
    figures, peers = sandbox.measure(TINY)
    assert set(figures) == {
        *("actions_per_s", "parsing", "latency_ms", "agreement", "source_lines", "tests", "endurance"),
    }
    assert (figures["agreement"]["actions"], figures["agreement"]["differences"]) == (16, 0)
    always = {"ast-grep", "process sandbox", "python case.py", "python -m pytest"}
    assert always <= peers.keys() <= {*always, "bubblewrap and ast-grep"}


def test_many_actions_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a folder in which nobody else has anything
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = endurance(sandbox.requests(2, 4), 64, 2)
    early, late = left["early"], left["late"]
    assert left["actions"] == 64
    assert {key: late[key] for key in ("descriptors", "mounts", "folders")} == {
        key: early[key] for key in ("descriptors", "mounts", "folders")
    }
