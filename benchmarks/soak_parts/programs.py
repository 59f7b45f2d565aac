"""The programs of the platform, each started again whenever it ends, as systemd or Kubernetes would."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.soak_parts.samples import below, is_zombie
from benchmarks.soak_parts.site import ACTOR, FLEET, WORKERS_MANIFEST, Site
from graftline.core.errors import RecordError
from graftline.llm.servers.supervisor import SupervisorState, read_state, runs_here, state_path

BIN = Path(sys.executable).parent
_LOOK_S, _PAUSE_S, _ENDS_WITHIN_S = 0.1, 1.0, 40.0
_GROUP_ENDS_WITHIN_S = 20.0
_SHOWN = 300


@dataclass(frozen=True)
class Ended:
    """A program that ended though nobody wanted it to."""

    role: str
    at: float
    """On the clock of `time.monotonic`."""
    status: int
    was_killed: bool
    """By the soak."""
    last_words: str


class Program:
    """One of them. What it says goes to a file."""

    def __init__(self, role: str, command: Sequence[str | Path], site: Site) -> None:
        self.role, self._command, self._site = role, command, site
        self._log = site.logs / f"{role}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._was_killed, self._not_before = False, 0.0
        self._started: set[int] = set()  # each leads a group of its own
        self.killed_with_it = 0
        """How many processes that it had started did not end with it, nor when they were asked to."""

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def look(self) -> Ended | None:
        """Start it if it does not run; return how it ended if it has since the last look."""
        process = self._process
        if process is None:
            if time.monotonic() >= self._not_before:
                self._start()
            return None
        status = process.poll()
        if status is None:
            return None
        ended = Ended(self.role, time.monotonic(), status, self._was_killed, self._last_words())
        self._process, self._was_killed, self._not_before = None, False, time.monotonic() + _PAUSE_S
        return ended

    def kill(self) -> int | None:
        """End it by SIGKILL, and return its process id; None where it does not run."""
        pid, process = self.pid, self._process
        if pid is None or process is None:
            return None
        self._was_killed = True
        process.send_signal(signal.SIGKILL)
        return pid

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def wait(self) -> bool:
        """Return whether it ended by itself after it was asked to; it is killed where it did not."""
        if self._process is None:
            return True
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._site.environment,
                cwd=self._site.folder,
                start_new_session=True,  # an interruption from the terminal is for the soak to pass on
            )
        self._started.add(self._process.pid)

    def _last_words(self) -> str:
        return self._log.read_bytes()[-_SHOWN:].decode("utf-8", "replace").strip() if self._log.exists() else ""


def actor_state(site: Site) -> SupervisorState | None:
    """Return what the keeper of the actor says, while it lives."""
    try:
        state = read_state(state_path(site.paths, FLEET, ACTOR))
    except (RecordError, OSError):
        return None
    return state if state is not None and runs_here(state) else None


class KeptActor(Program):
    """`graftline model serve`, which leaves a supervisor behind; called again when that is gone."""

    def __init__(self, site: Site) -> None:
        command = graftline(site, "model", "serve", "--fleet", FLEET, "--timeout", "120")
        super().__init__("model serve", command, site)

    def look(self) -> Ended | None:
        if self._process is None and actor_state(self._site) is not None:
            return None
        ended = super().look()
        return ended if ended is not None and ended.status else None


class Daemon(Program):
    """That of Dagster, which is ended together with every code server that it or one before it started.

    A code server ends by itself once its daemon is gone, but not if Dagster's storage could not be read when a run of it
    died: that ends its thread `grpc-server-cleanup`, which alone looks after runs and the end (dagster 1.13,
    `_grpc/server.py`). So all of the group is asked to end, and killed where it does not, as systemd does.
    """

    def __init__(self, site: Site) -> None:
        super().__init__("daemon", [BIN / "dagster-daemon", "run", "-w", site.dagster_home / "workspace.yaml"], site)

    def wait(self) -> bool:
        has_ended = super().wait()
        group = [one for one in below(os.getpid()) if _group_of(one) in self._started and not is_zombie(one)]
        for process in group:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(group, _GROUP_ENDS_WITHIN_S)[1]:
            with suppress(psutil.NoSuchProcess):
                self.killed_with_it += not is_zombie(process)
                process.kill()
        return has_ended


def _group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def graftline(site: Site, *arguments: str) -> list[str | Path]:
    """Return a command of the platform."""
    return [BIN / "graftline", "--root", site.root, *arguments]


def programs_of(site: Site, database: str, workers: int) -> list[Program]:
    """Return the platform: service, actor, workers, and the daemon of Dagster."""
    serve = ("env", "serve", "--port", str(site.harbor_port), "--database", database, "--concurrency", "2")
    run = ("worker", "run", "--manifest", WORKERS_MANIFEST, "--concurrency", "2", "--metrics-port", "0")
    return [
        Program("service", graftline(site, *serve, "--set", "service.backoff_s=0.5", "--set", "service.attempts=20"), site),
        KeptActor(site),
        *(Program(f"worker {number}", graftline(site, *run, "--drain-s", "20"), site) for number in range(1, workers + 1)),
        Daemon(site),
    ]  # fmt: skip


@dataclass
class Supervisor:
    """Looks after programs in a thread of its own, until it is stopped."""

    site: Site
    programs: Sequence[Program]
    told: Callable[[str], None]
    ended: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start them all."""
        self._thread.start()

    def program(self, role: str) -> Program:
        """Return the one that is called so."""
        return next(one for one in self.programs if one.role == role)

    def stop(self) -> list[str]:
        """End all by SIGTERM, and return the roles of those that did not end."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        for one in self.programs:
            one.ask_to_end()
        return [one.role for one in self.programs if not one.wait()]

    def _run(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            for one in self.programs:
                if (ended := one.look()) is not None:
                    self.ended.append(ended)
                    if not ended.was_killed:
                        self.told(f"{one.role} ended by itself with {ended.status}: {ended.last_words[-120:]!r}")
