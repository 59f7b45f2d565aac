"""Work in several processes, and other programs, run with limits.

Items go out in order, results come back in that order, a bounded number at a time. Workers end with the pool, and one
whose parent was killed ends by itself; so nothing is left behind by a `kill -9`.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Any, Generic, Self, TypeVar

from graftline.core.errors import BoundaryError, ConfigError
from graftline.core.retry import SourceBusyError

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_TIME_LIMIT_S = 600.0
_MAX_OUTPUT_BYTES = 16 << 20

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_starting = threading.Lock()
_make: Callable[[], Callable[[Any], Any]] | None = None  # of a worker, which serves one pool only


class WorkerDied(BoundaryError):
    """A worker process ended in the middle of its work: the machine ended it, for want of memory as a rule."""


def default_workers() -> int:
    """Return the number of cores this process may use, and 8 at most: a worker takes 50 MB and more before its first item."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8)


class Workers(Generic[ItemT, ResultT]):
    """`count` processes, each with its own result of `make`; with a count of 0, this process."""

    def __init__(self, count: int, make: Callable[[], Callable[[ItemT], ResultT]], ahead: int = 4) -> None:
        """`ahead` items wait for every worker, beside the one it works on."""
        self._count, self._make, self._ahead = count, make, ahead
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._count:
            # spawned, not forked: the parent has threads (Dagster's), and a fork would copy their locks as they are
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._count, context, _begin, (os.getpid(), self._make))
            # until a worker ignores it, an interrupt at the terminal would end it with a traceback
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                with without_main():
                    for _ in range(self._count):
                        self._pool.submit(_prepare)  # while the first items are read
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                for process in list(self._pool._processes.values()):
                    process.kill()  # nobody waits for what they are at
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, items: Iterable[ItemT]) -> Iterator[ResultT]:
        """Yield the result of every item, in order; `items` is read only a little ahead.

        Raises:
            WorkerDied: a worker process ended.
        """
        if self._pool is None:
            work = self._make()
            yield from map(work, items)
            return
        waiting: deque[Future[ResultT]] = deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(_in_worker, item))
                if len(waiting) > self._count * (1 + self._ahead):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise WorkerDied("a worker process ended; start again, with fewer workers if memory is short") from error


@contextmanager
def without_main() -> Iterator[None]:
    """Keep a worker that is started here from importing the program's main module, all of it, before its work.

    It needs nothing from there, and a script without `if __name__ == "__main__"` would begin itself anew in every worker.
    """
    with _starting:
        # a worker process of another library may have none
        main, sys.modules["__main__"] = sys.modules.get("__main__"), ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main or ModuleType("__main__")


def _begin(parent: int, make: Callable[[], Callable[[Any], Any]]) -> None:
    global _make
    die_with(parent)
    # a worker does the same again with the next item; new pages would take longer than much of the work
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _make = make


def _prepare() -> None:
    _work()


def _in_worker(item: Any) -> Any:
    result = _work()(item)
    gc.collect()
    return result


@cache
def _work() -> Callable[[Any], Any]:
    # not when the worker begins: what fails there breaks the pool without a word of why
    if _make is None:
        raise RuntimeError("a worker was called before it began")
    work = _make()
    # what is there now stays until the end, so it need not be looked through for garbage again and again
    gc.freeze()
    gc.disable()
    return work


def keep_freed_memory(piece_bytes: int = 256 << 20, kept_bytes: int = 256 << 20) -> None:
    """Have this process keep the memory of smaller pieces that it frees, up to a size, where the allocator is glibc's.

    glibc gives large pieces back to the kernel when they are freed, and the kernel gives them out again page by page,
    zeroed, while all threads wait. The peak stays where it was.
    """
    # of threads, arenas are too small for such pieces
    for option, value in ((_M_MMAP_THRESHOLD, piece_bytes), (_M_TRIM_THRESHOLD, kept_bytes), (_M_ARENA_MAX, 1)):
        if hasattr(ctypes.CDLL(None), "mallopt"):
            ctypes.CDLL(None).mallopt(option, value)


def die_with(parent: int) -> None:
    """End this process with the thread of the process `parent` that started it, or at once if that has gone already."""
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before we could ask to be told


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """What became of a program."""

    status: int
    output: str
    errors: str

    def last_error(self) -> str:
        """Return the last line of its errors that is not blank."""
        return next((line.strip() for line in reversed(self.errors.splitlines()) if line.strip()), "no reason given")


def run_program(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], time_limit_s: float = _TIME_LIMIT_S
) -> ProgramResult:
    """Run `command` in `folder` to its end, without shell and input; what it started is ended with it.

    Raises:
        ConfigError: it cannot be started.
        SourceBusyError: it took too long.
    """
    with TemporaryFile() as output, TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"{command[0]}: cannot be started ({error.strerror}); mend its installation") from error
        try:
            status = process.wait(time_limit_s)
        except subprocess.TimeoutExpired:
            raise SourceBusyError(
                f"{Path(command[0]).name}: was not done within {time_limit_s:g} s; check the network or its registry"
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return ProgramResult(status, _read_start(output), _read_start(errors))


def _read_start(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(_MAX_OUTPUT_BYTES).decode("utf-8", "replace")
