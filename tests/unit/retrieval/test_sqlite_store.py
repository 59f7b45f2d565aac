"""The file of the `sqlite` store: kept, shared by processes, and made again where it cannot be read."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest

from graftline.core.errors import RecordError
from graftline.rollouts.retrieval.base import VectorEntry
from graftline.rollouts.retrieval.sqlite import SqliteVectorStore

WRITER = """
import sys
from array import array
from pathlib import Path
from graftline.rollouts.retrieval.base import VectorEntry
from graftline.rollouts.retrieval.sqlite import SqliteVectorStore
store = SqliteVectorStore(Path(sys.argv[1]))
name, rounds = sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(rounds):
    store.replace(f"{name}{number}", [VectorEntry(f"{name}{i}", array("f", [1, i]), name, {"writer": name}) for i in range(500)])
store.close()
"""


def entries(name: str, count: int = 3) -> list[VectorEntry]:
    return [VectorEntry(f"{name}{number}", array("f", [1, number]), name, {"writer": name}) for number in range(count)]


def found(path: Path, writer: str) -> tuple[str, set[str]]:
    store = SqliteVectorStore(path)
    try:
        return store.identity, {one.content for one in store.nearest(array("f", [1, 0]), 900, {"writer": writer})}
    finally:
        store.close()


def writer(path: Path, name: str, rounds: int) -> "subprocess.Popen[str]":
    started = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(rounds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def start(*processes: "subprocess.Popen[str]") -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def end(process: "subprocess.Popen[str]") -> int:
    code = process.wait(240)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()
    return code


def test_what_is_stored_is_there_for_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "store.sqlite"
    store = SqliteVectorStore(path)
    store.replace("made", entries("a"))
    store.close()
    assert found(path, "a") == ("made", {"a"})


def test_a_store_that_is_open_sees_what_another_one_puts_there(tmp_path: Path) -> None:
    first, second = (SqliteVectorStore(tmp_path / "store.sqlite") for _ in range(2))
    first.replace("first", entries("a"))
    assert second.identity == "first"
    first.replace("second", entries("b", 5))
    assert (second.identity, len(second.nearest(array("f", [1, 0]), 9, {"writer": "b"}))) == ("second", 5)
    first.close()
    second.close()


def test_writers_at_the_same_time_leave_the_entries_of_one(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    processes = [writer(path, name, 5) for name in "ab"]
    start(*processes)
    assert [end(process) for process in processes] == [0, 0]
    identity, _ = found(path, "a")
    assert identity in ("a4", "b4")
    assert {name: found(path, name)[1] for name in "ab"} == {
        name: ({name} if identity[0] == name else set()) for name in "ab"
    }


def test_a_writer_that_is_killed_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    process = writer(path, "a", 1_000_000)
    start(process)
    seen, store = set[str](), SqliteVectorStore(path)
    while len(seen) < 3:  # it is at work
        seen.add(store.identity)
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert end(process) == -signal.SIGKILL
    identity = store.identity
    count = len(store.nearest(array("f", [1, 0]), 900, {"writer": "a"}))
    store.close()
    assert (identity[0], count) == ("a", 500)


def test_a_file_of_another_version_counts_as_empty_and_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 77")
        connection.execute("CREATE TABLE made_from (something TEXT)")
    connection.close()
    store = SqliteVectorStore(path)
    assert (store.identity, store.nearest(array("f", [1, 0]), 3)) == ("", [])
    store.replace("made", entries("a"))
    store.close()
    assert found(path, "a") == ("made", {"a"})


def test_a_file_that_is_no_store_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"nothing of the kind" * 100)
    store = SqliteVectorStore(path)
    with pytest.raises(RecordError, match=r"store\.sqlite: cannot be used as a store of vectors .* delete it"):
        _ = store.identity
    store.close()


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(RecordError, match=r"cannot be written \(.*\); mend its folder"):
        SqliteVectorStore(tmp_path / "file" / "store.sqlite").replace("made", entries("a"))


def test_a_label_that_is_no_word_is_refused(tmp_path: Path) -> None:
    store = SqliteVectorStore(tmp_path / "store.sqlite")
    with pytest.raises(ValueError, match="label 'a; DROP' is no lower-case word"):
        store.replace("made", [VectorEntry("a", array("f", [1]), "", {"a; DROP": "x"})])
    store.close()
