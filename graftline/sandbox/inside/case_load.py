"""How much the processes of a case wanted to run, how much they did, how long they waited for a disk, what they lock.

A case that did not end in its time is to blame for that unless it was kept from running; `jail.heartbeat` judges. The
processes are looked at every now and then, at times that nobody can foresee, so that none is awake at these times only.
"""

import os
import random
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

_LEAST_S, _MOST_S = 0.05, 0.15
_MOST_LOCKS, _LOCKS_BYTES = 4096, 1 << 19  # more than programs take, and a line of `/proc/locks` for each
_PARENT, _STATE, _USED, _THREADS = 1, 0, slice(11, 15), 17  # fields of `/proc/<pid>/stat` after the name


class CaseLoad:
    """What was seen of all processes below this one, but for one child with those below it, which is spared."""

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
        # whose parent does not ask how they ended are gone, with what they used
        self.used_s = max(self.used_s, ticks / os.sysconf("SC_CLK_TCK"))
        self.has_too_many_locks = _count_locks(processes) > _MOST_LOCKS

    def _processes(self) -> Iterator[tuple[int, list[str]]]:
        """Return every process of the case with its fields."""
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
