"""Jails whose cases are forked by a process that is started once (`inside.case_server`).

`namespaces`: users, processes, mounts, network, names and memory objects of its own; a root folder with interpreters
and libraries only, read-only; per case a working and a temporary folder in memory, of limited size and number of files,
from which nothing can be run; no capabilities, no new privileges; path rules (Landlock), no signals to others; a list
of refused system calls, sockets of every family among them; limits on processor time, memory, processes, descriptors,
file size and output; the kernel ends every process of a case with its first one. Where a control group can be had,
limits on the memory and processor time of all processes together. Under root, a user of its own outside as well.

`confined`: the same without namespaces, for containers that allow none: the file system of the machine behind path
rules. Not covered then: a view of processes of its own, limits of disk space and of files.

`subprocess`: limits, and nothing else. Whoever asks for it runs foreign code as themselves.

A jail may have a snapshot, a copy of which every case starts with. Cases of it see nothing of the snapshot itself, and what
they leave may come back, read when nothing of them runs any more.

What stands between a case and the machine is the kernel itself: weaker than a virtual machine.
"""

import json
import os
import secrets
import signal
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.base import Isolation, Usage, Verdict, level_of
from graftline.sandbox.file_names import folders_of, path_of
from graftline.sandbox.inner_process import InnerProcess
from graftline.sandbox.inside import case_server
from graftline.sandbox.inside.case_jail import CONTAINER_LINKS, TEMPORARY
from graftline.sandbox.inside.case_program import NO_MEMORY, REPORTING
from graftline.sandbox.inside.files import remove_path, unpack
from graftline.sandbox.jail import (
    Case,
    CaseEnd,
    CaseLimits,
    Program,
    Returned,
    Snapshot,
    fault_of_arguments,
    fault_of_environment,
    fault_of_returned,
)
from graftline.sandbox.jail.cgroups import ControlGroup
from graftline.sandbox.jail.heartbeat import Heartbeat
from graftline.sandbox.jail.visible import Interpreter, Visible, interpreter, visible
from graftline.sandbox.jail.wrappers import Wrapper

Mode = Literal["namespaces", "confined", "bare"]

_START_S, _MARGIN_S = 60.0, 30.0
_FIRST_USER, _USERS = 61_000, 4_000
_OVERHEAD_PROCESSES = 8  # those of the server, the first one of a case, and the case that waits count, too
_REPORT_BYTES = 32 << 20
_HEAD_BYTES = 1 << 20
_ENTRY_BYTES = 16 << 10  # of JSON, about one file that comes back
_PAGE_BYTES = 4096
_SPARE_FILES = 8
_FOLDER_PREFIX = "graftline-cases-"
# it waits until it is in its control group: what it starts before that would stay outside
_GATE = ("/bin/sh", "-c", 'read -r _ && exec "$@"', "sh")


class ServedJail:
    """One server, started on first use and again after it was lost; behind a wrapper, one for every case."""

    def __init__(
        self,
        name: str,
        mode: Mode,
        limits: CaseLimits,
        programs: Sequence[Program],
        wrapper: Wrapper | None = None,
        snapshot: Snapshot | None = None,
        runs_own: bool = False,
        has_own_user: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is started yet; `clock` is that of the heartbeat.

        `has_own_user` says whether, under root, it runs as a user of its own.
        """
        self._clock = clock
        self._name, self._limits, self._wrapper = name, limits, wrapper
        self.mode = mode
        self._snapshot, self._runs_own = snapshot, runs_own
        self._programs = tuple(programs)
        # of its own outside as well, so that nothing else on the machine is within its rights
        is_other_user = has_own_user and mode != "bare" and os.getuid() == 0
        self._user = _FIRST_USER + secrets.randbelow(_USERS) if is_other_user else None
        self._visible: tuple[Interpreter, Visible] | None = None
        self._group: ControlGroup | None = None
        self._server: InnerProcess | None = None
        self._folder: CaseFolder | None = None
        self._isolation: Isolation | None = None
        self._tools: dict[str, str] = {}

    @property
    def isolation(self) -> Isolation:
        return self._isolation or self._start()

    def run(self, case: Case, glance: Callable[[], None] | None = None) -> CaseEnd:
        head, body = self._request(case)
        if self._server is None or not self._server.is_running:
            self._start()
        assert self._server is not None
        kills = self._group.kills if self._group else 0
        heartbeat = Heartbeat(self._clock, lambda: self._group.used_s if self._group else 0.0)
        deadline = time.monotonic() + self._limits.wall_s + _MARGIN_S  # the server keeps the limit itself
        try:
            self._server.send(json.dumps(head).encode(), deadline)
            self._server.send(body, deadline)
            while not heartbeat.wait(self._server.is_ready) and time.monotonic() < deadline:
                if glance:
                    glance()
            answer = json.loads(self._server.receive(_HEAD_BYTES, deadline))
            if answer["end"] == Verdict.WALL_TIMEOUT:
                answer["fault"] = heartbeat.fault_of_machine(answer)
            stdout, stderr = (self._server.receive(self._limits.output_kb << 10, deadline) for _ in range(2))
            report = self._server.receive(_max_report_bytes(case), deadline)
        except (OSError, ValueError, EOFError) as error:
            is_short_of_memory = bool(self._group and self._group.kills > kills)
            self.close()
            if is_short_of_memory:
                return self._end(Verdict.OUT_OF_MEMORY, {}, b"", b"", b"")
            raise SandboxError(f"{self._name} jail: its server died ({error!r}); see `graftline doctor`") from error
        except BaseException:
            self.close()  # an interrupted answer would be taken for that of the next call
            raise
        is_short_of_memory = bool(self._group and self._group.kills > kills)
        if answer["end"] == "not_started" and not is_short_of_memory:
            self.close()
            raise SandboxError(f"{self._name} jail: a case was not started ({answer['error']}); see `graftline doctor`")
        if self._wrapper is not None:
            self.close()
        verdict = self._verdict(answer, is_short_of_memory)
        if case.returned is None:
            return self._end(verdict, answer, stdout, stderr, report)
        try:
            files, left_out = unpack(report)
        except ValueError:
            if verdict is Verdict.OK:
                self.close()
                raise SandboxError(
                    f"{self._name} jail: what a case left could not be read; see `graftline doctor`"
                ) from None
            files, left_out = {}, dict.fromkeys(case.returned.paths, "could not be read after such an end")
        return replace(self._end(verdict, answer, stdout, stderr, b""), files=files, left_out=left_out)

    def close(self) -> None:
        end_all(self._server, self._group, self._folder)
        self._server = self._group = self._folder = None
        for folder in self._wrapper.leaves if self._wrapper else ():
            with suppress(OSError):
                os.rmdir(folder.format(user=self._user if self._user is not None else os.getuid()))  # noqa: PTH106

    def _verdict(self, answer: Mapping[str, Any], is_short_of_memory: bool) -> Verdict:
        code = os.waitstatus_to_exitcode(answer["status"]) if answer["status"] is not None else None
        if answer["end"] == Verdict.WALL_TIMEOUT:
            return Verdict.WALL_TIMEOUT if answer["fault"] else Verdict.TIMED_OUT
        if answer["end"] in (Verdict.OUTPUT_FLOOD, Verdict.VIOLATION):
            return Verdict(answer["end"])
        if is_short_of_memory or code == NO_MEMORY:
            return Verdict.OUT_OF_MEMORY
        if code == -signal.SIGXCPU or (code == -signal.SIGKILL and answer["cpu_s"] >= self._limits.cpu_s):
            return Verdict.CPU_TIMEOUT
        if code == -signal.SIGSYS:
            return Verdict.VIOLATION
        return Verdict.CRASH if code is None or code < 0 else Verdict.OK

    def _end(self, verdict: Verdict, answer: Mapping[str, Any], stdout: bytes, stderr: bytes, report: bytes) -> CaseEnd:
        # how a program ended that was ended from here says nothing of it
        status = answer.get("status") if answer.get("end") == "exit" else None
        code = None if status is None else os.waitstatus_to_exitcode(status)
        error = ""
        if verdict is Verdict.WALL_TIMEOUT:
            error = f"wall_s is over, and the machine was not free: {answer['fault']}"
        elif verdict is Verdict.TIMED_OUT:
            error = f"it did not end within {self._limits.wall_s:g} s (wall_s), though the machine was free"
        elif answer.get("end") == Verdict.VIOLATION:
            error = "it locked more parts of files than any program needs"
        return CaseEnd(
            verdict,
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            stdout=stdout,
            stderr=stderr,
            is_truncated=answer.get("printed", 0) > len(stdout) + len(stderr),
            report=report,
            usage=Usage(
                round(answer.get("cpu_s", 0.0), 4),
                round(answer.get("wall_s", 0.0), 4),
                answer.get("peak_kb", 0) / 1024,
                answer.get("files_kb", 0) / 1024,
            ),
            isolation=self.isolation,
            tools=self._tools,
            error=error,
        )

    def _request(self, case: Case) -> tuple[dict[str, Any], bytes]:
        """Return what the server is sent; DataError if the case asks for what is not to be had, or is too large."""
        _, view = self._see()
        if case.program not in view.programs:
            listed = ", ".join(sorted(view.programs))
            why = "is not installed" if case.program in self._programs else "is not among the programs of this jail"
            raise DataError(f"program {case.program!r}: {why}; there are {listed}")
        if fault := fault_of_arguments(case.arguments) or fault_of_environment(case.environment):
            raise DataError(fault)
        if case.returned is not None:
            self._check_returned(case, case.returned)
        for part in case.parts:
            path_of(part)
        if case.parts and self._snapshot is None:
            raise DataError(f"part {case.parts[0]!r}: this jail has no snapshot that it could be of")
        _check_files({**case.files, **case.trusted}, len(case.stdin), self._limits)
        _check_files(case.temporary, len(case.stdin), self._limits)
        files = {"files": case.files, "trusted": case.trusted, "temporary": case.temporary}
        head = {
            "program": case.program,
            "arguments": case.arguments,
            "nonce": case.nonce,
            **{kind: [[name, len(data)] for name, data in contents.items()] for kind, contents in files.items()},
            "environment": dict(case.environment),
            "parts": case.parts,
            "apart": asdict(case.apart) if case.apart else None,
            "returned": asdict(case.returned) if case.returned else None,
        }
        return head, b"".join((*(data for contents in files.values() for data in contents.values()), case.stdin))

    def _check_returned(self, case: Case, returned: Returned) -> None:
        if self._snapshot is None:
            raise DataError("files come back of a jail that has a snapshot only; this one has none")
        if case.program in REPORTING:
            raise DataError(f"program {case.program!r}: reports by itself, and no file of it comes back")
        if fault := fault_of_returned(returned.paths):
            raise DataError(fault)

    def _see(self) -> tuple[Interpreter, Visible]:
        if self._visible is None:
            python = interpreter(is_other_user=self._user is not None and self.mode == "confined")
            self._visible = python, visible(self._programs, python)
        return self._visible

    def _start(self) -> Isolation:
        self.close()
        python, view = self._see()
        settings = self._settings(view)
        command = python.command("graftline.sandbox.inside.case_server")
        environment = {
            **view.environment,
            "LANG": "C.UTF-8",
            "OPENSSL_CONF": "/dev/null",  # node reads it
            "PATH": os.pathsep.join((os.path.dirname(python.path), *view.search)),  # noqa: PTH120
            "PYTHONHASHSEED": "0",
            "TZ": "UTC",
        }
        user = None
        if self._wrapper:
            path = self._wrapper.path
            if path is None:
                raise SandboxError(f"{self._name} jail: {self._wrapper.program} is missing; {self._wrapper.package}")
            command = [*_GATE, *self._wrapper.command(path, view, self._limits, environment), *command]
            user = None if self._wrapper.is_started_as_root else self._user
        self._group = ControlGroup(
            secrets.token_hex(4), self._limits.memory_mb, settings["limits"]["processes"], self._limits.cores
        )
        deadline = time.monotonic() + _START_S
        try:
            self._server = InnerProcess(command, environment, user=user)
            self._group.add(self._server.pid)
            if self._wrapper:
                self._server.write(b"\n", deadline)
            self._server.send(json.dumps(settings).encode(), deadline)
            hello = json.loads(self._server.receive(_HEAD_BYTES, deadline))
        except (OSError, ValueError, EOFError) as error:
            self.close()
            raise SandboxError(f"{self._name} jail: its server does not start ({error!r})") from error
        if "error" in hello:
            self.close()
            raise SandboxError(f"{self._name} jail: its server cannot confine itself ({hello['error']})")
        features = [*hello["features"], *self._group.features]
        if all(hello["namespaces"].get(name) != own for name, own in case_server.namespaces().items()):
            features.append("namespaces")
        elif self._wrapper:
            self.close()
            raise SandboxError(f"{self._name} jail: {self._wrapper.program} runs, and makes no namespaces here")
        if self._user is not None:
            features.append("own_user")
        self._tools = hello["tools"]
        self._isolation = Isolation(level_of(features), self._name, tuple(features))
        return self._isolation

    def _check_snapshot(self) -> None:
        if self._snapshot is None:
            return
        folder = self._snapshot.folder
        if not folder.is_dir():
            raise SandboxError(f"snapshot {folder}: is no folder; make the snapshot again")
        if self._user is not None and not folder.stat().st_mode & stat.S_IXOTH:
            raise SandboxError(
                f"snapshot {folder}: cannot be read by everybody; give it mode 755, and all that is in it"
            )

    def _settings(self, view: Visible) -> dict[str, Any]:
        """Return the settings of the server, with a folder for it if it has none in memory."""
        self._check_snapshot()
        folder = self._wrapper.folder if self._wrapper else ""
        if self.mode != "namespaces" and not self._wrapper:
            self._folder = CaseFolder(self._user)
            folder = self._folder.path
        is_other_user_already = self._wrapper is not None and not self._wrapper.is_started_as_root
        return {
            "mode": self.mode,
            "limits": {
                **self._limits.model_dump(),
                "processes": self._limits.processes + _OVERHEAD_PROCESSES,
                # so that not all of those that may use one core use the same
                "first_core": secrets.randbelow(1024) if self._snapshot else 0,
            },
            "user": None if is_other_user_already else self._user,
            "programs": view.programs,
            "visible": view.paths,
            "links": {**view.links, **(CONTAINER_LINKS if self._snapshot else {})},
            "snapshot": None if self._snapshot is None else os.fspath(self._snapshot.folder),
            "runs_own": self._runs_own,
            "runnable": view.runnable,
            "folder": folder,
            "warm_folder": "" if self._wrapper else f"{folder or TEMPORARY}/warm",
        }


def _max_report_bytes(case: Case) -> int:
    returned = case.returned
    return _REPORT_BYTES if returned is None else returned.size_bytes + _HEAD_BYTES + 2 * returned.files * _ENTRY_BYTES


def _check_files(files: Mapping[str, bytes], stdin_bytes: int, limits: CaseLimits) -> None:
    """Raise DataError for what cannot be laid: names that are refused, or more than fits."""
    folders = folders_of(map(path_of, files))
    count = len(files) + len(folders) + _SPARE_FILES
    pages = sum(-(-len(data) // _PAGE_BYTES) + 1 for data in files.values()) + stdin_bytes // _PAGE_BYTES + _SPARE_FILES
    if count > limits.files or pages * _PAGE_BYTES > limits.disk_mb << 20:
        raise DataError(
            f"files of a case: {len(files)} in {len(folders)} folders, {pages * _PAGE_BYTES >> 10} KB; {limits.files}"
            f" files and folders and {limits.disk_mb} MB are all there is room for, {_SPARE_FILES} of them are taken"
        )


class CaseFolder:
    """A folder below the temporary one, of a user of its own, for cases that have none in memory.

    It is removed with its jail, or by the next one that sees the same processes.
    """

    def __init__(self, user: int | None) -> None:
        for folder, maker in case_folders().items():
            if not Path(f"/proc/{maker}").exists():
                with suppress(OSError):
                    remove_path(folder)
        self.path = tempfile.mkdtemp(prefix=f"{_folder_prefix()}{os.getpid()}-")
        if user is not None:
            os.chown(self.path, user, user)
        # not by a forked child that ends: it has the same objects, and they are not its own
        self._removal = weakref.finalize(self, _remove_unless_forked, self.path, os.getpid())

    def remove(self) -> None:
        """Remove it. A second call does nothing."""
        self._removal()


def end_all(server: InnerProcess | None, group: ControlGroup | None, folder: CaseFolder | None) -> None:
    """End a server with all that runs in its group, and remove the folder that they had."""
    if server is not None:
        server.stop()
    if group is not None:
        group.remove()
    if folder is not None:
        folder.remove()


def _remove_unless_forked(path: str, process: int) -> None:
    if os.getpid() == process:
        with suppress(OSError):
            remove_path(path)


def case_folders() -> dict[str, int]:
    """Return the paths of all folders of jails whose makers this process can see, and the id of the maker of each."""
    makers, prefix = {}, _folder_prefix()
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            maker = entry.name.removeprefix(prefix).partition("-")[0]
            if entry.name.startswith(prefix) and maker.isdigit():
                makers[entry.path] = int(maker)
    return makers


def _folder_prefix() -> str:
    # containers may share a temporary folder, and a process of another one has another id here, or none
    return f"{_FOLDER_PREFIX}{Path('/proc/self/ns/pid').stat().st_ino}-"
