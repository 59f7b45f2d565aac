"""What hostile programs try to reach on this machine, and what they reached.

All of it is the suite's own: a process, listeners, files, an environment variable. Nobody else's are touched. Looking
cleans up, so that one case is not blamed for another.
"""

import ctypes
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tests.security.hostile.cases import CASE_LIMITS
from tests.security.hostile.prelude import calls

CANARY_VARIABLE = "HOSTILE_CANARY"
_LINGER_S = 1.0  # a jail may answer before the last process is gone and the folder is removed
_REMOVAL_S = 10.0
_MOST_HEARD = 64
_ENDINGS = ("", ".pyc", ".pth", "-0", "-program", "-other")
"""What programs append to the marker where they name a file by it."""
_WORK_DEPTH = 4
_DETACH = 2


@contextmanager
def watch_host() -> Iterator["Host"]:
    """Put up what cases try to reach, for as long as the suite runs; jails have to be opened within.

    The environment of this process holds a canary meanwhile.
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="graftline-hostile-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        os.environ[CANARY_VARIABLE] = secrets.token_hex(16)
        stack.callback(os.environ.pop, CANARY_VARIABLE, None)
        host = Host(folder)
        stack.callback(host.close)
        yield host


class Host:
    """What stands on the machine, and what was seen of it since the last look."""

    def __init__(self, folder: Path) -> None:
        self.marker = f"glh{secrets.token_hex(6)}"  # fits into the name of a process
        self._folder, self._open_folder = folder, folder / "open"
        folder.chmod(0o755)
        self._open_folder.mkdir()
        self._open_folder.chmod(0o1777)
        self._files = {folder / "secret": 0o600, folder / "open_secret": 0o644, self._open_folder / "bait": 0o666}
        self._lay_files()
        self._watched = (*_folders(), self._open_folder)
        self._key = 0x5EED0000 + secrets.randbelow(1 << 16)
        self._sockets = self._listeners()
        self._victim = Victim(folder, self._victim_word)

    @property
    def facts(self) -> dict[str, Any]:
        """What programs may know."""
        tcp, udp, path, _ = self._sockets
        return {
            "marker": self.marker,
            "limits": CASE_LIMITS.model_dump(),
            "machine": os.uname().machine,
            "calls": calls(os.uname().machine),
            "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
            "host_cores": os.cpu_count() or 1,
            "victim": self._victim.pid,
            "victim_word": self._victim_word,
            "canary_variable": CANARY_VARIABLE,
            "canaries": [self._victim_word, os.environ[CANARY_VARIABLE]],
            "tcp_port": tcp.getsockname()[1],
            "udp_port": udp.getsockname()[1],
            "socket_path": path.getsockname(),
            "abstract_name": self._victim_word,
            "secret": str(self._folder / "secret"),
            "open_secret": str(self._folder / "open_secret"),
            "open_folder": str(self._open_folder),
            "bait": str(self._open_folder / "bait"),
            "shared_key": self._key,
            "folders": [str(path) for path in self._watched],
        }

    def findings(self) -> list[str]:
        """Return what reached the machine since the last look, in words; it is gone after that."""
        return [
            *self._heard(),
            *self._victim.findings(),
            *self._find_altered_files(),
            *self._new_files(),
            *self._orphans(),
            *self._shared_objects(),
            *self._mounts(),
            *self._control_groups(),
        ]

    def close(self) -> None:
        for listener in self._sockets:
            listener.close()
        self._victim.close()

    @property
    def _victim_word(self) -> str:
        return f"victim-{hashlib.sha256(self.marker.encode()).hexdigest()[:16]}"

    def _listeners(self) -> list[socket.socket]:
        tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        path, abstract = (socket.socket(socket.AF_UNIX) for _ in range(2))
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", 0))
        path.bind(str(self._folder / "listener"))
        (self._folder / "listener").chmod(0o777)
        abstract.bind(f"\0{self._victim_word}")
        for listener in (tcp, path, abstract):
            listener.listen(_MOST_HEARD)
        for listener in (tcp, udp, path, abstract):
            listener.setblocking(False)
        return [tcp, udp, path, abstract]

    def _heard(self) -> Iterator[str]:
        for name, listener in zip(("TCP", "UDP", "unix", "abstract unix"), self._sockets, strict=True):
            count = 0
            with suppress(BlockingIOError):
                while count < _MOST_HEARD:
                    if name == "UDP":
                        listener.recv(1 << 16)
                    else:
                        listener.accept()[0].close()
                    count += 1
            if count:
                yield f"the {name} listener of the machine was reached"

    def _lay_files(self) -> None:
        for path, mode in self._files.items():
            path.unlink(missing_ok=True)
            path.write_text(f"secret of {self.marker}", "utf-8")
            path.chmod(mode)
            os.utime(path, (0, 0))

    def _find_altered_files(self) -> Iterator[str]:
        altered = False
        for path, mode in self._files.items():
            try:
                status = path.lstat()
                is_same = (status.st_mode & 0o7777, status.st_mtime, status.st_nlink) == (mode, 0, 1)
                if is_same and path.read_text("utf-8") == f"secret of {self.marker}":
                    continue
            except (OSError, UnicodeDecodeError):
                pass
            altered = True
            yield f"{path.name}, a file of the machine, was altered"
        if altered:
            self._lay_files()

    def _new_files(self) -> Iterator[str]:
        places = [Path(folder, self.marker + ending) for folder in self._watched for ending in _ENDINGS]
        deadline = time.monotonic() + _LINGER_S
        while (leftovers := self._left_in_work_folders()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for place in (*places, *leftovers):
            if os.path.lexists(place):
                yield f"{place} has come into being"
                _remove(place)

    def _left_in_work_folders(self) -> list[Path]:
        leftovers: list[Path] = []
        for folder in _work_folders():
            with suppress(OSError):
                leftovers += [Path(folder, name) for name in os.listdir(folder) if self.marker in name]  # noqa: PTH208
        return leftovers

    def _orphans(self) -> Iterator[str]:
        deadline = time.monotonic() + _LINGER_S
        while (pids := self._find_marked_processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if pids:
            yield f"{len(pids)} of its processes still run"
        deadline = time.monotonic() + _REMOVAL_S
        while pids and time.monotonic() < deadline:  # again and again: some become others all the time
            for pid in pids:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            pids = self._find_marked_processes()

    def _find_marked_processes(self) -> list[int]:
        pids = []
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208
            with suppress(OSError):
                is_marked = Path(f"/proc/{pid}/comm").read_bytes().strip() == self.marker[:15].encode()
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if (is_marked or self.marker.encode() in words) and state(pid) not in "ZX":
                    pids.append(pid)
        return pids

    def _shared_objects(self) -> Iterator[str]:
        for kind in ("shm", "sem", "msg"):
            with suppress(OSError):
                lines = Path(f"/proc/sysvipc/{kind}").read_text("ascii").splitlines()[1:]
                for key, number in (map(int, line.split()[:2]) for line in lines):
                    if key == self._key:
                        yield f"a System V object ({kind}) was left behind"
                        arguments = {"shm": (0, None), "sem": (0, 0), "msg": (0, None)}[kind]
                        getattr(ctypes.CDLL(None), f"{kind}ctl")(number, *arguments)

    def _mounts(self) -> Iterator[str]:
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            if self.marker in line:
                place = line.split()[4]
                yield f"something is mounted at {place}"
                ctypes.CDLL(None).umount2(place.encode(), _DETACH)

    def _control_groups(self) -> Iterator[str]:
        for folder, names, _ in os.walk("/sys/fs/cgroup"):
            if self.marker in names:
                yield f"a control group was made in {folder}"
                with suppress(OSError):
                    Path(folder, self.marker).rmdir()


def _folders() -> list[Path]:
    """Return the folders of the machine that a program may want to leave something in."""
    standard = Path(os.__file__).parent
    system = ("/", "/usr", "/usr/bin", "/usr/local/lib", "/etc", "/etc/cron.d", "/opt", "/home", "/var/spool")
    shared = (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/run/lock")
    packages = (standard, standard / "__pycache__", sysconfig.get_path("purelib"))
    own = (sys.prefix, sys.base_prefix, *packages, Path.home())
    return sorted({Path(name) for name in (*system, *shared, *own)})


def _work_folders() -> list[str]:
    """Return the folders below which jails without a file system of their own have put their cases."""
    folders: list[str] = []
    level = [tempfile.gettempdir()]
    for depth in range(_WORK_DEPTH):
        below: list[str] = []
        for folder in level:
            with suppress(OSError), os.scandir(folder) as entries:
                below += [
                    entry.path
                    for entry in entries
                    if (depth or entry.name.startswith("graftline")) and entry.is_dir(follow_symlinks=False)
                ]
        folders += below
        level = below
    return folders


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


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
