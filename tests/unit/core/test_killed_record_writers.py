"""What a killed or failed writer of a stored artifact leaves to the next one."""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.record import RECORD_NAME, load_verified
from tests.unit.core.stored import FILES, MIDNIGHT, REQUEST, Maker, append, names, noon, tree, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stage" / "train"


class Killed(BaseException):
    """What stands for the end of the process: nothing catches it."""


@pytest.fixture
def killed_at_rename(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], pytest.MonkeyPatch]:
    """Let the process "die" before the given renaming of a folder, counted from 1."""

    def arrange(number: int) -> pytest.MonkeyPatch:
        rename, calls = Path.rename, []

        def renamed(self: Path, target: Path) -> Path:
            calls.append(self)
            if len(calls) == number:
                raise Killed
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", renamed)
        return monkeypatch

    return arrange


def test_a_complete_partial_artifact_is_adopted(
    folder: Path, killed_at_rename: Callable[[int], pytest.MonkeyPatch]
) -> None:
    patch = killed_at_rename(1)
    with pytest.raises(Killed):
        build(folder, REQUEST, Maker(), noon)
    patch.undo()
    assert folder.exists() is False
    maker = Maker()
    built = build(folder, REQUEST, maker, lambda: MIDNIGHT)
    assert (maker.calls, built.reason, built.record.written_at) == (0, "", "2026-01-02T12:00:00+00:00")
    assert load_verified(folder, "tasks") == built.record
    assert names(folder.parent) == ["train"]


def test_a_new_artifact_is_adopted_when_the_writer_died_after_taking_the_old_one_away(
    folder: Path, killed_at_rename: Callable[[int], pytest.MonkeyPatch]
) -> None:
    changed = replace(REQUEST, code_version="c1")
    build(folder, REQUEST, Maker({"old.txt": b"old"}))
    patch = killed_at_rename(2)
    with pytest.raises(Killed):
        build(folder, changed, Maker())
    patch.undo()
    maker = Maker()
    built = build(folder, changed, maker)
    assert (maker.calls, built.reason, set(tree(folder))) == (0, "", {*FILES, RECORD_NAME})


def test_a_partial_artifact_that_was_altered_since_is_not_adopted(
    folder: Path, killed_at_rename: Callable[[int], pytest.MonkeyPatch]
) -> None:
    patch = killed_at_rename(1)
    with pytest.raises(Killed):
        build(folder, REQUEST, Maker())
    patch.undo()
    (partial,) = folder.parent.iterdir()
    append(partial, "rows.jsonl")
    maker = Maker()
    built = build(folder, REQUEST, maker)
    assert (built.reason, maker.calls) == ("not there yet", 1)
    assert load_verified(folder, "tasks") == built.record


def test_an_adopted_artifact_of_another_request_is_not_used(
    folder: Path, killed_at_rename: Callable[[int], pytest.MonkeyPatch]
) -> None:
    patch = killed_at_rename(1)
    with pytest.raises(Killed):
        build(folder, REQUEST, Maker({"other.txt": b"x"}))
    patch.undo()
    built = build(folder, replace(REQUEST, code_version="c1"), Maker())
    assert (built.reason, set(tree(folder))) == ("not there yet", {*FILES, RECORD_NAME})
    assert names(folder.parent) == ["train"]


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from graftline.core.build import Request, build

def make(folder):
    (folder / "half.txt").write_text("half")
    (folder / ".journal").write_text("done: 1")
    os.kill(os.getpid(), signal.SIGKILL)

build(Path(sys.argv[1]), Request("tasks", "python/train", sys.argv[2]), make)
"""


@pytest.fixture
def killed_writer(folder: Path) -> Path:
    """The folder of an artifact whose writer was killed while it made code version `c0de`."""
    done = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(folder), "c0de"], check=False)
    assert (done.returncode, folder.exists()) == (-signal.SIGKILL, False)
    return folder


def test_what_a_killed_writer_wrote_is_handed_to_the_same_request_only(killed_writer: Path) -> None:
    maker, other = Maker(), Maker()
    build(killed_writer, Request("tasks", "python/train", "c0de"), maker)
    build(killed_writer, Request("tasks", "python/train", "c1"), other)
    assert (maker.found, other.found) == ({"half.txt": b"half", ".journal": b"done: 1"}, {})
    assert set(tree(killed_writer)) == {*FILES, RECORD_NAME}


def test_partial_artifacts_are_removed_when_the_stored_one_is_right(folder: Path) -> None:
    build(folder, REQUEST, Maker())

    def fail(partial: Path) -> Contents:
        write(partial, {"half.txt": b"half"})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(folder, replace(REQUEST, code_version="c1"), fail)
    between = len(names(folder.parent))
    build(folder, REQUEST, Maker())
    assert (between, names(folder.parent)) == (2, ["train"])


def test_partial_artifacts_of_neighbors_are_left_alone(folder: Path) -> None:
    def fail(partial: Path) -> Contents:
        write(partial, {"half.txt": b"half"})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(folder.with_name("dev"), replace(REQUEST, name="python/dev"), fail)
    build(folder, REQUEST, Maker())
    maker = Maker()
    build(folder.with_name("dev"), replace(REQUEST, name="python/dev"), maker)
    assert maker.found == {"half.txt": b"half"}
