"""A process for hostile programs to reach: it has a name, a canary in its environment, and hears signals."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_MOST_HEARD = 64
_VICTIM = """
import os, signal
for number in {*signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, lambda number, frame: os.write(1, bytes([number])))
os.write(1, bytes([0]))
while os.read(0, 1):
    pass
"""


class Victim:
    """One process, started anew when it has come to harm; it ends with this process."""

    def __init__(self, folder: Path, word: str) -> None:
        """`word` stands on its command line and in its environment."""
        self._folder, self._word = folder, word
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def findings(self) -> Iterator[str]:
        """Yield what was done to it since the last look."""
        if heard := _stream(self._process.stdout).read(_MOST_HEARD):
            yield f"the victim got signal {', '.join(map(str, sorted({*heard})))}"
        ended = self._process.poll()
        if ended is not None or state(self.pid) in "Tt":
            yield "the victim was stopped" if ended is None else f"the victim was ended ({ended})"
            self.close()
            self._process = self._start()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _start(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _VICTIM, self._word],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self._folder,
            env={"CANARY": self._word},
            start_new_session=True,
            bufsize=0,
        )
        output = _stream(process.stdout)
        output.read(1)  # from now on it hears
        os.set_blocking(output.fileno(), False)
        return process


def state(pid: int) -> str:
    """Return the letter that says what a process does; `X` for one that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1].decode()
    except OSError:
        return "X"


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the victim has no output")
    return stream
