"""The supervisor's end of a program that runs inside a jail: it is started, spoken to in frames, and ended.

Nothing waits without a limit: a program that neither reads nor answers is a `TimeoutError`, one that has gone an
`EOFError`, one that answers more than it may a `ValueError`.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from graftline.sandbox.inside.frames import add_length, size_of


class InnerProcess:
    """One program in a session of its own, with pipes for its standard input and output."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str = "/", user: int | None = None
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=dict(environment),
            bufsize=0,
            start_new_session=True,  # so that it can be ended together with its children
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)

    @property
    def pid(self) -> int:
        """Of the program."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it, and whatever it has started in its session. A second call does nothing."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def send(self, data: bytes | bytearray, deadline: float) -> None:
        """Write a frame, until `deadline` of the monotonic clock."""
        self.write(add_length(data), deadline)

    def write(self, data: bytes, deadline: float) -> None:
        """Write what is no frame."""
        view = memoryview(data)
        while view:
            # it reads nothing while it is busy, or when somebody stopped it
            if not _is_ready(self._stdin, select.POLLOUT, deadline - time.monotonic()):
                raise TimeoutError
            view = view[os.write(self._stdin, view) :]

    def is_ready(self, within_s: float) -> bool:
        """Return whether it says something, or has gone, within that time."""
        return _is_ready(self._stdout, select.POLLIN, within_s)

    def receive(self, most: int, deadline: float) -> bytes:
        """Read a frame of at most so many bytes, until `deadline` of the monotonic clock."""
        size = size_of(self._read(4, deadline))
        if size > most:
            raise ValueError(f"frame of {size} bytes; at most {most} are read")
        return self._read(size, deadline)

    def _read(self, length: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < length:
            if not _is_ready(self._stdout, select.POLLIN, deadline - time.monotonic()):
                raise TimeoutError
            chunk = os.read(self._stdout, length - len(data))
            if not chunk:
                raise EOFError("end of its output")
            data += chunk
        return bytes(data)


def _is_ready(descriptor: int, event: int, within_s: float) -> bool:
    ready = select.poll()
    ready.register(descriptor, event)
    return bool(ready.poll(max(0.0, within_s) * 1000))
