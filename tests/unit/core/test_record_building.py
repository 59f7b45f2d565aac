"""Building stored artifacts: when they are kept and when they are made again."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.errors import RecordError
from graftline.core.record import RECORD_NAME, ArtifactRecord, FileSum, load_record, load_verified
from tests.unit.core.stored import FILES, MIDNIGHT, NOON, REQUEST, Maker, names, noon, tree, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stage" / "train"


def test_an_artifact_that_is_not_there_is_made(folder: Path) -> None:
    built = build(folder, REQUEST, Maker(), noon)
    sums = {
        name: FileSum(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
        for name, content in FILES.items()
    }
    record = ArtifactRecord(
        kind="tasks",
        name="python/train",
        inputs={"splits": "1d"},
        config={"seed": 1, "tool": {"version": "2"}},
        code_version="c0de",
        files=sums,
        counts={"rows": 1},
        written_at="2026-01-02T12:00:00+00:00",
    )
    assert (built.folder, built.reason, built.is_fresh) == (folder, "not there yet", True)
    assert built.record == record.with_identity()
    assert load_record(folder) == built.record


def test_an_artifact_that_is_right_is_kept(folder: Path) -> None:
    first = build(folder, REQUEST, Maker(), noon)
    before = tree(folder)
    maker = Maker()
    second = build(folder, REQUEST, maker, lambda: MIDNIGHT)
    assert (maker.calls, tree(folder)) == (0, before)
    assert (second.record, second.reason, second.is_fresh) == (first.record, "", False)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (replace(REQUEST, code_version="c1"), "code changed"),
        (replace(REQUEST, inputs={"splits": "2e"}), "input splits changed"),
        (replace(REQUEST, inputs={"splits": "1d", "synthetic": "3f"}), "input synthetic changed"),
        (replace(REQUEST, config={"seed": 2, "tool": {"version": "2"}}), "config seed changed"),
        (replace(REQUEST, config={"seed": 1}), "config tool changed"),
        (replace(REQUEST, kind="splits"), "holds tasks 'python/train'"),
        (
            Request("tasks", "python/train", "c1", {"splits": "2e"}, {"seed": 2, "tool": {"version": "2"}}),
            "code, input splits, config seed changed",
        ),
    ],
)
def test_another_request_makes_the_artifact_again_and_says_why(folder: Path, changed: Request, reason: str) -> None:
    build(folder, REQUEST, Maker())
    maker = Maker({"other.txt": b"new"})
    built = build(folder, changed, maker)
    assert (built.reason, maker.calls) == (reason, 1)
    assert set(tree(folder)) == {"other.txt", RECORD_NAME}
    assert names(folder.parent) == ["train"]
    assert build(folder, changed, maker).reason == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # what JSON writes alike is alike, in whatever order
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}),
    ],
)
def test_equal_requests_have_equal_artifacts(folder: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    build(folder, replace(REQUEST, config=before), Maker())
    maker = Maker()
    assert (build(folder, replace(REQUEST, config=after), maker).reason, maker.calls) == ("", 0)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        # of the same size
        ("rows.jsonl", b"[]\n", "file 'rows.jsonl' was altered after it was written"),
        ("deep/extra", b"", "file 'deep/extra' is not in the record"),
        (RECORD_NAME, b"{", "unreadable record: "),
    ],
)
def test_an_altered_artifact_is_made_again(folder: Path, name: str, content: bytes, reason: str) -> None:
    before = build(folder, REQUEST, Maker()).record
    write(folder, {name: content})
    built = build(folder, REQUEST, Maker())
    assert (built.reason.startswith(reason), built.record.identity) == (True, before.identity)
    assert {**tree(folder), RECORD_NAME: b""} == {**FILES, RECORD_NAME: b""}
    assert load_verified(folder, "tasks") == built.record


def test_files_without_a_record_are_not_replaced(folder: Path) -> None:
    write(folder, {"stray.txt": b"x"})
    maker = Maker()
    with pytest.raises(RecordError, match=r"holds files but no _meta\.json, so they may be anyone's"):
        build(folder, REQUEST, maker)
    assert (maker.calls, tree(folder)) == (0, {"stray.txt": b"x"})


def test_an_empty_folder_is_taken(folder: Path) -> None:
    folder.mkdir(parents=True)
    assert set(tree(build(folder, REQUEST, Maker()).folder)) == {*FILES, RECORD_NAME}


def test_hidden_files_of_the_system_are_no_part_of_an_artifact(folder: Path) -> None:
    build(folder, REQUEST, Maker())
    write(folder, {".DS_Store": b"x"})
    assert build(folder, REQUEST, Maker()).reason == ""


def test_working_files_are_dropped(folder: Path) -> None:
    build(folder, REQUEST, Maker({"a": b"1", ".journal": b"x", ".cache/b": b"y"}))
    assert set(tree(folder)) == {"a", RECORD_NAME}
    assert set(load_record(folder).files) == {"a"}


def test_the_old_artifact_stays_readable_while_the_new_one_is_made(folder: Path) -> None:
    old = build(folder, REQUEST, Maker()).record
    partials = []

    def make(partial: Path) -> Contents:
        write(partial, {"new.txt": b"new"})
        partials.append(load_verified(folder, "tasks"))
        return Contents({"rows": 2})

    build(folder, replace(REQUEST, code_version="c1"), make)
    assert partials == [old]
    assert set(tree(folder)) == {"new.txt", RECORD_NAME}


def test_a_making_that_fails_leaves_the_old_artifact_as_it_was(folder: Path) -> None:
    old = build(folder, REQUEST, Maker()).record
    before = tree(folder)

    def fail(partial: Path) -> Contents:
        write(partial, {"rows.jsonl": b"half"})
        raise ValueError("no more rows")

    with pytest.raises(ValueError, match="no more rows"):
        build(folder, replace(REQUEST, code_version="c1"), fail)
    assert (tree(folder), load_verified(folder, "tasks")) == (before, old)


def test_the_record_is_written_after_every_file(folder: Path) -> None:
    partials = []

    def clock() -> datetime:
        # the time goes into the record, so it is asked for before the record is written
        partials.extend(set(tree(path)) for path in folder.parent.iterdir())
        return NOON

    build(folder, REQUEST, Maker(), clock)
    assert partials == [set(FILES)]


def test_a_request_that_json_cannot_say_is_refused_before_anything_is_made(folder: Path) -> None:
    maker = Maker()
    with pytest.raises(ValueError, match="not JSON compliant"):
        build(folder, replace(REQUEST, config={"rate": float("nan")}), maker)
    assert (maker.calls, folder.exists()) == (0, False)
