"""The process that keeps the server of one actor running: `python -m graftline.llm.servers.supervisor`.

It reads its `SupervisorConfig` from standard input, leaves the process that started it, and starts the server again, later each
time, whenever it ends; one whose `/health` says nothing for too long is killed. At SIGTERM it ends the server, and then
itself. What the server says goes to a rotated log, what is known of it to a state file, which is there for as long as the
supervisor is.

The server has a process group of its own. Of that group nothing is left when the server has ended, whatever ended it, nor
when the supervisor has, even by SIGKILL: a shell waits for the end of a pipe that the supervisor alone holds open.

One runs for each actor for as long as that is up, so it imports the standard library and next to nothing else.

Who starts and stops supervisors is in `graftline.llm.servers.processes`, what they write in `graftline.llm.servers.supervisor`.
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
from dataclasses import asdict, dataclass, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Thread
from typing import IO, Any
from urllib.parse import urlsplit

from graftline.core.clock import utc_now
from graftline.core.errors import RecordError
from graftline.core.paths import Paths

_FIRST_DELAY_S, _LONGEST_DELAY_S, _STEADY_S = 0.5, 60.0, 60.0
_LOOK_S, _ANSWER_S, _LOADING_END_S = 0.25, 5.0, 2.0
_LOG_BYTES, _OLD_LOGS = 10 << 20, 3
_LONGEST_LINE, _LARGEST_ANSWER = 1 << 16, 8 << 20
_GUARD = 'read -r group && { read -r line || kill -KILL "-$group"; }'
"""Reads a second line when all is well, and the end of the pipe when not."""


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """What a supervisor says of itself and its server."""

    keeper: int
    keeper_started: str
    """As `start_time_of` says it: another process may get the same id."""
    server: int | None
    """Process id, and group; None between two runs."""
    is_ready: bool
    """Whether this run of the server has answered that it is healthy."""
    since: str
    """When this run began."""
    restarts: int
    failures: int
    """Runs before this one that ended, one after the other, before they had been of use."""
    ended: str
    """How the run before this one ended; empty where there is none."""
    command: list[str]
    end_within_s: float
    """How long its server has to end; then it is killed."""


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """What a supervisor is told."""

    command: list[str]
    secrets: list[str]
    """Names of environment variables whose values never get into the log."""
    url: str
    end_within_s: float
    """From SIGTERM; then it is killed."""
    state: str
    """Path of the file that the supervisor writes its state to."""
    log: str
    """Path of the file that gets what the server says."""
    health_every_s: float = 15.0
    silent_s: float = 120.0
    """A server that was healthy and gives no good answer for so long hangs."""


class Supervisor:
    """Runs one server again and again, until SIGTERM."""

    def __init__(self, config: SupervisorConfig, environment: Mapping[str, str]) -> None:
        self._config = config
        self._secrets = [environment[name] for name in config.secrets if environment.get(name)]
        self._log = _open_log(Path(config.log))
        self._is_stopping = False
        self._wake, self._waker = socket.socketpair()
        self._state = SupervisorState(
            keeper=os.getpid(),
            keeper_started=start_time_of(os.getpid()),
            server=None,
            is_ready=False,
            since="",
            restarts=0,
            failures=0,
            ended="",
            command=config.command,
            end_within_s=config.end_within_s,
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
                program = error.filename or "the server"
                self._record_end(f"{program} cannot be started ({error.strerror})", 0.0)
            if self._is_stopping:
                break
            delay = delay_s(self._state.failures)
            self._note(f"{self._state.ended}; it is started again in {delay:g} s")
            deadline = time.monotonic() + delay
            while not self._is_stopping and (remaining_s := deadline - time.monotonic()) > 0:
                self._sleep(remaining_s)
            if self._is_stopping:
                break
            self._say(restarts=self._state.restarts + 1)
        Path(self._config.state).unlink(missing_ok=True)

    def _run(self) -> None:
        with _guard() as guard:
            process = subprocess.Popen(
                self._config.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                guard.write(b"%d\n" % process.pid)
                self._note(f"started as process {process.pid}")
                self._say(server=process.pid, since=utc_now().isoformat(), is_ready=False)
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
        self._record_end(f"process {process.pid} {how}", ready_for)

    def _watch(self, pid: int) -> float:
        """Wait until the server ends or hangs, and end it if that is wanted; return for how many seconds it was ready."""
        ready, heard = None, 0.0
        while not _has_ended(pid) and not self._is_stopping:
            if answer(self._config.url, "/health") is not None:
                heard = time.monotonic()
                if ready is None:
                    ready = heard
                    self._say(is_ready=True)
            elif ready is not None and time.monotonic() - heard > self._config.silent_s:
                self._note(f"process {pid} is not healthy any more; it is killed")
                break
            self._sleep(_LOOK_S if ready is None else self._config.health_every_s)
        if self._is_stopping:
            self._end(pid)
        return time.monotonic() - ready if ready is not None else 0.0

    def _end(self, pid: int) -> None:
        """Ask the server to end, and wait until it has, or has had its time."""
        self._note(f"process {pid} is asked to end")
        # its own children get no signal: it is the server that knows what they still have to do
        os.kill(pid, signal.SIGTERM)
        # before it serves it has nothing to finish, and vLLM does not listen
        most = self._config.end_within_s if self._state.is_ready else _LOADING_END_S
        deadline = time.monotonic() + min(most, self._config.end_within_s)
        while not _has_ended(pid):
            if time.monotonic() > deadline:
                self._note(f"process {pid} takes too long to end; it is killed")
                return
            self._sleep(_LOOK_S)

    def _record_end(self, how: str, ready_for: float) -> None:
        failures = 0 if ready_for >= _STEADY_S else self._state.failures + 1
        self._say(server=None, is_ready=False, ended=how, failures=failures)

    def _say(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        # a full disk is no reason to end a server
        with suppress(OSError):
            write_state(Path(self._config.state), self._state)

    def _note(self, text: str) -> None:
        self._log.info("%s supervisor: %s", utc_now().isoformat(), text)

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
    config = SupervisorConfig(**json.load(sys.stdin))
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        # the other one has failed, and said why, if it ends without a word
        os._exit(0 if os.read(reading, 1) else 1)
    os.close(reading)
    supervisor = Supervisor(config, os.environ)
    supervisor.prepare()
    os.write(writing, b"1")
    os.close(writing)
    supervisor.keep()


def state_folder(paths: Paths, fleet: str) -> Path:
    """Where the supervisors of a fleet say what they do."""
    return paths.data / "actors" / fleet


def state_path(paths: Paths, fleet: str, actor: str) -> Path:
    """Where the supervisor of an actor says what it does."""
    return state_folder(paths, fleet) / f"{actor}.json"


def log_path(paths: Paths, fleet: str, actor: str) -> Path:
    """Where the output of an actor goes."""
    return paths.logs / "actors" / fleet / f"{actor}.log"


def start_time_of(pid: int) -> str:
    """Return when the process began, in ticks of one start of the machine; empty where no such process runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if fields[0] in ("Z", "X"):
        return ""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{fields[19]}"


def read_state(path: Path) -> SupervisorState | None:
    """Return what the supervisor wrote there, None where there is nothing; RecordError where it is something else."""
    try:
        return SupervisorState(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise RecordError(f"{path}: is not the state of an actor; remove it, and end what runs by hand") from None


def write_state(path: Path, state: SupervisorState) -> None:
    """Write it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(state), indent=1) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def runs_here(state: SupervisorState) -> bool:
    """Whether the supervisor that wrote `state` runs, on this machine."""
    return start_time_of(state.keeper) == state.keeper_started


if __name__ == "__main__":
    main()
