"""What every process of the platform holds, sampled while it runs; and by how much that grows.

Memory is what is resident of a process and its own: pages of files and shared segments are left out, for the system can
take the former back, and the latter would be counted many times. Growth is the median of the slopes between all samples of
one process (Theil, Sen), those of processes that were started again in the same place taken together: no slope goes across
a restart, and what a process takes while it warms up is left out.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil

_HOUR_S, _MB = 3600.0, 1 << 20
_MOST_PAIRED = 400
_LEAST_PAIRED = 8
_ADOPTED_S, _WAITS_S = 5.0, 60.0
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Sample:
    """One look at one process."""

    at: float
    role: str
    pid: int
    memory_bytes: int
    descriptors: int


@dataclass(frozen=True)
class Growth:
    """What the samples of one role say."""

    memory_mb: float
    """The median."""
    memory_mb_per_h: float | None
    """None where no process lived long enough to tell."""
    descriptors: float
    descriptors_per_h: float | None
    processes: int
    """How many had the role, one after the other."""


class Sampler:
    """Looks at processes every `every_s` seconds, in a thread of its own."""

    def __init__(
        self, roles: Callable[[], Mapping[str, int | None]], used_bytes: Callable[[], int], every_s: float
    ) -> None:
        self._roles, self._used_bytes, self._every_s = roles, used_bytes, every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.samples: list[Sample] = []
        self.disk: list[tuple[float, int]] = []
        self._dead: dict[int, float] = {}  # since when
        self.most_zombies, self.zombies_of = 0, ""
        """How many at once had ended over a minute ago, and their parents did not ask how; and who those were."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            now = time.monotonic()
            for role, pid in self._roles().items():
                if pid is not None and (found := sample(now, role, pid)) is not None:
                    self.samples.append(found)
            self.disk.append((now, self._used_bytes()))
            self._look_for_zombies(now)

    def _look_for_zombies(self, now: float) -> None:
        dead = {one.pid: one.ppid() for one in below(os.getpid()) if is_zombie(one)}
        self._dead = {pid: self._dead.get(pid, now) for pid in dead}
        waiting = []
        for pid, parent in dead.items():
            if parent != os.getpid():
                waiting += [parent] if now - self._dead[pid] > _WAITS_S else []
            elif now - self._dead[pid] > _ADOPTED_S:
                # its parent was killed, and this process is the init of the soak; whom this one started is waited for at once
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        if len(waiting) > self.most_zombies:
            self.most_zombies, self.zombies_of = len(waiting), "; ".join(sorted({_line(parent) for parent in waiting}))


def sample(at: float, role: str, pid: int) -> Sample | None:
    """Return what a process holds; None where it is gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            memory = process.memory_info()
            return Sample(at, role, pid, max(0, memory.rss - memory.shared), process.num_fds())
    except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):
        return None


def growth(samples: Iterable[Sample], warm_up_s: float) -> dict[str, Growth]:
    """Return how the processes of every role grow, once each has lived for `warm_up_s`."""
    lives: dict[str, dict[int, list[Sample]]] = {}
    for one in samples:
        lives.setdefault(one.role, {}).setdefault(one.pid, []).append(one)
    return {role: _growth_of([*of.values()], warm_up_s) for role, of in lives.items()}


def _growth_of(lives: list[list[Sample]], warm_up_s: float) -> Growth:
    warm = [[one for one in life if one.at - life[0].at >= warm_up_s] for life in lives]
    every = [one for life in lives for one in life]
    memory = slope([[(one.at, one.memory_bytes) for one in life] for life in warm])
    descriptors = slope([[(one.at, one.descriptors) for one in life] for life in warm])
    return Growth(
        memory_mb=round(float(np.median([one.memory_bytes for one in every])) / _MB, 1),
        memory_mb_per_h=None if memory is None else round(memory * _HOUR_S / _MB, 2),
        descriptors=float(np.median([one.descriptors for one in every])),
        descriptors_per_h=None if descriptors is None else round(descriptors * _HOUR_S, 2),
        processes=len(lives),
    )


def slope(lives: Iterable[list[tuple[float, float]]]) -> float | None:
    """Return the median slope a second between all points of the same life; None where there are too few."""
    slopes = []
    for points in lives:
        if len(points) < _LEAST_PAIRED:
            continue
        thinned = np.asarray(points[:: -(-len(points) // _MOST_PAIRED)], dtype=float)
        first, second = np.triu_indices(len(thinned), k=1)
        apart = thinned[second] - thinned[first]
        slopes.append(apart[:, 1] / apart[:, 0])
    return float(np.median(np.concatenate(slopes))) if slopes else None


def below(pid: int) -> list[psutil.Process]:
    """Return all processes below one."""
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        return found
    except psutil.NoSuchProcess:
        return []


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own below this process, so that nothing gets out of sight."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def left_behind(within_s: float, but: Collection[int] = ()) -> list[str]:
    """Return the command lines of what still runs below this process, once it had so long to end; and end it.

    Args:
        but: Processes that may go on, with all below them.
    """
    wanted = {*but, *(child.pid for pid in but for child in below(pid))}
    _, alive = psutil.wait_procs([one for one in below(os.getpid()) if one.pid not in wanted], timeout=within_s)
    found = []
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            if not is_zombie(process):
                found.append(" ".join(process.cmdline())[:200])
            process.kill()
    return found


def table(grown: Mapping[str, Growth]) -> list[dict[str, Any]]:
    """Return rows to be shown."""
    return [{"process": role, **vars(one)} for role, one in sorted(grown.items())]


def _line(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:200]
    except psutil.NoSuchProcess:
        return "one that is gone"


def is_zombie(process: psutil.Process) -> bool:
    """Whether it has ended, and only its parent has not asked how."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
