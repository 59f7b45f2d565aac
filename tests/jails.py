"""Jails of every kind, with small limits, and programs to run in them."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.sandbox import Case, CaseEnd, CaseLimits, Verdict
from graftline.sandbox.jail import Program
from graftline.sandbox.jail.served import Mode, ServedJail
from graftline.sandbox.jail.wrappers import WRAPPERS

SERVED = ("namespaces", "confined", "subprocess")
WRAPPED = tuple(WRAPPERS)
MODES: dict[str, Mode] = {"namespaces": "namespaces", "subprocess": "bare"}
PROGRAMS: tuple[Program, ...] = ("python", "pytest", "calls", "ast-grep")
LIMITS = CaseLimits(cpu_s=1, wall_s=15, memory_mb=256, disk_mb=8, output_kb=64, processes=16, files=100)
# long enough for what a case does before it sleeps, on a busy machine too
SHORT = LIMITS.model_copy(update={"wall_s": 2.0})
KEPT = 64 << 10

# behind a wrapper a case costs the start of a server
on_served_ones_only = pytest.mark.parametrize("kind", SERVED, indirect=True, scope="module")
# what takes long, and is the same for those that isolate nothing
on_walled_ones_only = pytest.mark.parametrize("kind", ["namespaces", "confined"], indirect=True, scope="module")


def has_user_namespaces() -> bool:
    code = "from graftline.sandbox.inside import kernel; kernel.unshare(kernel.NEW_USER | kernel.NEW_MOUNTS)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def new_jail(kind: str, limits: CaseLimits = LIMITS, programs: tuple[Program, ...] = PROGRAMS) -> ServedJail:
    return ServedJail(kind, MODES.get(kind, "confined"), limits, programs, WRAPPERS.get(kind))


def python(text: str, *arguments: str, stdin: bytes = b"", **more: dict[str, bytes]) -> Case:
    files = {"main.py": text.encode(), **more.pop("files", {})}
    return Case("python", ("main.py", *arguments), files, stdin=stdin, **more)


def output(jail: ServedJail, case: Case) -> str:
    end = jail.run(case)
    assert (end.verdict, end.exit_code, end.stderr) == (Verdict.OK, 0, b"")
    return end.stdout.decode()


def how(end: CaseEnd) -> tuple[Verdict, int | None, int | None]:
    return end.verdict, end.exit_code, end.signal


def has_process(mark: str) -> bool:
    """Whether a process with this word on its command line runs on this machine, in whichever namespace."""
    return pids_of(mark) != []


def pids_of(mark: str) -> list[int]:
    """Return the processes with this word on their command lines, by their numbers on this machine."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
        except OSError:
            continue
    return pids


def is_soon(claim: Callable[[], bool], within_s: float = 240.0) -> bool:
    deadline = time.monotonic() + within_s
    while not (is_so := claim()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_so


def processes_of(group: int) -> list[int]:
    """Return the ids of what runs in a process group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def dedent(text: str) -> str:
    lines = text.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)
