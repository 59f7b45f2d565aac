"""The inner side of a jail: a process that confines itself and runs cases of foreign code, each in a fork of its own.

It has loaded what tests need before any case comes, so that a case costs a fork and not a start. It speaks frames over
its standard input and output:

    in   settings as JSON, once (see `main`)
    out  {"features": [...], "namespaces": {name: id}, "tools": {name: version}}, or {"error": "..."} and the end
    in   {"program", "arguments", "nonce", "files": [[path, size], …], "trusted": [[path, size], …], "stdin": size}
         with "temporary" of the same form, "environment", "parts" and "returned", and then, in one frame, the bytes of all files
    out  {"end", "status", "cpu_s", "wall_s", "peak_kb", "files_kb", "printed", "error"} and three frames: output, errors, report

`end` is "exit", "wall_timeout", "output_flood", "violation" or "not_started"; `status` is what `waitpid` returns.
"""

import gc
import json
import os
import random
import select
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from graftline.sandbox.inside import case_jail, case_program, kernel
from graftline.sandbox.inside.files import remove_path
from graftline.sandbox.inside.frames import receive, send
from graftline.sandbox.inside.init_process import CaseIsolation, InitProcess, end_children, say

_REQUESTS = 0
_FLOOD = 16  # times what is kept
_REPORT_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16
_ANSWER_S, _RETURN_S = 1.0, 20.0
_LEAST_S, _MOST_S = 0.05, 0.15
_MOST_LOCKS, _LOCKS_BYTES = 4096, 1 << 19  # more than programs take, and a line of `/proc/locks` for each
_PARENT, _STATE, _USED, _THREADS = 1, 0, slice(11, 15), 17  # fields of `/proc/<pid>/stat` after the name


def main() -> None:
    """Confine this process as the settings say, then serve cases until the other side closes."""
    settings = json.loads(receive(_REQUESTS) or b"{}")
    try:
        case_program.load(settings["programs"], is_container=settings["snapshot"] is not None)
        isolation = CaseIsolation(settings)
        isolation.open_snapshot()
        _confine(settings)
        case_program.warm_up(settings["programs"], settings["warm_folder"])
        features = _try_isolation(isolation, settings)
    except Exception as error:
        send(1, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    gc.collect()
    gc.freeze()
    hello = {"features": features, "namespaces": namespaces(), "tools": case_program.tools(settings["programs"])}
    send(1, json.dumps(hello).encode())
    spare: _Case | None = _Case(isolation, 1)
    number = 1
    while (head := receive(_REQUESTS)) is not None and (body := receive(_REQUESTS)) is not None:
        if spare is None or not spare.is_alive:
            number += 1
            spare = _Case(isolation, number)
        case, spare = spare, None
        case.start(head, body)
        number += 1
        with suppress(OSError):  # the case may have taken all the processes there are
            spare = _Case(isolation, number)
        case.watch(spare.pid if spare else None)
        send(1, json.dumps(case.end).encode())
        for stream in case.streams:
            send(1, stream)
        case.wait(spare.pid if spare else None)
    _leave(isolation)


def _confine(settings: Mapping[str, Any]) -> None:
    if settings["mode"] == "namespaces":
        case_jail.enter_namespaces(settings)
        return
    kernel.adopt_orphans()
    if settings["user"] is not None:
        os.setgroups([])
        os.setresgid(settings["user"], settings["user"], settings["user"])
        os.setresuid(settings["user"], settings["user"], settings["user"])


def _try_isolation(isolation: CaseIsolation, settings: Mapping[str, Any]) -> list[str]:
    """Return what a case will be confined by, found by confining a child in the same way."""
    reader, writer = os.pipe()
    child = isolation.fork()
    if child == 0:
        try:
            folder = isolation.folder
            if isolation.has_namespaces:
                case_jail.mount_folders(settings)
                folder = case_jail.WORK
            features = [*case_jail.folder_features(folder, isolation.limits), *isolation.confine([folder])]
            say(writer, {"features": features})
        except BaseException as error:
            say(writer, {"error": repr(error)})
        os._exit(0)
    os.close(writer)
    answer: dict[str, Any] = json.loads(b"".join(iter(lambda: os.read(reader, _CHUNK_BYTES), b"")))
    os.close(reader)
    os.waitpid(child, 0)
    if "error" in answer:
        raise OSError(answer["error"])
    return [*answer["features"]]


def namespaces() -> dict[str, str]:
    """Return the ids of the namespaces that this process is in; whoever has others is apart from it."""
    return {name: os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "net", "ipc")}  # noqa: PTH115


class _Case:
    """A fork that waits, confined, for one program, runs it, and ends with all that it has left.

    There is one in advance, for forking and confining take longer than most programs do.
    """

    def __init__(self, isolation: CaseIsolation, number: int) -> None:
        self._isolation, self._limits = isolation, isolation.limits
        request, self._request = os.pipe()
        pipes = [os.pipe() for _ in range(4)]
        self._readers, writers = [pipe[0] for pipe in pipes], [pipe[1] for pipe in pipes]
        self.streams = [bytearray(), bytearray(), bytearray()]
        """What is kept of output, errors and report."""
        self._status = bytearray()
        self._printed = 0
        self._end, self._wall_s, self._started_at = "exit", 0.0, 0.0
        self._load: dict[str, float] = {}
        self._folder = isolation.folder_of(number)
        try:
            self.pid = isolation.fork()
        except OSError:
            for descriptor in (request, self._request, *self._readers, *writers):
                os.close(descriptor)
            raise
        if self.pid == 0:
            for descriptor in (self._request, *self._readers):
                os.close(descriptor)
            InitProcess(isolation, self._folder, request, writers).run()
        for descriptor in (request, *writers):
            os.close(descriptor)

    @property
    def is_alive(self) -> bool:
        """Whether it waits still; for want of memory the machine may have chosen it."""
        if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            return True
        for descriptor in (self._request, *self._readers):
            os.close(descriptor)
        return False

    def start(self, head: bytes, body: bytes) -> None:
        """Hand the program over; from now on its time is counted."""
        self._started_at = time.monotonic()
        with suppress(BrokenPipeError):  # it has ended; `end` says how
            send(self._request, head)
            send(self._request, body)
        os.close(self._request)

    @property
    def end(self) -> dict[str, Any]:
        """What is known of the program that has ended."""
        status = json.loads(self._status.partition(b"\n")[0] or b"{}")
        nothing = {"status": None, "cpu_s": 0.0, "peak_kb": 0, "error": ""}
        # without a status, the machine has killed its first process, for memory most likely
        end = "not_started" if self._end == "exit" and status.get("status") is None else self._end
        return {**nothing, **status, **self._load, "end": end, "wall_s": self._wall_s, "printed": self._printed}

    def watch(self, spared: int | None) -> None:
        """Collect what the program says until it has ended, or has to; then have all that it left ended as well.

        `spared` is the process of the case that waits meanwhile.
        """
        kinds = dict(zip(self._readers, range(4), strict=True))
        deadline = self._started_at + self._limits["wall_s"]
        load = CaseLoad(self._limits["cores"], self._started_at, spared)
        open_ = set(self._readers)
        while open_ and self._end == "exit" and b"\n" not in self._status:
            now = time.monotonic()
            if now >= deadline:  # whatever it prints meanwhile
                self._end = "wall_timeout"
                break
            if now >= load.next_look:
                load.look()
                if load.has_too_many_locks:
                    self._end = "violation"
                    break
            ready, _, _ = select.select([_REQUESTS, *open_], [], [], max(0.0, min(deadline, load.next_look) - now))
            if _REQUESTS in ready:  # nobody asks before there is an answer: the other side has gone
                _leave(self._isolation)
            for reader in ready:
                chunk = os.read(reader, _CHUNK_BYTES)
                if not chunk:
                    open_.discard(reader)
                elif self._is_too_much(kinds[reader], chunk):
                    self._end = "output_flood"
        self._wall_s = time.monotonic() - self._started_at
        if self._end == "wall_timeout":
            load.look()
        self._load = {"ready_s": load.ready_s, "used_s": load.used_s, "stalled_s": load.stalled_s}
        if self._end != "exit":
            self._read_usage()
        if self._isolation.has_snapshot and b"\n" in self._status:
            self._read_returned()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        for reader in open_:  # what was written before the end, and is still on its way
            os.set_blocking(reader, False)
            with suppress(BlockingIOError):
                while (chunk := os.read(reader, _CHUNK_BYTES)) and not self._is_too_much(kinds[reader], chunk):
                    pass
        for reader in self._readers:
            os.close(reader)

    def _read_usage(self) -> None:
        """Have the program ended by its first process, which says what it used."""
        os.kill(self.pid, signal.SIGTERM)
        status = self._readers[3]
        if select.select([status], [], [], _ANSWER_S)[0]:
            self._status += os.read(status, _CHUNK_BYTES)

    def _read_returned(self) -> None:
        """Read the files that come back, which the first process writes once no other process of the case is left."""
        report, deadline = self._readers[2], time.monotonic() + _RETURN_S
        while select.select([report], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunk = os.read(report, _CHUNK_BYTES)
            if not chunk:
                return
            self.streams[2] += chunk

    def wait(self, spared: int | None) -> None:
        """Wait until nothing of it is left, but for the process that is spared."""
        os.waitpid(self.pid, 0)
        if self._isolation.has_namespaces:
            return  # the kernel has ended all of its processes, and its mounts are gone
        end_children({spared})
        remove_path(self._folder)

    def _is_too_much(self, kind: int, chunk: bytes) -> bool:
        """Keep `chunk`, or as much as there is room for."""
        if kind == 3:
            self._status += chunk
            return False
        most = self._limits["output_kb"] << 10
        room = (_REPORT_BYTES if kind == 2 else most) - len(self.streams[kind])
        self.streams[kind] += chunk[: max(0, room)]
        if kind == 2:
            return len(chunk) > room
        self._printed += len(chunk)
        return bool(self._printed > _FLOOD * most)


class CaseLoad:
    """How much the processes of a case were ready to run, did run and waited for a disk; what they lock.

    A case that did not end in its time is to blame for that unless it was kept from running; `Heartbeat` judges. Seen
    are all processes below this one, but for the child `spared` with those below it. They are looked at at times that
    nobody can foresee, so that none is awake at these times only.
    """

    def __init__(self, cores: int, began: float, spared: int | None) -> None:
        self._cores = min(cores, len(os.sched_getaffinity(0)))
        self._spared = spared
        self._chance = random.SystemRandom()  # a case is a fork of this process, and knows the state of any other
        self._looked_at = began
        self.next_look = began + _MOST_S
        """By the monotonic clock."""
        self.ready_s = self.stalled_s = self.used_s = 0.0
        """Of processor time that could have been used, of the clock, of processor time."""
        self.has_too_many_locks = False
        """Whether more parts of files are locked than any program needs: no limit counts the memory they take."""

    def look(self) -> None:
        """Look at all of them, and have what is seen stand for the time since the last look."""
        now = time.monotonic()
        span_s, self._looked_at = now - self._looked_at, now
        self.next_look = now + self._chance.uniform(_LEAST_S, _MOST_S)
        states, ticks, processes = "", 0, set()
        for process, fields in self._processes():
            processes.add(b"%d" % process)
            ticks += sum(map(int, fields[_USED]))
            states += fields[_STATE] if fields[_THREADS] == "1" else "".join(_states_of_threads(process))
        ready = states.count("R")
        self.ready_s += min(ready, self._cores) * span_s
        self.stalled_s += span_s if "D" in states and not ready else 0
        # processes whose parent does not ask how they ended are gone, with what they used
        self.used_s = max(self.used_s, ticks / os.sysconf("SC_CLK_TCK"))
        self.has_too_many_locks = _count_locks(processes) > _MOST_LOCKS

    def _processes(self) -> Iterator[tuple[int, list[str]]]:
        """Yield every process of the case with its fields."""
        below: dict[int, list[tuple[int, list[str]]]] = {}
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
            if fields := _fields(f"/proc/{name}/stat"):
                below.setdefault(int(fields[_PARENT]), []).append((int(name), fields))
        level = [process for process in below.get(os.getpid(), []) if process[0] != self._spared]
        while level:
            yield from level
            level = [child for process, _ in level for child in below.get(process, [])]


def _count_locks(processes: Collection[bytes]) -> int:
    """Return how many parts of files some processes have locked."""
    with suppress(OSError), open("/proc/locks", "rb") as stream:  # noqa: PTH123
        # "1: POSIX  ADVISORY  WRITE 708 00:13:571 0 EOF"
        lines = (line.split() for line in stream.read(_LOCKS_BYTES).splitlines())
        return sum(line[1:2] == [b"POSIX"] and line[4:5] != [] and line[4] in processes for line in lines)
    return 0


def _states_of_threads(process: int) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
            if fields := _fields(f"/proc/{process}/task/{name}/stat"):
                yield fields[_STATE]


def _fields(path: str) -> list[str]:
    """Return what stands after the name of a process, which may hold anything; nothing of one that has gone."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            return stream.read().rpartition(b") ")[2].decode("ascii").split()
    except OSError:
        return []


def _leave(isolation: CaseIsolation) -> NoReturn:
    """End with all that there is, for the other side has gone."""
    if not isolation.has_namespaces:  # otherwise the kernel ends all of it, and no folder is left
        end_children()
        for name in os.listdir(isolation.folder):  # noqa: PTH208
            with suppress(OSError):
                remove_path(f"{isolation.folder}/{name}")
        with suppress(OSError):  # what it is in may belong to somebody else
            os.rmdir(isolation.folder)  # noqa: PTH106
    os._exit(0)


if __name__ == "__main__":
    main()
