"""Checkpoints on disk: when they are there, when they expire, and what a kill leaves."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.core.record import RECORD_NAME
from graftline.training.local.checkpoints import Checkpoint, CheckpointStore, NotFound

BEGIN = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
HOUR_S, YEARS_S = 3600, 10 * 365 * 24 * 3600
RUN = "0a1b:train:0"


class Time:
    """A clock that stands."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(tmp_path: Path, time: Time) -> CheckpointStore:
    return CheckpointStore(tmp_path, time)


def text(content: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "adapter.txt").write_text(content, "utf-8")

    return make


def written(store: CheckpointStore, name: str = "one", content: str = "first", **given: Any) -> Checkpoint:
    checkpoint = store.at(given.pop("run_id", RUN), given.pop("kind", "weights"), name)
    store.write(checkpoint, text(content), **given)
    return checkpoint


def content(store: CheckpointStore, checkpoint: Checkpoint) -> str:
    return (store.files(checkpoint) / "adapter.txt").read_text("utf-8")


def paths(store: CheckpointStore, run_id: str | None = None) -> list[str]:
    return [one["tinker_path"] for one in store.list_checkpoints(run_id)]


def remains(root: Path) -> list[str]:
    """All files below the runs but those of whole checkpoints."""
    found = [path for path in (root / "runs").rglob("*") if path.is_file()]
    return sorted(path.relative_to(root).as_posix() for path in found if not (path.parent / RECORD_NAME).exists())


# to write and to read


def test_a_checkpoint_is_described_as_the_sdk_wants_it(store: CheckpointStore) -> None:
    one = written(store, ttl_s=HOUR_S, user_metadata={"step": "8"})

    assert store.list_checkpoints() == [
        {
            "checkpoint_id": "weights/one",
            "checkpoint_type": "training",
            "time": "2026-11-22T09:30:00+00:00",
            "tinker_path": "tinker://0a1b:train:0/weights/one",
            "size_bytes": 5,
            "public": False,
            "user_metadata": {"step": "8"},
            "expires_at": "2026-11-22T10:30:00+00:00",
        }
    ]
    assert store.parse(one.uri) == one
    assert content(store, one) == "first"


def test_what_overwrites_a_checkpoint_takes_its_place_even_within_the_same_moment(store: CheckpointStore) -> None:
    one = written(store)
    store.set_ttl(one, HOUR_S)

    written(store, content="second", may_replace=True)

    assert content(store, one) == "second"
    [found] = store.list_checkpoints()
    assert (found["expires_at"], found["size_bytes"]) == (None, 6)


def test_what_fails_to_overwrite_a_checkpoint_leaves_it_as_it_was(store: CheckpointStore) -> None:
    def fail(folder: Path) -> None:
        (folder / "adapter.txt").write_text("half", "utf-8")
        raise DataError("the run is not in memory")

    one = written(store)
    store.set_ttl(one, HOUR_S)
    before = store.list_checkpoints()

    with pytest.raises(DataError, match="the run is not in memory"):
        store.write(one, fail, may_replace=True)

    assert store.list_checkpoints() == before
    assert content(store, one) == "first"


def test_what_is_deleted_is_gone_with_all_that_belongs_to_it(store: CheckpointStore, tmp_path: Path) -> None:
    one, two = written(store), written(store, "two")
    store.set_ttl(one, HOUR_S)

    store.delete(one)

    assert paths(store) == [two.uri]
    assert remains(tmp_path) == []
    for act in (store.delete, store.existing, store.files):
        with pytest.raises(NotFound, match=f"there is no checkpoint {one.uri}"):
            act(one)
    assert content(store, written(store, content="anew")) == "anew"


# time


@pytest.mark.parametrize("seconds", [HOUR_S - 1, 0, -5, YEARS_S + 1])
def test_a_time_to_live_out_of_range_is_refused(store: CheckpointStore, seconds: int) -> None:
    one = written(store)
    message = f"ttl_seconds is {seconds}, but an hour to ten years was expected: 3600 to 315360000"

    with pytest.raises(DataError, match=f"^{message}$"):
        store.set_ttl(one, seconds)
    with pytest.raises(DataError, match=f"^{message}$"):
        written(store, "two", ttl_s=seconds)

    assert [(found["tinker_path"], found["expires_at"]) for found in store.list_checkpoints()] == [(one.uri, None)]


@pytest.mark.parametrize("seconds", [HOUR_S, YEARS_S])
def test_a_checkpoint_lives_until_its_time_is_over(store: CheckpointStore, time: Time, seconds: int) -> None:
    one, for_ever = written(store, ttl_s=seconds), written(store, "two")

    time.pass_by(seconds=seconds, microseconds=-1)
    assert paths(store) == [one.uri, for_ever.uri]
    time.pass_by(microseconds=1)

    assert paths(store) == paths(store, RUN) == [for_ever.uri]
    for act in (store.existing, store.files, lambda one: store.set_ttl(one, None)):
        with pytest.raises(NotFound, match=f"checkpoint {one.uri} expired at 20"):
            act(one)


def test_a_time_to_live_counts_from_when_it_was_set(store: CheckpointStore, time: Time) -> None:
    one = written(store, ttl_s=HOUR_S)
    time.pass_by(minutes=59)

    store.set_ttl(one, HOUR_S)
    time.pass_by(minutes=59)
    assert paths(store) == [one.uri]
    store.set_ttl(one, None)
    time.pass_by(days=40_000)

    assert paths(store) == [one.uri]


def test_a_name_is_free_again_when_its_time_is_over(store: CheckpointStore, time: Time) -> None:
    one = written(store, ttl_s=HOUR_S)
    time.pass_by(hours=1)

    written(store, content="second")

    assert content(store, one) == "second"
    assert store.sweep() == []


def test_only_what_has_expired_is_swept(store: CheckpointStore, tmp_path: Path, time: Time) -> None:
    gone, kept = written(store, ttl_s=HOUR_S), written(store, "two", ttl_s=HOUR_S)
    also_gone = written(store, "three", run_id="other", kind="sampler_weights", ttl_s=HOUR_S)
    written(store, "four")
    store.set_ttl(kept, 2 * HOUR_S)
    assert store.sweep() == []
    time.pass_by(hours=1)

    assert store.sweep() == [gone.uri, also_gone.uri]

    assert not gone.folder.exists()
    assert not also_gone.folder.exists()
    assert len(paths(store)) == 2
    assert store.sweep() == []


# what is wrong on disk


def test_a_checkpoint_whose_files_were_changed_is_not_read(store: CheckpointStore) -> None:
    one = written(store)
    (one.folder / "adapter.txt").write_text("fIrst")

    with pytest.raises(DataError, match=f"^checkpoint {one.uri} is damaged: .*file 'adapter.txt' was altered after"):
        store.files(one)
    assert paths(store) == [one.uri]


@pytest.mark.parametrize("record", ["", "{", "[]", '{"kind": "training_checkpoint"}'])
def test_a_record_that_cannot_be_read_does_not_keep_the_others_from_it(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture, record: str
) -> None:
    one, two = written(store), written(store, "two")
    store.note_run(RUN)
    (one.folder / RECORD_NAME).write_text(record, "utf-8")

    with caplog.at_level(logging.WARNING):
        assert paths(store) == [two.uri]
        assert [run["last_checkpoint"]["tinker_path"] for run in store.runs()] == [two.uri]
        assert store.sweep() == []

    assert all(message.startswith(f"checkpoint {one.uri} is damaged: ") for message in caplog.messages)
    for act in (store.existing, store.files):
        with pytest.raises(DataError, match="is damaged"):
            act(one)
    store.delete(one)
    assert not one.folder.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from graftline.training.local import checkpoints
from graftline.training.local.checkpoints import CheckpointStore
from graftline.core import build as building

store = CheckpointStore(Path(sys.argv[1]))
one = store.at("0a1b:train:0", "weights", "one")

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def make(folder):
    (folder / "adapter.txt").write_text("killed")
    if sys.argv[2] == "while its files are written":
        killed()

if sys.argv[2] == "before its record is written":
    building.write_atomically = killed
elif sys.argv[2] == "before it takes its place":
    building._publish = killed
elif sys.argv[2] == "while it takes the place of another":
    rename = Path.rename
    Path.rename = lambda self, target: killed() if ".partial-" in self.name else rename(self, target)
elif sys.argv[2] == "while it is removed":
    checkpoints.shutil.rmtree = lambda path, ignore_errors=False: None if ignore_errors else killed()
if sys.argv[2] == "while it is removed":
    store.delete(one)
else:
    store.write(one, make, may_replace=True)
"""


@pytest.mark.parametrize(
    ("when", "had_one", "has_one"),
    [
        ("while its files are written", False, False),
        ("before its record is written", False, False),
        ("before it takes its place", False, False),
        ("before it takes its place", True, True),
        ("while it takes the place of another", True, True),
        ("while it is removed", True, False),
    ],
)
def test_a_kill_leaves_a_whole_checkpoint_or_none_and_nothing_that_disturbs(
    store: CheckpointStore, tmp_path: Path, when: str, had_one: bool, has_one: bool
) -> None:
    one, two = store.at(RUN, "weights", "one"), written(store, "two")
    if had_one:
        written(store)

    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), when], check=False, env={**os.environ})

    assert killed.returncode == -signal.SIGKILL
    # what is left of a first one is no checkpoint before it is swept either
    assert had_one or paths(store) == [two.uri]
    assert store.sweep() == []
    assert paths(store) == ([one.uri] if has_one else []) + [two.uri]
    assert remains(tmp_path) == []
    if has_one:
        assert content(store, one) == "first"
    written(store, content="anew", may_replace=has_one)
    assert content(store, one) == "anew"


# names


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-x", "a/b", "../x", "a b", "a\n", "ä", "x" * 129, "a\x00", "%2e%2e"]
)
def test_a_name_that_could_be_a_path_is_refused(store: CheckpointStore, name: str) -> None:
    with pytest.raises(DataError, match="is not made of up to 128 letters, digits, dots, dashes and underlines"):
        store.at(RUN, "weights", name)


@pytest.mark.parametrize("run_id", ["", "..", "../..", "a/b", ".x", "a*", "a~b", "x" * 201, "a\n"])
def test_the_id_of_a_run_that_could_be_a_path_is_refused(store: CheckpointStore, run_id: str) -> None:
    for act in (lambda: store.at(run_id, "weights", "one"), lambda: store.run(run_id), lambda: store.note_run(run_id)):
        with pytest.raises(DataError, match="is no id of a training run"):
            act()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("weights/one", "is no path of a checkpoint; tinker://RUN/weights|sampler_weights|external_weights/NAME was"),
        ("tinker://run/weights", "is no path of a checkpoint"),
        ("tinker://run/weights/a/b", "is no path of a checkpoint"),
        ("tinker://run/weights/..", "checkpoint name '..' is not made of"),
        ("tinker://../weights/one", "'..' is no id of a training run"),
        ("tinker://run/../one", "'..' is no kind of checkpoint; there are weights, sampler_weights, external_weights"),
        ("tinker:///etc/passwd", "'etc' is no kind of checkpoint"),
        ("file:///etc/passwd", "is no path of a checkpoint"),
    ],
)
def test_what_is_no_path_of_a_checkpoint_is_refused(store: CheckpointStore, uri: str, message: str) -> None:
    with pytest.raises(DataError) as refused:
        store.parse(uri)

    assert message in str(refused.value)


# runs


def test_a_run_is_told_with_its_newest_checkpoints(store: CheckpointStore, time: Time) -> None:
    store.note_run(RUN, base_model="tiny", lora_rank=4)
    made = []
    for name, kind in (("z", "weights"), ("a", "weights"), ("y", "sampler_weights"), ("x", "external_weights")):
        time.pass_by(microseconds=1)
        made.append(written(store, name, kind=kind).uri)
    written(store, "newer", run_id="other")
    store.note_run(RUN, lora_rank=4)

    run = store.run(RUN)

    assert (run["base_model"], run["last_request_time"]) == ("tiny", "2026-11-22T09:30:00.000004+00:00")
    assert run["last_checkpoint"]["tinker_path"] == made[1]
    assert run["last_sampler_checkpoint"]["tinker_path"] == made[2]
    assert store.runs() == [run]
    assert paths(store, RUN) == made
