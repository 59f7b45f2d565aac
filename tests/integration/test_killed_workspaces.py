"""Processes that share a folder of workspaces: what is left when one is killed, and what of the living is touched."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from graftline.sandbox.file_names import WorkspaceLimits
from graftline.sandbox.workspaces import Workspaces

LIMITS = WorkspaceLimits()
PREPARING = """
import os, subprocess, sys, time
from pathlib import Path
from graftline.sandbox.file_names import WorkspaceLimits
from graftline.sandbox.workspaces import Workspaces
workspaces = Workspaces(Path(sys.argv[1]), WorkspaceLimits())
def prepare():
    return workspaces.prepare("t", {"a.py": "1", "b/c.py": "2"})
"""
WAITING = PREPARING + 'for _ in range(3): prepare()\nprint("ready", flush=True)\nsys.stdin.read()\nworkspaces.close()\n'

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "workspaces"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start a program that works in the folder, and return when it prints a line."""
    started = []

    def start(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        for child in psutil.Process(process.pid).children() if process.poll() is None else []:
            child.kill()
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".owner-")}


def test_the_next_start_removes_what_a_killed_process_left_and_nothing_of_the_living(
    folder: Path, start: Start
) -> None:
    living = start(WAITING)
    of_the_living = held(folder)
    kill(start(WAITING))
    assert len(held(folder)) == 6
    with Workspaces(folder, LIMITS) as workspaces:
        own = workspaces.prepare("t", {})
        assert held(folder) == {*of_the_living, own.name}
    assert living.communicate("")[0] == ""
    assert (living.returncode, list(folder.iterdir())) == (0, [])


def test_what_a_killed_process_left_is_removed_however_it_looks(folder: Path, start: Start, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    process = start(WAITING)
    first, second, third = sorted(folder.glob("t-*"))
    here = os.open(first, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    (second / "b" / "link").symlink_to(tmp_path / "outside")
    (second / "b").chmod(0)
    third.rename(tmp_path / "third")
    third.symlink_to(tmp_path / "outside")
    kill(process)
    Workspaces(folder, LIMITS).close()
    assert list(folder.iterdir()) == []
    assert list((tmp_path / "outside").iterdir()) == [tmp_path / "outside" / "kept"]


def test_a_stopped_process_is_not_a_dead_one(folder: Path, start: Start) -> None:
    process = start(WAITING)
    process.send_signal(signal.SIGSTOP)
    Workspaces(folder, LIMITS).close()
    assert len(held(folder)) == 3


# what a fork takes over is closed in the child before its first line
FORKED = """
prepare()
if os.fork() == 0:
    print("ready", flush=True)
    time.sleep(60)
    os._exit(0)
"""
RUNNING = """
prepare()
subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
print("ready", flush=True)
"""


@pytest.mark.parametrize("child", [FORKED, RUNNING], ids=["forked", "another program"])
def test_a_child_that_outlives_a_killed_process_keeps_nothing_alive(folder: Path, start: Start, child: str) -> None:
    process = start(PREPARING + child + "sys.stdin.read()\n")
    [orphan] = psutil.Process(process.pid).children()
    kill(process)
    try:
        Workspaces(folder, LIMITS).close()
        assert (orphan.is_running(), list(folder.iterdir())) == (True, [])
    finally:
        orphan.kill()


def test_a_forked_child_that_ends_takes_nothing_of_its_parent_along(folder: Path) -> None:
    with Workspaces(folder, LIMITS) as workspaces:
        workspace = workspaces.prepare("t", {"a.py": "1"})
        pid = os.fork()
        if pid == 0:
            workspaces.cleanup(workspace)
            workspaces.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        Workspaces(folder, LIMITS).close()  # the lock is still held
        assert workspaces.read(workspace) == {"a.py": b"1"}


def test_a_forked_child_may_have_workspaces_of_its_own(folder: Path) -> None:
    with Workspaces(folder, LIMITS) as workspaces:
        workspace = workspaces.prepare("t", {"a.py": "1"})
        pid = os.fork()
        if pid == 0:
            with Workspaces(folder, LIMITS) as own:
                is_right = own.read(own.prepare("t", {"b.py": "2"})) == {"b.py": b"2"}
            os._exit(0 if is_right else 1)
        assert (os.waitpid(pid, 0)[1], held(folder)) == (0, {workspace.name})


WORKING = (
    PREPARING
    + """
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    workspace = prepare()
    workspaces.write(workspace, {"b/d.py": b"%d" % number})
    assert workspaces.read(workspace) == {"a.py": b"1", "b/c.py": b"2", "b/d.py": b"%d" % number}
    workspaces.cleanup(workspace)
workspaces.close()
"""
)


def test_processes_share_a_folder_and_a_task_id(folder: Path, start: Start) -> None:
    processes = [start(WORKING) for _ in range(3)]
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    for _ in range(20):
        Workspaces(folder, LIMITS).close()
    assert [process.wait(240) for process in processes] == [0] * 3
    assert list(folder.iterdir()) == []


def test_many_that_start_at_once_remove_what_was_left_and_not_each_others(folder: Path, start: Start) -> None:
    for process in [start(WAITING) for _ in range(2)]:
        kill(process)
    before = held(folder)

    def work(number: int) -> bool:
        with Workspaces(folder, LIMITS) as workspaces:
            return workspaces.read(workspaces.prepare("t", {"a": str(number)})) == {"a": str(number).encode()}

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(40))) == [True] * 40
    assert (len(before), list(folder.iterdir())) == (6, [])


def test_whenever_a_process_is_killed_the_next_start_leaves_nothing(folder: Path, start: Start) -> None:
    program = PREPARING + 'print("ready", flush=True)\nwhile True:\n    for _ in range(5): last = prepare()\n'
    program += "    workspaces.cleanup(last)\n    workspaces.close()\n    workspaces = Workspaces(Path(sys.argv[1]), WorkspaceLimits())\n"
    for number in range(5):
        process = start(program)
        time.sleep(0.006 * number)
        kill(process)
    Workspaces(folder, LIMITS).close()
    assert list(folder.iterdir()) == []
