"""Running a command in a process group of its own, which does not outlive it."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

KEPT_BYTES = 1 << 20
"""Kept of what a command prints; of more, the end."""
_DRAIN_S = 1.0
_PR_SET_CHILD_SUBREAPER = 36
_MOST_SWEEPS = 100


@dataclass(frozen=True)
class FinishedCommand:
    """How a command ended."""

    status: int | None
    """None where its time was up."""
    output: str
    seconds: float


def run_command(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], timeout_s: float
) -> FinishedCommand:
    """Run `command` to its end or to the end of its time, and kill whatever it has left running.

    Raises:
        FileNotFoundError: there is no such program.
        PermissionError: it cannot be run.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        list(command),
        cwd=folder,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = bytearray()
    reader = threading.Thread(target=_drain, args=(process.stdout, output), daemon=True)
    reader.start()
    status: int | None = None
    try:
        status = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # also what a command that has ended left in the background
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # a grandchild in a session of its own may hold the pipe open
    reader.join(_DRAIN_S)
    if not reader.is_alive():
        process.stdout.close()
    return FinishedCommand(status, bytes(output).decode("utf-8", "replace"), time.monotonic() - started)


def adopt_orphans() -> bool:
    """Have all processes that come of this one become its children when their parents end; False where that cannot be."""
    try:
        return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def end_children() -> None:
    """End every child of this process, and theirs: also one that left its group. Only for a program that has its box alone."""
    for _ in range(_MOST_SWEEPS):
        children = list(_children())
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _children() -> Iterator[int]:
    own = str(os.getpid())
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            if entry.read_text("utf-8", "replace").rpartition(")")[2].split()[1] == own:
                yield int(entry.parent.name)


def _drain(stream: IO[bytes], output: bytearray) -> None:
    with contextlib.suppress(OSError, ValueError):
        while piece := os.read(stream.fileno(), 1 << 16):
            output += piece
            del output[:-KEPT_BYTES]
