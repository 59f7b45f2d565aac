"""The first process of a case: it confines itself, lays the files, becomes the program or waits for it.

Where tests run apart from the code under test, it starts a second process for the code: an interpreter that knows
nothing of the tests, with a working folder of its own, and where there are namespaces a view of processes of its own.

Where a case starts with a snapshot, it copies that first. In the end it reads what comes back, once it has ended every
other process of the case.
"""

import fcntl
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from graftline.sandbox.inside import case_jail, case_program, files, kernel
from graftline.sandbox.inside.frames import receive, send, write
from graftline.sandbox.inside.remote_values import LINK

_OUT_OF_THE_WAY = 200  # of the descriptors that a program counts
_STDIN = ".stdin"
_MOST_DESCRIPTORS, _BY_SIGNAL = 1024, 128
_ENDS_WITHIN_S = 3.0  # what is about to end; a crash that is told later counts as none
_CAN_BE_IMPORTED = (".py", ".pyi", ".pyc", ".pyo", ".pyw", ".pth", ".so", ".zip", ".egg", ".whl")


class CaseIsolation:
    """What isolates every case of this server."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.folder: str = settings["folder"]
        """Where cases have theirs, unless it is in memory."""
        self.limits, self.programs = settings["limits"], settings["programs"]
        self.has_namespaces = settings["mode"] == "namespaces"
        self.has_snapshot = settings["snapshot"] is not None
        self._snapshot = -1
        self._calls = case_jail.foreign_code_filter()
        self._calls.compile("allow")

    def open_snapshot(self) -> None:
        """Open the snapshot while this process still sees it, and has the rights to: no case sees more than a copy."""
        if self.has_snapshot:
            self._snapshot = os.open(self._settings["snapshot"], files.FOLDER)

    def fork(self) -> int:
        """Fork the first process of a case, or one that sees no other process of the case."""
        if self.has_namespaces:
            return kernel.fork_into(kernel.NEW_MOUNTS | kernel.NEW_PIDS | kernel.NEW_IPC)
        return os.fork()

    def folder_of(self, number: int) -> str:
        """Return the folder of a case that has none in memory."""
        return "" if self.has_namespaces else f"{self.folder}/case-{number}"

    def folders_of(self, folder: str) -> dict[str, str]:
        """Return the folders that a case has in its own, the working folder first."""
        folders = {name: f"{folder}/{name}" for name in ("work", "tmp", "logs")}
        if self.has_namespaces:
            folders = {"work": case_jail.WORK, "tmp": case_jail.TEMPORARY, "logs": case_jail.LOGS}
        if not self.has_snapshot:
            del folders["logs"]
        return folders

    def make_folders(self, folder: str, folders: Mapping[str, str]) -> None:
        """Make the folders of a case."""
        if self.has_namespaces:
            case_jail.mount_folders(self._settings)
        else:
            for path in (folder, *folders.values()):
                os.mkdir(path, 0o700)  # noqa: PTH102
        if self.has_snapshot:
            for name in case_jail.LOG_FOLDERS:
                os.mkdir(f"{folders['logs']}/{name}", 0o755)  # noqa: PTH102

    def make_code_folder(self, folder: str) -> str:
        """Make the working folder of the code, and return it: where the case has its own, in the view of the code."""
        if self.has_namespaces:
            case_jail.mount_code_folders(self._settings)
            return case_jail.WORK
        path = f"{folder}/code"
        os.mkdir(path, 0o700)  # noqa: PTH102
        return path

    def copy_snapshot(self, work: str, parts: Sequence[str]) -> None:
        """Copy the snapshot to the working folder of a case."""
        if self.has_snapshot:
            files.copy_parts(self._snapshot, parts, work)

    def confine(self, folders: Sequence[str]) -> list[str]:
        """Limit and confine this process for good; return the names of what took hold."""
        case_jail.limit(self.limits)
        features = ["rlimits"]
        if self._settings["mode"] != "bare":
            features += case_jail.give_up(self._settings, folders, self._calls)
        return features


class InitProcess:
    """Lays the files, starts the program and waits for it."""

    def __init__(self, isolation: CaseIsolation, folder: str, request: int, writers: Sequence[int]) -> None:
        self._isolation, self._request = isolation, request
        self._stdout, self._stderr, self._report, self._status = writers
        self._folder, self._folders = folder, isolation.folders_of(folder)
        self._work, self._temporary = self._folders["work"], self._folders["tmp"]

    def run(self) -> NoReturn:
        """Do all of it, and end."""
        try:
            self._run()
        except BaseException as error:
            say(self._status, {"error": repr(error)})
        os._exit(0)

    def _run(self) -> None:
        kernel.end_with_parent()
        if self._isolation.has_snapshot and not self._isolation.has_namespaces:
            kernel.adopt_orphans()
        self._isolation.make_folders(self._folder, self._folders)
        go, says_go = os.pipe()
        (of_tests, to_tests), (of_code, to_code) = os.pipe(), os.pipe()
        program = os.fork()
        if program == 0:
            os.close(says_go)
            os.close(self._request)
            self._become_program(go, (of_code, to_tests))
        for descriptor in (go, to_tests, *(() if self._isolation.has_snapshot else (self._report,))):
            os.close(descriptor)
        head, body = receive(self._request), receive(self._request)
        if head is None or body is None:
            os._exit(0)
        request = json.loads(head)
        code = self._start_code(request, body, (of_tests, to_code)) if request["apart"] else None
        for descriptor in (of_tests, to_code, self._stdout, self._stderr):
            os.close(descriptor)
        self._isolation.copy_snapshot(self._work, request["parts"])
        self._lay(request, body)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(program, signal.SIGKILL))  # to say what it used till then
        with suppress(BrokenPipeError):
            send(says_go, head)
        ends = _wait_for(program)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        status = ends[program][0]
        if code is not None:
            # tests that fail for the code went away may be told of before its end is
            is_over = code in ends or (status != 0 and _is_closed(of_code) and _ends_soon(code))
            if not is_over:
                os.kill(code, signal.SIGKILL)
            ends |= _wait_for(code) if code not in ends else {}
            if is_over and (by := _signal_of(ends[code][0])):
                status = by  # tests fail without the code, and why is in how it ended
        usages = [usage for child, (_, usage) in ends.items() if child in (program, code)]
        cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        peak_kb, files_kb = max(usage.ru_maxrss for usage in usages), self._files_kb()
        say(self._status, {"status": status, "cpu_s": cpu_s, "peak_kb": peak_kb, "files_kb": files_kb})
        if request["returned"] is not None:
            self._end_all_others()
            files.give_back(self._folders, request["returned"], self._report)

    def _files_kb(self) -> int:
        """Return what the files of the case take, where its folders are in memory."""
        states = [os.statvfs(folder) for folder in self._folders.values()] if self._isolation.has_namespaces else []
        return sum((state.f_blocks - state.f_bfree) * state.f_frsize for state in states) >> 10

    def _end_all_others(self) -> None:
        if not self._isolation.has_namespaces:
            end_children()
            return
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all that this process sees, and no process is forked meanwhile
        with suppress(ChildProcessError):
            while True:
                os.wait()

    def _lay(self, request: Mapping[str, Any], body: bytes) -> None:
        """Write the files of a case, those that are trusted last, and what it finds on its standard input."""
        size = 0
        for kind, name, content in _files_of(request, body):
            size += len(content)
            # tests may read the files of code that has a process of its own, and can import none of them
            if request["apart"] and kind == "files" and name.lower().endswith(_CAN_BE_IMPORTED):
                continue
            with files.open_folder(self._temporary if kind == "temporary" else self._work) as top:
                files.put(name, top, content, 0o444 if kind == "trusted" else 0o644)
        if self._isolation.has_namespaces:
            case_jail.protect_files([f"{self._work}/{name}" for name, _ in request["trusted"]], self._work)
        with files.open_folder(self._temporary) as top:
            files.put(_STDIN, top, body[size:], 0o600)

    def _start_code(self, request: Mapping[str, Any], body: bytes, link: tuple[int, int]) -> int:
        """Start the process of the code under test, on the files of the case but for the tests; return its id."""
        if child := self._isolation.fork():
            return child
        try:
            kernel.end_with_parent()
            _offer_to_the_memory_killer()
            work = self._isolation.make_code_folder(self._folder)
            with files.open_folder(work) as top:
                for kind, name, content in _files_of(request, body):
                    if kind == "files" or (kind == "trusted" and not name.endswith(".py")):
                        files.put(name, top, content, 0o644)
            if self._isolation.has_namespaces and (program := os.fork()):
                _await_as_first(program)  # the first process of a namespace ignores most signals
            kernel.end_with_parent()
            os.chdir(work)
            os.setsid()
            nothing = os.open("/dev/null", os.O_RDONLY)
            ordered = (nothing, self._stdout, self._stderr, *link)
            apart = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for descriptor in ordered]
            for target, descriptor in enumerate(apart):
                os.dup2(descriptor, target)
            os.closerange(LINK[-1] + 1, _OUT_OF_THE_WAY)
            self._isolation.confine([work, self._temporary])
            case_jail.limit_memory(self._isolation.limits, is_interpreter=True)
            environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
            environment |= {"HOME": self._temporary, "TMPDIR": self._temporary}
            code = f"import sys; sys.path[:] = {sys.path!r}; from graftline.sandbox.inside.code_process import main; main()"
            # an interpreter of its own, for a fork would have the tests and the report in its memory
            os.execve(os.path.realpath(sys.executable), [sys.executable, "-s", "-P", "-c", code], environment)
        except BaseException as error:
            os.write(2, f"the process of the code under test does not start: {error!r}\n".encode())
        os._exit(1)

    def _become_program(self, go: int, link: tuple[int, int]) -> NoReturn:
        """Turn this process into the program, once it is known which."""
        report, trouble, go, *link_here = (
            fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
            for descriptor in (self._report, self._status, go, *link)
        )
        try:
            kernel.end_with_parent()
            _offer_to_the_memory_killer()
            os.chdir(self._work)
            os.setsid()
            os.dup2(self._stdout, 1)
            os.dup2(self._stderr, 2)
            os.closerange(3, _OUT_OF_THE_WAY)
            os.environ.update(HOME=self._temporary, TMPDIR=self._temporary)
            if self._isolation.has_snapshot:
                os.environ["LOGS_DIR"] = self._folders["logs"]
            programs = self._open_programs()
            self._isolation.confine([*self._folders.values()])
            request = json.loads(receive(go) or b"null")
            if request is None:
                os._exit(0)
            os.environ.update(request["environment"])
            if not self._isolation.has_namespaces or not os.path.islink("/tmp"):  # noqa: PTH114
                request["arguments"] = [self._translate(argument, request) for argument in request["arguments"]]
            stdin = os.open(f"{self._temporary}/{_STDIN}", os.O_RDONLY)
            os.unlink(f"{self._temporary}/{_STDIN}")  # noqa: PTH108
            os.dup2(stdin, 0)
            os.close(stdin)
            os.close(go)
            # a program of a snapshot starts others
            is_interpreter = request["program"] not in ("node", "java") and not self._isolation.has_snapshot
            case_jail.limit_memory(self._isolation.limits, is_interpreter)
        except BaseException as error:
            say(trouble, {"error": repr(error)})
            os._exit(1)
        if request["program"] in case_program.OURS:
            for descriptor in (trouble, *programs.values()):
                os.close(descriptor)
            link = (link_here[0], link_here[1])
            case_program.run(request, self._work, report, link, is_container=self._isolation.has_snapshot)
        try:
            path = self._isolation.programs[request["program"]]
            name = os.path.basename(path) if request["program"] == "shell" else request["program"]  # noqa: PTH119
            words = [name, *request["arguments"]]
            try:
                os.execv(path, words)
            except PermissionError:
                if request["program"] not in programs:
                    raise
                os.execve(programs[request["program"]], words, os.environ)
        except Exception as error:  # a zero byte in an argument is a ValueError
            say(trouble, {"error": f"{path}: {error}"})
        os._exit(1)

    def _open_programs(self) -> dict[str, int]:
        """Open what is started by its path, while root may still pass through private folders of others."""
        descriptors = {}
        for name in self._isolation.programs.keys() - {*case_program.OURS}:
            with suppress(OSError):
                descriptors[name] = os.open(self._isolation.programs[name], os.O_PATH)
        return descriptors

    def _translate(self, argument: str, request: Mapping[str, Any]) -> str:
        """Return `argument` with the places that files have for this case, where others have `/tmp` and `/logs`."""
        places = [(f"/tmp/{name}", f"{self._temporary}/{name}") for name, _ in request["temporary"]]
        for path in request["returned"]["paths"] if request["returned"] else ():
            top, _, below = path.partition("/")
            if top in ("tmp", "logs"):
                places.append((f"/{path}", f"{self._folders[top]}/{below}"))
        if self._isolation.has_snapshot:
            places.append(("/logs", self._folders["logs"]))
        for usual, place in places:
            option, equals, name = argument.rpartition("=")
            if name == usual or name.startswith(f"{usual}/"):
                return f"{option}{equals}{place}{name[len(usual) :]}"
        return argument


def _files_of(request: Mapping[str, Any], body: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield kind, name and content of every file of a case, in the order in which `body` holds them."""
    position = 0
    for kind in ("files", "trusted", "temporary"):
        for name, size in request[kind]:
            yield kind, name, body[position : position + size]
            position += size


def _offer_to_the_memory_killer() -> None:
    """Have the kernel end this process, or one that it starts, first where there is no memory left."""
    # by itself, for a process whose user has changed is hidden from others; and it may not write this unless dumpable
    with suppress(OSError):
        try:
            _write_oom_score()
        except PermissionError:
            kernel.set_dumpable(True)
            try:
                _write_oom_score()
            finally:
                kernel.set_dumpable(False)


def _write_oom_score() -> None:
    with open("/proc/self/oom_score_adj", "wb") as stream:  # noqa: PTH123
        stream.write(b"1000")


def _await_as_first(process: int) -> NoReturn:
    """Wait for `process` as the first of its namespace, and end as it did: by the code of a shell, where by a signal."""
    kernel.set_dumpable(False)
    os.closerange(0, _MOST_DESCRIPTORS)
    child = 0
    while child != process:
        child, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else _BY_SIGNAL - code)


def _signal_of(status: int) -> int:
    """Return which signal ended the code, by the status of its first process; 0 where it was none."""
    code = os.waitstatus_to_exitcode(status)
    return -code if code < 0 else max(0, code - _BY_SIGNAL)


def _is_closed(reader: int) -> bool:
    """Return whether nobody writes to a pipe any more."""
    poll = select.poll()
    poll.register(reader, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _ends_soon(child: int) -> bool:
    """Wait for a child that is about to end; False if it does not, as one that closed what it holds to look so."""
    try:
        descriptor = os.pidfd_open(child)
    except OSError:  # of a kernel that has none
        return False
    try:
        return bool(select.select([descriptor], [], [], _ENDS_WITHIN_S)[0])
    finally:
        os.close(descriptor)


def _wait_for(process: int) -> dict[int, tuple[int, resource.struct_rusage]]:
    """Return how `process`, and every child that came to its end before, ended and what it used."""
    ends = {}
    while process not in ends:
        child, status, usage = os.wait4(-1, 0)
        ends[child] = (status, usage)
    return ends


def end_children(spared: Collection[int | None] = ()) -> None:
    """End all children of this process, and all that come to it meanwhile, but for those that are spared."""
    # orphans come to this process one generation after the other
    while orphans := _children().difference(spared):
        for orphan in orphans:
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)


def _children() -> set[int]:
    children = set()
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123
            if int(stream.read().rpartition(b")")[2].split()[1]) == os.getpid():
                children.add(int(name))
    return children


def say(descriptor: int, message: Mapping[str, Any]) -> None:
    """Write one line of JSON, if anybody reads it still."""
    with suppress(OSError):
        write(descriptor, json.dumps(message).encode() + b"\n")
