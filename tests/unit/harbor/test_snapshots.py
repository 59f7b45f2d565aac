"""Snapshots: each is unpacked once, whoever asks for it, and none is ever seen half made."""

import hashlib
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graftline.core.errors import DataError, HarborError
from graftline.harbor.archive import Snapshots
from tests.conftest import CHECKOUT
from tests.harbor_parts import archive

_KILLED = """
import os, signal, sys, time
from pathlib import Path
from graftline.harbor.archive import Snapshots
def wait(partial, folder):
    print("written", flush=True)
    time.sleep(60)
Path.rename = wait
data = Path(sys.argv[2]).read_bytes()
Snapshots(Path(sys.argv[1])).add(sys.argv[3], lambda: data)
"""


DATA, OTHER = archive({"a": "a", "b/c": "b/c"}), archive({"d": "d"})
DIGEST, OTHER_DIGEST = (hashlib.sha256(data).hexdigest() for data in (DATA, OTHER))


def asked_for_in_vain() -> bytes:
    raise AssertionError("the archive is asked for, though its snapshot is there")


def test_a_snapshot_is_the_unpacked_archive(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    assert snapshots.path(DIGEST) is None
    folder = snapshots.add(DIGEST, lambda: DATA)
    assert folder == snapshots.path(DIGEST) == tmp_path / "snapshots" / DIGEST
    assert [(folder / name).read_text() for name in ("a", "b/c")] == ["a", "b/c"]
    assert [path.name for path in folder.parent.iterdir()] == [DIGEST]
    assert Snapshots(tmp_path / "snapshots").add(DIGEST, asked_for_in_vain) == folder


def test_an_archive_of_another_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"snapshot {DIGEST}: the archive is another one; package the context again"):
        Snapshots(tmp_path).add(DIGEST, lambda: OTHER)
    assert list(tmp_path.iterdir()) == []


def test_a_hostile_archive_leaves_nothing(tmp_path: Path) -> None:
    hostile = archive({"../a": ""})
    with pytest.raises(DataError, match="must stay inside its folder"):
        Snapshots(tmp_path / "snapshots").add(hashlib.sha256(hostile).hexdigest(), lambda: hostile)
    assert [path.name for path in tmp_path.rglob("*")] == ["snapshots"]


@pytest.mark.parametrize(
    "digest", ["", "..", "../" + "a" * 61, "A" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n", "é" * 64]
)
def test_what_is_no_digest_names_no_snapshot(tmp_path: Path, digest: str) -> None:
    snapshots = Snapshots(tmp_path)
    for ask in (snapshots.path, lambda digest: snapshots.add(digest, lambda: DATA)):
        with pytest.raises(ValueError, match="is no digest; expected 64 hexadecimal characters"):
            ask(digest)
    assert list(tmp_path.iterdir()) == []


def test_threads_that_ask_at_the_same_time_get_the_same_snapshot_of_one_archive(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path)
    asked: list[int] = []
    together = threading.Barrier(8)

    def add(number: int) -> Path:
        together.wait()
        return snapshots.add(DIGEST, lambda: asked.append(number) or DATA)

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(add, range(8))) == {tmp_path / DIGEST}
    assert len(asked) == 1
    assert [path.name for path in tmp_path.iterdir()] == [DIGEST]


@pytest.mark.parametrize("digest", [DIGEST, OTHER_DIGEST])
def test_what_a_killed_process_left_is_removed_by_the_next_that_adds_one(tmp_path: Path, digest: str) -> None:
    folder, source = tmp_path / "snapshots", tmp_path / "source"
    source.write_bytes(DATA)
    command = [sys.executable, "-c", _KILLED, str(folder), str(source), DIGEST]
    environment = {"PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        assert len(list(folder.glob(".*.partial-*"))) == 1
        process.kill()
        assert process.wait() == -signal.SIGKILL
    snapshots = Snapshots(folder)
    assert snapshots.path(DIGEST) is None
    snapshots.add(digest, lambda: DATA if digest == DIGEST else OTHER)
    assert [path.name for path in folder.iterdir()] == [digest]


def test_a_folder_that_cannot_be_written_is_the_fault_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HarborError, match=r"cannot be written .*; see to the disk that holds it"):
        Snapshots(tmp_path / "file" / "snapshots").add(DIGEST, lambda: DATA)
