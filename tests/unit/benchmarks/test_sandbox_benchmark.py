"""The benchmark of the sandbox, at sizes that show that it runs and measures what it says; no clock is judged."""

import tempfile
from pathlib import Path

import pytest

from benchmarks import sandbox
from benchmarks.endurance import endurance

TINY = sandbox.Sizes(actions=32, repetitions=1, singles=3, agreement=16, cases=1, endurance=64)


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
