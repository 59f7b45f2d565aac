"""The first process of a case: it stands behind the walls, lays the files, becomes the program or waits for it."""

import fcntl
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from graftline.confined import case_jail, case_program, kernel
from graftline.confined.frames import receive, send, write

_OUT_OF_THE_WAY = 200  # of the descriptors that a program counts
_STDIN = ".stdin"


class Walls:
    """What stands around every case of this server."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.folder: str = settings["folder"]
        """Where cases have theirs, unless it is in memory."""
        self.limits, self.programs = settings["limits"], settings["programs"]
        self.has_namespaces = settings["mode"] == "namespaces"
        self._calls = case_jail.foreign_code_filter()

    def fork(self) -> int:
        """Fork the first process of a case."""
        if self.has_namespaces:
            return kernel.fork_into(kernel.NEW_MOUNTS | kernel.NEW_PIDS | kernel.NEW_IPC)
        return os.fork()

    def folder_of(self, number: int) -> str:
        """Return the folder of a case, where it has none in memory."""
        return "" if self.has_namespaces else f"{self.folder}/case-{number}"

    def confine(self, folders: Sequence[str]) -> list[str]:
        """Put limits and walls on this process for good; return the names of what took hold."""
        case_jail.limit(self.limits)
        features = ["rlimits"]
        if self._settings["mode"] != "bare":
            features += case_jail.give_up(self._settings, folders, self._calls)
        return features


class First:
    """Lays the files, starts the program and waits for it."""

    def __init__(self, walls: Walls, folder: str, request: int, writers: Sequence[int]) -> None:
        self._walls, self._request = walls, request
        self._stdout, self._stderr, self._report, self._status = writers
        self._folder = folder
        self._work, self._temporary = (
            (case_jail.WORK, case_jail.TEMPORARY) if walls.has_namespaces else (f"{folder}/work", f"{folder}/tmp")
        )

    def run(self) -> NoReturn:
        """Do all of it, and end."""
        try:
            kernel.end_with_parent()
            if self._walls.has_namespaces:
                case_jail.mount_folders(self._walls.limits)
            else:
                for folder in (self._folder, self._work, self._temporary):
                    os.mkdir(folder, 0o700)  # noqa: PTH102
            go, says_go = os.pipe()
            program = os.fork()
            if program == 0:
                os.close(says_go)
                os.close(self._request)
                self._become(go)
            for descriptor in (go, self._stdout, self._stderr, self._report):
                os.close(descriptor)
            head, body = receive(self._request), receive(self._request)
            if head is None or body is None:
                os._exit(0)
            _lay(json.loads(head), body, self._work, self._temporary, is_protected=self._walls.has_namespaces)
            _offer_to_the_memory_killer(program)
            signal.signal(signal.SIGTERM, lambda *_: os.kill(program, signal.SIGKILL))  # to say what it used till then
            with suppress(BrokenPipeError):
                send(says_go, head)
            child = 0
            while child != program:
                child, status, used = os.wait4(-1, 0)
            cpu_s = used.ru_utime + used.ru_stime
            say(self._status, {"status": status, "cpu_s": cpu_s, "peak_kb": used.ru_maxrss})
        except BaseException as error:
            say(self._status, {"error": repr(error)})
        os._exit(0)

    def _become(self, go: int) -> NoReturn:
        """Turn this process into the program, once it is known which."""
        report, trouble, go = (
            fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
            for descriptor in (self._report, self._status, go)
        )
        try:
            kernel.end_with_parent()
            os.chdir(self._work)
            os.setsid()
            os.dup2(self._stdout, 1)
            os.dup2(self._stderr, 2)
            os.closerange(3, _OUT_OF_THE_WAY)
            os.environ.update(HOME=self._temporary, TMPDIR=self._temporary)
            self._walls.confine([self._work, self._temporary])
            request = json.loads(receive(go) or b"null")
            if request is None:
                os._exit(0)
            stdin = os.open(f"{self._temporary}/{_STDIN}", os.O_RDONLY)
            os.unlink(f"{self._temporary}/{_STDIN}")  # noqa: PTH108
            os.dup2(stdin, 0)
            os.close(stdin)
            os.close(go)
            case_jail.limit_memory(self._walls.limits, is_interpreter=request["program"] not in ("node", "java"))
        except BaseException as error:
            say(trouble, {"error": repr(error)})
            os._exit(1)
        if request["program"] in case_program.OURS:
            os.close(trouble)
            case_program.run(request, self._work, report)
        try:
            os.execv(self._walls.programs[request["program"]], [request["program"], *request["arguments"]])
        except Exception as error:  # a zero byte in an argument is a ValueError
            say(trouble, {"error": f"{request['program']}: {error}"})
        os._exit(1)


def _offer_to_the_memory_killer(process: int) -> None:
    """Have the kernel end this process first where there is no memory left."""
    with suppress(OSError), open(f"/proc/{process}/oom_score_adj", "wb") as stream:  # noqa: PTH123
        stream.write(b"1000")


def _lay(request: Mapping[str, Any], body: bytes, work: str, temporary: str, is_protected: bool) -> None:
    """Write the files of a case, those that are trusted last, and what it finds on its standard input."""
    position = 0
    trusted = []
    for name, size, is_trusted in (
        *((name, size, False) for name, size in request["files"]),
        *((name, size, True) for name, size in request["trusted"]),
    ):
        path = f"{work}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o444 if is_trusted else 0o644)
        write(descriptor, body[position : position + size])
        os.close(descriptor)
        position += size
        if is_trusted:
            trusted.append(path)
    if is_protected:
        for path in trusted:
            case_jail.protect_file(path, work)
    descriptor = os.open(f"{temporary}/{_STDIN}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    write(descriptor, body[position:])
    os.close(descriptor)


def say(descriptor: int, what: Mapping[str, Any]) -> None:
    """Write one line of JSON, if anybody reads it still."""
    with suppress(OSError):
        write(descriptor, json.dumps(what).encode() + b"\n")
