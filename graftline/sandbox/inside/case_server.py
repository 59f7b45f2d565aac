"""The inner side of a jail: a process behind walls that runs cases of foreign code, each in a fork of its own.

It has loaded what tests need before any case comes, so that a case costs a fork and not a start. It speaks frames over
its standard input and output:

    in   settings as JSON, once (see `main`)
    out  {"features": [...], "namespaces": {name: id}, "tools": {name: version}}, or {"error": "..."} and the end
    in   {"program", "arguments", "nonce", "files": [[path, size], …], "trusted": [[path, size], …], "stdin": size}
         with "temporary" of the same form, "environment", "parts" and "returned", and then, in one frame, the bytes of all files
    out  {"end", "status", "cpu_s", "wall_s", "peak_kb", "files_kb", "printed", "error"} and three frames: output, errors, report

`end` is "exit", "wall_timeout", "output_flood", "violation" or "not_started"; `status` is what `waitpid` says.
"""

import gc
import json
import os
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from graftline.sandbox.inside import case_jail, case_program, kernel
from graftline.sandbox.inside.case_load import CaseLoad
from graftline.sandbox.inside.frames import receive, send
from graftline.sandbox.inside.init_process import First, Walls, end_children, say
from graftline.sandbox.inside.removal import remove_path

_REQUESTS = 0
_FLOOD = 16  # times what is kept
_REPORT_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16
_ANSWER_S, _RETURN_S = 1.0, 20.0


def main() -> None:
    """Confine this process as the settings say, then serve cases until the other side closes."""
    settings = json.loads(receive(_REQUESTS) or b"{}")
    try:
        case_program.load(settings["programs"], is_box=settings["snapshot"] is not None)
        walls = Walls(settings)
        walls.open_snapshot()
        _enter(settings)
        case_program.warm_up(settings["programs"], settings["warm_folder"])
        features = _tried(walls, settings)
    except Exception as error:
        send(1, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    gc.collect()
    gc.freeze()
    hello = {"features": features, "namespaces": namespaces(), "tools": case_program.tools(settings["programs"])}
    send(1, json.dumps(hello).encode())
    spare: _Case | None = _Case(walls, 1)
    number = 1
    while (head := receive(_REQUESTS)) is not None and (body := receive(_REQUESTS)) is not None:
        if spare is None or not spare.is_alive:
            number += 1
            spare = _Case(walls, number)
        case, spare = spare, None
        case.give(head, body)
        number += 1
        with suppress(OSError):  # the case may have taken all the processes there are
            spare = _Case(walls, number)
        case.watch(spare.first if spare else None)
        send(1, json.dumps(case.found).encode())
        for stream in case.kept:
            send(1, stream)
        case.wait(spare.first if spare else None)
    _leave(walls)


def _enter(settings: Mapping[str, Any]) -> None:
    if settings["mode"] == "namespaces":
        case_jail.enter_namespaces(settings)
        return
    kernel.adopt_orphans()
    if settings["user"] is not None:
        os.setgroups([])
        os.setresgid(settings["user"], settings["user"], settings["user"])
        os.setresuid(settings["user"], settings["user"], settings["user"])


def _tried(walls: Walls, settings: Mapping[str, Any]) -> list[str]:
    """Return what a case will be confined by, found by confining a child in the same way."""
    reader, writer = os.pipe()
    child = walls.fork()
    if child == 0:
        try:
            folder = walls.folder
            if walls.has_namespaces:
                case_jail.mount_folders(settings)
                folder = case_jail.WORK
            say(writer, {"features": [*case_jail.kinds_of(folder, walls.limits), *walls.confine([folder])]})
        except BaseException as error:
            say(writer, {"error": repr(error)})
        os._exit(0)
    os.close(writer)
    answer = json.loads(b"".join(iter(lambda: os.read(reader, _CHUNK_BYTES), b"")))
    os.close(reader)
    os.waitpid(child, 0)
    if "error" in answer:
        raise OSError(answer["error"])
    features: list[str] = answer["features"]
    return features


def namespaces() -> dict[str, str]:
    """Return the ids of the namespaces that this process is in; whoever has others is apart from it."""
    return {name: os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "net", "ipc")}  # noqa: PTH115


class _Case:
    """A fork that waits behind its walls for one program, runs it, and ends with all that it has left.

    There is one in advance, for forking and confining take longer than most programs do.
    """

    def __init__(self, walls: Walls, number: int) -> None:
        self._walls, self._limits = walls, walls.limits
        request, self._request = os.pipe()
        pipes = [os.pipe() for _ in range(4)]
        self._readers, writers = [pipe[0] for pipe in pipes], [pipe[1] for pipe in pipes]
        self.kept = [bytearray(), bytearray(), bytearray()]
        self._status = bytearray()
        self._printed = 0
        self._end, self._wall_s, self._given_at = "exit", 0.0, 0.0
        self._load: dict[str, float] = {}
        self._folder = walls.folder_of(number)
        try:
            self.first = walls.fork()
        except OSError:
            for descriptor in (request, self._request, *self._readers, *writers):
                os.close(descriptor)
            raise
        if self.first == 0:
            for descriptor in (self._request, *self._readers):
                os.close(descriptor)
            First(walls, self._folder, request, writers).run()
        for descriptor in (request, *writers):
            os.close(descriptor)

    @property
    def is_alive(self) -> bool:
        """Whether it waits still; for want of memory the machine may have chosen it."""
        if os.waitpid(self.first, os.WNOHANG)[0] == 0:
            return True
        for descriptor in (self._request, *self._readers):
            os.close(descriptor)
        return False

    def give(self, head: bytes, body: bytes) -> None:
        """Hand the program over; from now on its time is counted."""
        self._given_at = time.monotonic()
        with suppress(BrokenPipeError):  # it has ended; how, is said below
            send(self._request, head)
            send(self._request, body)
        os.close(self._request)

    @property
    def found(self) -> dict[str, Any]:
        """What is known of the program that has ended."""
        said = json.loads(self._status.partition(b"\n")[0] or b"{}")
        nothing = {"status": None, "cpu_s": 0.0, "peak_kb": 0, "error": ""}
        # where nothing is said, the machine has killed its first process, for memory most likely
        end = "not_started" if self._end == "exit" and said.get("status") is None else self._end
        return {**nothing, **said, **self._load, "end": end, "wall_s": self._wall_s, "printed": self._printed}

    def watch(self, spared: int | None) -> None:
        """Collect what the program says until it has ended, or has to; then have all that it left ended as well.

        Args:
            spared: The case that waits meanwhile.
        """
        kinds = dict(zip(self._readers, range(4), strict=True))
        deadline = self._given_at + self._limits["wall_s"]
        load = CaseLoad(self._limits["cores"], self._given_at, spared)
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
                _leave(self._walls)
            for reader in ready:
                chunk = os.read(reader, _CHUNK_BYTES)
                if not chunk:
                    open_.discard(reader)
                elif self._is_too_much(kinds[reader], chunk):
                    self._end = "output_flood"
        self._wall_s = time.monotonic() - self._given_at
        if self._end == "wall_timeout":
            load.look()
        self._load = {"ready_s": load.ready_s, "used_s": load.used_s, "stalled_s": load.stalled_s}
        if self._end != "exit":
            self._ask_what_it_used()
        if self._walls.has_snapshot and b"\n" in self._status:
            self._read_what_comes_back()
        with suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGKILL)
        for reader in open_:  # what was written before the end, and is still on its way
            os.set_blocking(reader, False)
            with suppress(BlockingIOError):
                while (chunk := os.read(reader, _CHUNK_BYTES)) and not self._is_too_much(kinds[reader], chunk):
                    pass
        for reader in self._readers:
            os.close(reader)

    def _ask_what_it_used(self) -> None:
        """Have the program ended by its first process, which says what it used."""
        os.kill(self.first, signal.SIGTERM)
        status = self._readers[3]
        if select.select([status], [], [], _ANSWER_S)[0]:
            self._status += os.read(status, _CHUNK_BYTES)

    def _read_what_comes_back(self) -> None:
        """Read until the first process ends, which writes this when no other process of the case is there any more."""
        report, deadline = self._readers[2], time.monotonic() + _RETURN_S
        while select.select([report], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunk = os.read(report, _CHUNK_BYTES)
            if not chunk:
                return
            self.kept[2] += chunk

    def wait(self, spared: int | None) -> None:
        """Wait until nothing of it is there any more, and leave the one that is spared."""
        os.waitpid(self.first, 0)
        if self._walls.has_namespaces:
            return  # the kernel has ended all of its processes, and its mounts are gone
        end_children({spared})
        remove_path(self._folder)

    def _is_too_much(self, kind: int, chunk: bytes) -> bool:
        """Keep `chunk`, or as much as there is room for."""
        if kind == 3:
            self._status += chunk
            return False
        most = self._limits["output_kb"] << 10
        room = (_REPORT_BYTES if kind == 2 else most) - len(self.kept[kind])
        self.kept[kind] += chunk[: max(0, room)]
        if kind == 2:
            return len(chunk) > room
        self._printed += len(chunk)
        return bool(self._printed > _FLOOD * most)


def _leave(walls: Walls) -> NoReturn:
    """End with all that there is, for the other side has gone."""
    if not walls.has_namespaces:  # otherwise the kernel ends all of it, and no folder is left
        end_children(set())
        for name in os.listdir(walls.folder):  # noqa: PTH208
            with suppress(OSError):
                remove_path(f"{walls.folder}/{name}")
        with suppress(OSError):  # what it is in may belong to somebody else
            os.rmdir(walls.folder)  # noqa: PTH106
    os._exit(0)


if __name__ == "__main__":
    main()
