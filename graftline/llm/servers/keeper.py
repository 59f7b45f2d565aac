"""The process that keeps the server of one actor running: `python -m graftline.llm.servers.keeper`.

It reads its `Duty` from standard input, leaves the process that started it, and starts the server again, later each
time, whenever it ends; one whose `/health` says nothing for too long is killed. At SIGTERM it ends the server, and then
itself. What the server says goes to a rotated log, what is known of it to a state file, which is there for as long as the
keeper is.

The server has a process group of its own. Of that group nothing is left when the server has ended, whatever ended it, nor
when the keeper has, even by SIGKILL: a shell waits for the end of a pipe that the keeper alone holds open.

One runs for each actor for as long as that is up, so it imports the standard library and next to nothing else.

Who starts and stops keepers is in `graftline.llm.servers.processes`, what they write in `graftline.llm.servers.keeper_state`.
"""

import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Thread
from typing import IO, Any
from urllib.parse import urlsplit

from graftline.core.clock import Clock, utc_now
from graftline.llm.servers.keeper_state import KeeperState, started_at, write_state

_FIRST_DELAY_S, _LONGEST_DELAY_S, _STEADY_S = 0.5, 60.0, 60.0
_LOOK_S, _ANSWER_S, _LOADING_END_S = 0.25, 5.0, 2.0
_LOG_BYTES, _OLD_LOGS = 10 << 20, 3
_LONGEST_LINE, _LARGEST_ANSWER = 1 << 16, 8 << 20
_GUARD = 'read -r group && { read -r line || kill -KILL "-$group"; }'
"""Reads a second line when all is well, and the end of the pipe when not."""


@dataclass(frozen=True, slots=True)
class Duty:
    """What a keeper is told."""

    command: list[str]
    secrets: list[str]
    """Names of environment variables whose values never get into the log."""
    url: str
    end_within_s: float
    """From SIGTERM; then it is killed."""
    state: str
    """Path of the file that the keeper writes its state to."""
    log: str
    """Path of the file that gets what the server says."""
    health_every_s: float = 15.0
    silent_s: float = 120.0
    """A server that was healthy and gives no good answer for so long hangs."""


class Keeper:
    """Runs one server again and again, until SIGTERM."""

    def __init__(self, duty: Duty, environment: Mapping[str, str], clock: Clock = utc_now) -> None:
        self._duty, self._clock = duty, clock
        self._secrets = [environment[name] for name in duty.secrets if environment.get(name)]
        self._log = _open_log(Path(duty.log))
        self._is_stopping = False
        self._wake, self._waker = socket.socketpair()
        self._state = KeeperState(
            keeper=os.getpid(),
            keeper_started=started_at(os.getpid()),
            server=None,
            is_ready=False,
            since="",
            restarts=0,
            failures=0,
            ended="",
            command=duty.command,
            end_within_s=duty.end_within_s,
        )

    def prepare(self) -> None:
        """Listen to signals, and say that this process keeps the actor."""
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._say()

    def keep(self) -> None:
        """Start the server until it is stopped."""
        while True:
            try:
                self._run()
            except OSError as error:
                what = error.filename or "the server"
                self._ended(f"{what} cannot be started ({error.strerror})", 0.0)
            if self._is_stopping:
                break
            delay = delay_s(self._state.failures)
            self._note(f"{self._state.ended}; it is started again in {delay:g} s")
            deadline = time.monotonic() + delay
            while not self._is_stopping and (left := deadline - time.monotonic()) > 0:
                self._sleep(left)
            if self._is_stopping:
                break
            self._say(restarts=self._state.restarts + 1)
        Path(self._duty.state).unlink(missing_ok=True)

    def _run(self) -> None:
        with _guard() as guard:
            process = subprocess.Popen(
                self._duty.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                guard.write(b"%d\n" % process.pid)
                self._note(f"started as process {process.pid}")
                self._say(server=process.pid, since=self._clock().isoformat(), is_ready=False)
                reader = Thread(target=self._copy, args=(process.stdout,), daemon=True)
                reader.start()
                ready_for = self._watch(process.pid)
            finally:
                # before it is waited for, nobody else can get its id
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
        reader.join(_ANSWER_S)
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        self._ended(f"process {process.pid} {how}", ready_for)

    def _watch(self, pid: int) -> float:
        """Wait until the server ends or hangs, and end it if that is wanted; return for how many seconds it was ready."""
        ready, heard = None, 0.0
        while not _has_ended(pid) and not self._is_stopping:
            if answer(self._duty.url, "/health") is not None:
                heard = time.monotonic()
                if ready is None:
                    ready = heard
                    self._say(is_ready=True)
            elif ready is not None and time.monotonic() - heard > self._duty.silent_s:
                self._note(f"process {pid} is not healthy any more; it is killed")
                break
            self._sleep(_LOOK_S if ready is None else self._duty.health_every_s)
        if self._is_stopping:
            self._end(pid)
        return time.monotonic() - ready if ready is not None else 0.0

    def _end(self, pid: int) -> None:
        """Ask the server to end, and wait until it has, or has had its time."""
        self._note(f"process {pid} is asked to end")
        # its own children get no signal: it is the server that knows what they still have to do
        os.kill(pid, signal.SIGTERM)
        # before it serves it has nothing to finish, and vLLM does not listen
        most = self._duty.end_within_s if self._state.is_ready else _LOADING_END_S
        deadline = time.monotonic() + min(most, self._duty.end_within_s)
        while not _has_ended(pid):
            if time.monotonic() > deadline:
                self._note(f"process {pid} takes too long to end; it is killed")
                return
            self._sleep(_LOOK_S)

    def _ended(self, how: str, ready_for: float) -> None:
        failures = 0 if ready_for >= _STEADY_S else self._state.failures + 1
        self._say(server=None, is_ready=False, ended=how, failures=failures)

    def _say(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        # a full disk is no reason to end a server
        with suppress(OSError):
            write_state(Path(self._duty.state), self._state)

    def _note(self, text: str) -> None:
        self._log.info("%s keeper: %s", self._clock().isoformat(), text)

    def _copy(self, output: IO[bytes]) -> None:
        with output:
            for line in iter(lambda: output.readline(_LONGEST_LINE), b""):
                text = line.decode("utf-8", "replace").rstrip("\n")
                for secret in self._secrets:
                    text = text.replace(secret, "[secret]")
                self._log.info("%s", text)

    def _stop(self, *_: object) -> None:
        self._is_stopping = True

    def _sleep(self, seconds: float | None) -> None:
        """Wait until a signal comes, at most so long."""
        self._wake.settimeout(seconds)
        with suppress(TimeoutError):
            self._wake.recv(1024)


def delay_s(failures: int) -> float:
    """Return how long to wait before the next run, after so many in a row that were of no use."""
    return min(_FIRST_DELAY_S * 2.0 ** min(failures, 10), _LONGEST_DELAY_S)


def answer(url: str, path: str, headers: Mapping[str, str] | None = None) -> str | None:
    """Return what the server at `url` answers to a GET of `path`; None where that is not its 200."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.read(_LARGEST_ANSWER).decode("utf-8", "replace") if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


@contextmanager
def _guard() -> Iterator[IO[bytes]]:
    """Give what takes the id of a process group, which is killed if this process ends before it gets further."""
    shell = subprocess.Popen(["/bin/sh", "-c", _GUARD], stdin=subprocess.PIPE, bufsize=0, start_new_session=True)
    assert shell.stdin is not None
    try:
        yield shell.stdin
    finally:
        shell.communicate(b"\n\n")


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _open_log(path: Path) -> logging.Logger:
    path.parent.mkdir(parents=True, exist_ok=True)
    log = logging.Logger("keeper", logging.INFO)
    handler = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_OLD_LOGS, encoding="utf-8", errors="replace")
    log.addHandler(handler)
    return log


def main() -> None:
    """Leave the process that started this one when the state is written, and keep the actor."""
    duty = Duty(**json.load(sys.stdin))
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        # the other one has failed, and said why, if it ends without a word
        os._exit(0 if os.read(reading, 1) else 1)
    os.close(reading)
    keeper = Keeper(duty, os.environ)
    keeper.prepare()
    os.write(writing, b"1")
    os.close(writing)
    keeper.keep()


if __name__ == "__main__":
    main()
