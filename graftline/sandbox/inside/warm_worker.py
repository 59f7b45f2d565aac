"""The inner side of the `warm` sandbox: a process that holds ast-grep's binding and forks itself for every batch.

It confines itself once everything is loaded: an unprivileged user where it was started as root, limits, and a filter
that lets through the system calls of a computation (no files, no sockets, no programs). A forked child inherits all of
it, reads the batch, answers item by item, and ends. When it dies, the item that it was at is to blame; this process
passes the batch on without looking at it, and is as good as new.

A frame is a 4-byte big-endian length and as many bytes.

    request  JSON: [looks once, [rule, …], [[language, source, [number of a rule, …]], …]]
    answer   "R" and JSON {"verdict", "error", "matches": [[start, end, text], …], "cpu_s", "wall_s", "peak_kb"}, one per rule
             "E" and JSON {"end": "exit" | "signal", "code", "stderr", "cpu_s", "wall_s", "peak_kb"}, when the child has ended
"""

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from functools import cache
from typing import Any

from graftline.astgrep.expand import BeyondBindingError, InvalidActionError, Source, replacements
from graftline.sandbox.inside.frames import receive, send, size_of
from graftline.sandbox.inside.seccomp import ENOSYS, HUGE_PAGES, NEW_NAMESPACE, NO_CORE, PROT_EXEC, Filter

_UID = 60_001  # of nobody else; only taken when started as root
_PR_SET_DUMPABLE = 4
NO_MEMORY, FLOOD, _FAULT = 97, 98, 99
"""Exit codes of a child."""
_STDERR_BYTES = 4096
_DESCRIPTORS = 16
_CHUNK_BYTES = 1 << 18
MANY_RULES = 4
"""For one text: as many are worth a look for the places of all of them."""

_ALLOWED = (
    *("read", "write", "close", "pipe2", "dup2", "dup3", "poll", "ppoll", "select", "pselect6", "clone", "wait4"),
    *("mmap", "munmap", "mremap", "mprotect", "brk", "madvise", "futex", "set_robust_list", "rseq", "sched_yield"),
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "setitimer", "prlimit64", "getrusage"),
    *("getpid", "gettid", "getrandom", "clock_gettime", "exit", "exit_group"),
)
# what libraries ask for and can do without
_REFUSED = (
    *("open", "openat", "stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "readlink"),
    *("readlinkat", "getcwd", "ioctl", "fcntl", "lseek", "sched_getaffinity", "tgkill", "prctl"),
)


def main() -> None:
    """Serve batches until the other side closes."""
    limits = json.loads(sys.argv[1])
    _warm_up(sys.argv[2:])
    gc.collect()
    gc.freeze()
    send(1, json.dumps({"features": _confine(limits)}).encode())
    child = _Child(limits)
    while (batch := receive(0)) is not None:
        child.start(batch)
        following = _Child(limits)  # while the one works
        child.finish()
        child = following


def _warm_up(languages: list[Any]) -> None:
    """Use everything once: what is loaded later would have to be read from files."""
    rule = {
        "rule": {"pattern": "f($A)"},
        "fix": "g($B)",
        "transform": {"B": {"replace": {"source": "$A", "replace": "(x)", "by": "$1"}}},
    }
    for language in languages:
        replacements(Source.parse("f(xé);\n", language), rule)
    json.loads(json.dumps([1.5, None, True, "é"]))


def _confine(limits: dict[str, Any]) -> list[str]:
    """Apply what this machine offers, and return the names of what took hold."""
    features = ["rlimits"]
    memory = limits["memory_mb"] << 20
    limited = ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, NO_CORE), (resource.RLIMIT_FSIZE, 0))
    for name, most in (*limited, (resource.RLIMIT_NOFILE, _DESCRIPTORS)):
        resource.setrlimit(name, (most, most))
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(_UID, _UID, _UID)
        os.setresuid(_UID, _UID, _UID)
        features.append("own_user")
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # so that others of its user cannot look into it
    calls = Filter()
    calls.refuse_bits("mmap", 2, PROT_EXEC).refuse_bits("mprotect", 2, PROT_EXEC)
    calls.refuse_bits("mmap", 3, HUGE_PAGES).refuse_bits("clone", 0, NEW_NAMESPACE).ignore_limit_of_core_files()
    # the flags of clone3 lie in memory, where a filter cannot look; without it the C library takes clone
    calls.refuse(["clone3"], ENOSYS).refuse(_REFUSED).allow(_ALLOWED)
    if calls.install("kill"):
        features += ["no_new_privs", "seccomp"]
    return features


class _Child:
    """A fork of this process that waits for one batch; there is one in advance, for forking takes a while."""

    def __init__(self, limits: dict[str, Any]) -> None:
        batch, self._batch_in = os.pipe()
        self._answers, answers_in = os.pipe()
        self._errors, errors_in = os.pipe()
        self._started_at = 0.0
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.dup2(errors_in, 2)
                for descriptor in {*range(_DESCRIPTORS)} - {2, batch, answers_in}:  # those of others among them
                    with contextlib.suppress(OSError):
                        os.close(descriptor)
                items = receive(batch)
                os._exit(0 if items is None else _work(json.loads(items), answers_in, limits))
            except MemoryError:
                os._exit(NO_MEMORY)
            except BaseException as error:
                os.write(2, repr(error).encode()[:_STDERR_BYTES])
                os._exit(_FAULT)
        for descriptor in (batch, answers_in, errors_in):
            os.close(descriptor)

    def start(self, batch: bytes) -> None:
        """Hand the batch over."""
        self._started_at = time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # it ended before it had read all; `finish` says how
            send(self._batch_in, batch)
        os.close(self._batch_in)

    def finish(self) -> None:
        """Pass on the answers, and say how the child ended."""
        stderr = _forward(self._answers, self._errors)
        _, status, used = os.wait4(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        end = {
            "end": "signal" if code < 0 else "exit",
            "code": abs(code),
            "stderr": stderr.decode("utf-8", "replace"),
            "cpu_s": used.ru_utime + used.ru_stime,
            "wall_s": time.perf_counter() - self._started_at,
            "peak_kb": used.ru_maxrss,
        }
        send(1, b"E" + json.dumps(end).encode())


def _forward(answers: int, errors: int) -> bytes:
    """Pass on whole frames of a child, unread; return what it wrote to its standard error."""
    waiting, stderr, open_ = bytearray(), bytearray(), [answers, errors]
    while open_:
        ready, _, _ = select.select(open_, [], [])
        for descriptor in ready:
            chunk = os.read(descriptor, _CHUNK_BYTES)
            if not chunk:
                open_.remove(descriptor)
                os.close(descriptor)
            elif descriptor == errors:
                stderr += chunk[: _STDERR_BYTES - len(stderr)]
            else:
                waiting += chunk
                while len(waiting) >= 4 and len(waiting) >= 4 + (size := size_of(waiting)):
                    send(1, b"R" + waiting[4 : 4 + size])
                    del waiting[: 4 + size]
    return bytes(stderr)


def _work(batch: list[Any], answers: int, limits: dict[str, Any]) -> int:
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    most = limits["output_mb"] << 20
    looks_once, rules, texts = batch

    @cache
    def is_valid(number: int, language: Any) -> bool:
        return _answer(Source.parse("", language), rules[number])["verdict"] in ("ok", "no_match")

    for language, text, numbers in texts:
        source = None
        for number in numbers:
            # of this item; the default action of the signal ends the process, however deep it is in a library
            signal.setitimer(signal.ITIMER_PROF, limits["cpu_s"])
            started, started_cpu = time.perf_counter(), time.process_time()
            if source is None:
                source = Source.parse(text, language)
                if looks_once and len(numbers) >= MANY_RULES:
                    source.look_for([rules[own] for own in numbers if is_valid(own, language)])
            answer = _answer(source, rules[number])
            answer["cpu_s"], answer["wall_s"] = time.process_time() - started_cpu, time.perf_counter() - started
            answer["peak_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            data = json.dumps(answer).encode()
            if len(data) > most:
                return FLOOD
            send(answers, data)
    return 0


def _answer(source: Source, rule: dict[str, Any]) -> dict[str, Any]:
    try:
        matches = replacements(source, rule)
    except InvalidActionError as error:
        return {"verdict": "action_error", "error": str(error)[:500], "matches": []}
    except BeyondBindingError:
        return {"verdict": "needs_cli", "error": "", "matches": []}
    except MemoryError:
        return {"verdict": "out_of_memory", "error": "", "matches": []}
    return {"verdict": "ok" if matches else "no_match", "error": "", "matches": matches}


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # whoever asked has ended, as at Ctrl-C
        main()
