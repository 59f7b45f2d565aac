"""The log of actions: one line per entry, whatever it holds; redacted, cut, put aside, and never mixed."""

import ctypes
import json
import os
import subprocess
import sys
from collections import UserDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import SandboxError
from graftline.sandbox.action_log import MAX_LINE_BYTES, MAX_TEXT, ActionLog

SECRET = "hunter2-hunter2"


def redact(text: str) -> str:
    return text.replace(SECRET, "[secret]")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "actions"


@pytest.fixture
def log(folder: Path) -> ActionLog:
    return ActionLog(folder, redact, max_bytes=1 << 20, max_files=2)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_each_entry_is_a_line_in_the_file_of_its_task(log: ActionLog, folder: Path) -> None:
    assert not folder.exists()
    log.write("a", {"action": {"pattern": "f($A)"}, "verdict": "ok", "cpu_s": 0.5, "matches": [1, 2], "error": None})
    log.write("b", {"verdict": "no_match"})
    log.write("a", {"verdict": "crash", "is_right": False})
    assert (folder / "a.jsonl").read_text() == (
        '{"action": {"pattern": "f($A)"}, "verdict": "ok", "cpu_s": 0.5, "matches": [1, 2], "error": null}\n'
        '{"verdict": "crash", "is_right": false}\n'
    )
    assert (folder / "b.jsonl").read_text() == '{"verdict": "no_match"}\n'


def test_task_ids_stay_in_the_folder_and_never_share_a_file(log: ActionLog, folder: Path) -> None:
    ids = ["a/b", "a_b", "a:b", "A_B", "a", "A", "", "task", "x" * 10_000, "x" * 10_001, "a.jsonl", "a.jsonl.1"]
    ids += ["../../x", "/etc/passwd", "a\0b", "a\nb", "..", "\ud800", ".a"]
    for task_id in ids:
        log.write(task_id, {"task_id": task_id[:20]})
    assert len(list(folder.iterdir())) == len(ids)


class Color(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Silent:
    def __str__(self) -> str:
        raise RuntimeError


class Torn(UserDict[str, int]):
    def items(self) -> Any:
        raise KeyError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"a {SECRET} b", "a [secret] b"),
        ([{"k": (f"{SECRET}",)}], [{"k": ["[secret]"]}]),
        ({SECRET: 1}, {"[secret]": 1}),
        (f"\xff{SECRET}".encode("latin-1"), "\\xff[secret]"),
        (b"\x00\x1b[31m\xe9", "\x00\x1b[31m\\xe9"),
        (bytearray(b"a"), "a"),
        (memoryview(b"a"), "a"),
        (float("nan"), None),
        (float("-inf"), None),
        (-(2**63), -(2**63)),
        (2**63, "0x8000000000000000"),
        (Color.RED, "red"),
        (Number.ONE, 1),
        (Path("/a"), "/a"),
        ({1: {None: True}}, {"1": {"None": True}}),
        (frozenset({1}), [1]),
        (Silent(), "[Silent]"),
        (Torn(), "[Torn]"),
        ("\ud83d\ude00 \udc80", "\\ud83d\\ude00 \\udc80"),
    ],
)
def test_a_value_becomes_one_of_json(log: ActionLog, folder: Path, value: object, expected: object) -> None:
    log.write("t", {"value": value})
    assert lines(folder / "t.jsonl") == [{"value": expected}]


def test_what_a_terminal_or_a_reader_of_lines_would_act_on_is_escaped(log: ActionLog, folder: Path) -> None:
    log.write("t", {"\x1b]0;x\x07": "\r\n\x1b[2J\x7f\x85\x9b\u2028\u2029\u202e\ufeff"})
    data = (folder / "t.jsonl").read_bytes()
    assert data[-1:] == b"\n"
    assert all(0x20 <= byte < 0x7F for byte in data[:-1])


def test_a_long_text_says_how_much_of_it_is_missing(log: ActionLog, folder: Path) -> None:
    log.write("t", {"long": "é" * 16_000_000, "just": "x" * MAX_TEXT})
    assert lines(folder / "t.jsonl") == [
        {"long": "é" * MAX_TEXT + "... [15996000 characters cut]", "just": "x" * MAX_TEXT}
    ]


def test_a_secret_is_taken_out_before_a_text_is_cut(log: ActionLog, folder: Path) -> None:
    log.write("t", {"text": "x" * (MAX_TEXT - 4) + SECRET})
    assert lines(folder / "t.jsonl") == [{"text": "x" * (MAX_TEXT - 4) + "[sec... [4 characters cut]"}]


def test_the_longest_texts_of_a_long_line_are_cut_further(log: ActionLog, folder: Path) -> None:
    log.write("t", {"short": "x" * 900, **{str(number): "y" * 4000 for number in range(40)}})
    assert lines(folder / "t.jsonl") == [
        {"short": "x" * 900, **{str(number): "y" * 1000 + "... [3000 characters cut]" for number in range(40)}}
    ]


def cyclic() -> list[Any]:
    items: list[Any] = []
    items += [items, items, items]
    return items


@pytest.mark.parametrize(
    "entry",
    [
        {"texts": ["\x00" * 4000] * 2000},
        {"texts": ["\U0001f600" * 4000] * 2000},
        {"numbers": list(range(1_000_000))},
        {"k" * 300 + str(number): "x" for number in range(3000)},
        {"x" * 1_000_000: 1},
        {"n": [[["\U0001f600" * 5000] * 30] * 30] * 30},
        {"cyclic": cyclic()},
        {"binary": os.urandom(1 << 20)},
    ],
    ids=["control", "emoji", "numbers", "keys", "long key", "nested", "cyclic", "binary"],
)
def test_no_line_is_longer_than_is_allowed(log: ActionLog, folder: Path, entry: dict[str, Any]) -> None:
    log.write("t", entry)
    [line] = (folder / "t.jsonl").read_bytes().splitlines(keepends=True)
    assert len(line) <= MAX_LINE_BYTES
    assert json.loads(line).keys()


def test_what_is_left_out_is_counted(log: ActionLog, folder: Path) -> None:
    log.write("t", {"a": [0] * 5000, "b": 1, "c": 2})
    assert lines(folder / "t.jsonl") == [{"a": [*[0] * 1999, "[3001 items left out]"], "[left out]": "2 items"}]


def numbers_in(folder: Path) -> dict[str, list[int]]:
    return {path.name: [line["n"] for line in lines(path)] for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    ("lines_per_file", "max_files", "writes", "files"),
    [
        (2, 2, 9, {"t.jsonl": [8], "t.jsonl.1": [6, 7], "t.jsonl.2": [4, 5]}),
        (0.1, 1, 3, {"t.jsonl": [2], "t.jsonl.1": [1]}),
        (0.1, 0, 3, {"t.jsonl": [2]}),
    ],
    ids=["lines", "a line that is larger than a file", "nothing is kept"],
)
def test_a_file_that_would_become_too_large_is_put_aside(
    folder: Path, lines_per_file: float, max_files: int, writes: int, files: dict[str, list[int]]
) -> None:
    log = ActionLog(folder, redact, max_bytes=int(len('{"n": 0}\n') * lines_per_file) or 1, max_files=max_files)
    for number in range(writes):
        log.write("t", {"n": number})
    assert numbers_in(folder) == files


def test_what_was_kept_under_a_larger_number_goes(folder: Path) -> None:
    for max_files, numbers in ((4, range(6)), (2, range(6, 8))):
        log = ActionLog(folder, redact, max_bytes=1, max_files=max_files)
        for number in numbers:
            log.write("t", {"n": number})
    assert numbers_in(folder) == {"t.jsonl": [7], "t.jsonl.1": [6], "t.jsonl.2": [5]}


@pytest.mark.parametrize(("max_bytes", "max_files"), [(0, 1), (1, -1)])
def test_senseless_bounds_are_refused(folder: Path, max_bytes: int, max_files: int) -> None:
    with pytest.raises(ValueError, match="expected at least 1 and 0"):
        ActionLog(folder, redact, max_bytes, max_files)


def test_half_a_line_of_a_killed_writer_spoils_no_other(log: ActionLog, folder: Path) -> None:
    log.write("t", {"n": 1})
    with (folder / "t.jsonl").open("a") as stream:
        stream.write('{"n": ')
    log.write("t", {"n": 2})
    assert (folder / "t.jsonl").read_text() == '{"n": 1}\n{"n": \n{"n": 2}\n'


def test_a_link_in_the_place_of_a_log_is_not_followed(log: ActionLog, folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    (tmp_path / "target").touch()
    (folder / "t.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(SandboxError, match=r"t\.jsonl: cannot be written \(Too many levels of symbolic links\)"):
        log.write("t", {"n": 1})
    assert (tmp_path / "target").read_bytes() == b""


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir])
def test_what_is_no_file_in_the_place_of_a_log_is_an_error(
    log: ActionLog, folder: Path, plant: Callable[[Path], None]
) -> None:
    folder.mkdir(parents=True)
    plant(folder / "t.jsonl")
    with pytest.raises(SandboxError, match=r"t\.jsonl: cannot be written"):
        log.write("t", {"n": 1})


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match=r"file/t\.jsonl: cannot be written \(File exists\)"):
        ActionLog(tmp_path / "file", redact, 1 << 20, 1).write("t", {"n": 1})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk, libc = tmp_path / "disk", ctypes.CDLL(None, use_errno=True)
    disk.mkdir()
    if libc.mount(b"none", os.fsencode(disk), b"tmpfs", 0, b"size=65536"):
        pytest.skip(f"no tmpfs can be mounted here ({os.strerror(ctypes.get_errno())}); run as root")
    try:
        yield disk
    finally:
        libc.umount2(os.fsencode(disk), 2)


def test_on_a_full_disk_a_line_is_written_as_a_whole_or_is_an_error(small_disk: Path) -> None:
    log = ActionLog(small_disk, redact, 1 << 20, 1)
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    log.write("t", {"n": 1, "text": "x" * 3000})
    (small_disk / "filler").write_bytes(b"x" * (free - 4096))
    with pytest.raises(SandboxError, match="No space left on device"):
        log.write("t", {"n": 2, "text": "x" * 3000})
    assert lines(small_disk / "t.jsonl") == [{"n": 1, "text": "x" * 3000}]


def test_threads_do_not_mix_their_lines(folder: Path) -> None:
    log = ActionLog(folder, redact, max_bytes=20_000, max_files=1000)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: log.write("t", {"n": number, "text": "x" * 500}), range(400)))
    assert sorted(number for numbers in numbers_in(folder).values() for number in numbers) == list(range(400))
    assert max(path.stat().st_size for path in folder.iterdir()) <= 20_000


WRITING = """
import sys
from pathlib import Path
from graftline.sandbox.action_log import ActionLog
log = ActionLog(Path(sys.argv[1]), str, max_bytes=5_000, max_files=1000)
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 200):
    log.write("t", {"n": number, "text": "x" * (number % 700)})
"""


def test_processes_do_not_mix_their_lines_nor_lose_any_when_files_are_put_aside(folder: Path) -> None:
    starts = range(0, 800, 200)
    processes = [subprocess.Popen([sys.executable, "-c", WRITING, str(folder), str(start)]) for start in starts]
    assert [process.wait(240) for process in processes] == [0] * 4
    assert sorted(number for numbers in numbers_in(folder).values() for number in numbers) == list(range(800))
    assert max(path.stat().st_size for path in folder.iterdir()) <= 5_000


FORKING = """
import os, sys, threading, time
from pathlib import Path
from graftline.sandbox.action_log import ActionLog
log = ActionLog(Path(sys.argv[1]), str, 1 << 20, 1)
def write():
    for number in range(2000):
        log.write("t", {"n": number})
thread = threading.Thread(target=write)
thread.start()
children = []
while thread.is_alive() and len(children) < 100:
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    children.append(pid)
    time.sleep(0.005)
thread.join()
for pid in children:
    os.kill(pid, 9)
"""


def test_a_child_that_is_forked_while_a_thread_writes_locks_nobody_out(folder: Path) -> None:
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING, str(folder)], timeout=200).returncode == 0
    assert numbers_in(folder) == {"t.jsonl": list(range(2000))}
