"""Boxes of the executor `local`: jails of this machine, a few of which stay open, and what one case of them is to `containers`.

A jail is for one snapshot and one set of limits, and runs one case at a time; starting it takes a tenth of a second, a case
a few milliseconds. Nothing of a case is left in it, so it is used again. When too many are open, the one that was used
longest ago is closed.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftline.core.errors import ConfigError, DataError, HarborError, SandboxError
from graftline.harbor.executors.base import OUTPUT_PATH
from graftline.harbor.executors.containers import KEPT_LOG_BYTES, VERIFIER_FOLDER, ContainerExit, ContainerSpec
from graftline.harbor.executors.entrypoint import first_bytes_of, start_of
from graftline.harbor.results import MAX_RESULT_BYTES, MAX_REWARD_BYTES
from graftline.sandbox import Case, CaseEnd, CaseLimits, Jail, JailConfig, Verdict, open_jail
from graftline.sandbox.file_names import folders_of, path_of
from graftline.sandbox.inside.files import TOO_LARGE, TOO_MANY
from graftline.sandbox.jail import Returned, Snapshot

MAX_ARTIFACT_BYTES, MAX_ARTIFACTS = 64 << 20, 5000
_TEMPORARY, _WORK = "/tmp/", "work/"
_REWARDS = (f"{VERIFIER_FOLDER}/reward.json", f"{VERIFIER_FOLDER}/reward.txt")
BROKEN_OFF = frozenset({Verdict.OUTPUT_FLOOD, Verdict.VIOLATION, Verdict.CRASH})
"""Ends after which nothing that was said is believed."""
_LIMIT_S = 3600
_PAGE_BYTES = 4096
_FILES, _PROCESSES, _DESCRIPTORS, _OUTPUT_KB = 200_000, 1024, 4096, 8192
_POLL_S, _ENDED_WITHIN_S = 0.2, 10.0


class CancelledError(Exception):
    """A rollout that nobody wants any more."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What boxes have to have in common to be cases of one jail."""

    snapshot: Snapshot
    inode: int
    """Of the folder: one that was removed and made again is another one."""
    limits: CaseLimits


class Jails:
    """Open jails by their kind; safe to use from many threads.

    Args:
        config: What every jail is opened with, but for its limits.
        runs_own: Whether cases may run what lies in their working folder.
        at_once: Cases that run at the same time; more wait.
        kept: Jails that stay open, those that run something included.
    """

    def __init__(self, config: JailConfig, runs_own: bool, at_once: int, kept: int) -> None:
        self._config, self._runs_own = config, runs_own
        self._at_once, self._kept = at_once, max(kept, at_once)
        self._changed = threading.Condition()
        self._idle: list[tuple[Kind, Jail]] = []
        self._running = 0
        self._is_open = True

    @contextmanager
    def taken(self, kind: Kind, glance: Callable[[], None]) -> Iterator[Jail]:
        """Give a jail to whoever calls alone; `glance` is called while there is none, and may raise.

        Raises:
            HarborError: it does not open, or does not reach the level that is required.
        """
        while (place := self._place(kind)) is None:
            glance()
        jail, dropped = place
        try:
            if dropped is not None:
                dropped.close()
            if jail is None:
                jail = self._opened(kind)
            yield jail
        finally:
            self._let_go(kind, jail)

    @property
    def is_open(self) -> bool:
        """Whether boxes may run."""
        return self._is_open

    def close(self) -> None:
        """Close all of them, once those that are in use were let go: boxes look whether they are still open."""
        with self._changed:
            self._is_open = False
            idle, self._idle = self._idle, []
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._running == 0, _ENDED_WITHIN_S)
        for _, jail in idle:
            jail.close()

    def _place(self, kind: Kind) -> tuple[Jail | None, Jail | None] | None:
        """Return an open jail or None for a new one, and one that has to be closed for that; None where all are in use."""
        with self._changed:
            if self._is_open and self._running >= self._at_once:
                self._changed.wait(_POLL_S)
            if not self._is_open:
                raise HarborError("local: the executor is closed; open another one")
            if self._running >= self._at_once:
                return None
            self._running += 1
            # the last that was used is the one whose memory is still warm
            for index in reversed(range(len(self._idle))):
                if self._idle[index][0] == kind:
                    return self._idle.pop(index)[1], None
            is_full = self._running + len(self._idle) > self._kept
            return None, self._idle.pop(0)[1] if is_full and self._idle else None

    def _opened(self, kind: Kind) -> Jail:
        try:
            return open_jail(self._config.model_copy(update={"limits": kind.limits}), kind.snapshot, self._runs_own)
        except (SandboxError, ConfigError) as error:
            raise HarborError(f"local: {error}") from error

    def _let_go(self, kind: Kind, jail: Jail | None) -> None:
        with self._changed:
            self._running -= 1
            is_kept = jail is not None and self._is_open
            if is_kept and jail is not None:
                self._idle.append((kind, jail))
            self._changed.notify_all()
        if jail is not None and not is_kept:
            jail.close()


class JailedBox:
    """A case of a jail, as `containers.Container` has it; what it left is read with its end."""

    def __init__(
        self, jail: Jail, case: Case, order: ContainerSpec, runs_own: bool, is_wanted: Callable[[], bool]
    ) -> None:
        self._jail, self._case, self._order = jail, case, order
        self._runs_own, self._is_wanted = runs_own, is_wanted
        self.end: CaseEnd | None = None
        """How it ended; None before that."""

    @property
    def limits_enforced(self) -> Mapping[str, Any]:
        isolation, limits = self._jail.isolation, self._order.box.limits
        has_total = "total_memory" in isolation.features
        return {
            "isolation": isolation.level,
            "implementation": isolation.implementation,
            "features": list(isolation.features),
            "timeout_s": self._order.timeout_s,
            "cpu_cores": min(limits.cpu_cores, len(os.sched_getaffinity(0))),
            "memory_mb": limits.memory_mb,
            "memory_is_of": "all processes together" if has_total else "each process",
            "disk_mb": limits.disk_mb if "disk_limits" in isolation.features else None,
            "network": "none" if "seccomp" in isolation.features else "open",
            "runs_own": self._runs_own,
        }

    def run(self, is_cancelled: Callable[[], bool]) -> ContainerExit:
        def glance() -> None:
            if not self._is_wanted():
                raise HarborError("local: the executor was closed while the box ran")
            if is_cancelled():
                raise CancelledError

        try:
            end = self.end = self._jail.run(self._case, glance)
        except CancelledError:
            return ContainerExit("cancelled")
        except SandboxError as error:
            raise HarborError(f"local: {error}") from error
        output = end.stdout + (b"\n" if end.stdout and end.stderr and not end.stdout.endswith(b"\n") else b"")
        return ContainerExit(
            "timeout" if end.verdict in (Verdict.WALL_TIMEOUT, Verdict.TIMED_OUT, Verdict.CPU_TIMEOUT) else "exited",
            _exit_code(end),
            end.verdict is Verdict.OUT_OF_MEMORY,
            end.usage.wall_s,
            b"" if end.verdict in BROKEN_OFF else said_in(end),
            (output + end.stderr)[-KEPT_LOG_BYTES:],
            end.usage.files_mb,
        )

    def read(self, path: str, most: int) -> bytes | None:
        assert self.end is not None
        if self.end.verdict in BROKEN_OFF:
            return None
        known = path.removeprefix("/")
        if self.end.left_out.get(known) == TOO_LARGE:
            return bytes(most + 1)
        found = self.end.files.get(known)
        return found if found is None else found[: most + 1]

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        assert self.end is not None
        for path, reason in self.end.left_out.items():
            if path.startswith(_WORK) and reason in (TOO_LARGE, TOO_MANY):
                raise DataError(
                    f"artifact {path.removeprefix(_WORK)!r}: {reason}; {MAX_ARTIFACTS} files and"
                    f" {MAX_ARTIFACT_BYTES >> 20} MB travel at most"
                )
        below = {path.removeprefix(_WORK): data for path, data in self.end.files.items() if path.startswith(_WORK)}
        return {path: data for path, data in below.items() if _can_travel(path)}


def case_of(order: ContainerSpec, folder: Path, runs_own: bool) -> Case:
    """Return the case that carries out `order` on the snapshot in `folder`.

    Raises:
        DataError: its entrypoint or its files are none that a box takes.
    """
    files = dict(order.files)
    folders_of(map(path_of, files))
    parts = order.box.verifier_files if order.role == "verifier" else order.box.agent_files
    for part in parts:
        if not (found := folder / path_of(part)).is_dir() or found.is_symlink():
            raise DataError(f"folder {part!r} of the context: is not there; name one that is")
    own = first_bytes_of(folder, parts, {} if order.role == "verifier" else files)
    start = start_of(order.words, own, runs_own)
    if order.role == "verifier":
        # what an agent left does not take the place of what grades it
        files.pop(start.file, None)
        returned = Returned(tuple(path.removeprefix("/") for path in _REWARDS), 2 * MAX_REWARD_BYTES)
    else:
        settings = order.box.verifier
        artifacts = [f"{_WORK}{path_of(path.rstrip('/'))}" for path in settings.artifacts] if settings else []
        result = [OUTPUT_PATH.removeprefix("/")] if order.stdin is None else []
        # the result first, so that artifacts cannot take its room
        returned = Returned((*result, *artifacts), MAX_RESULT_BYTES + MAX_ARTIFACT_BYTES, 1 + MAX_ARTIFACTS)
    return Case(
        start.program,
        start.arguments,
        files,
        stdin=order.stdin or b"",
        temporary={path.removeprefix(_TEMPORARY): data for path, data in order.inputs.items()},
        environment=order.env_vars,
        parts=parts,
        returned=returned,
    )


def _can_travel(path: str) -> bool:
    """Return whether a box takes a file of that name, and an interpreter would not believe it in place of a source."""
    try:
        return "__pycache__" not in path_of(path).parts and not path.endswith(".pyc")
    except DataError:
        return False


def case_limits(order: ContainerSpec, snapshot_mb: int) -> CaseLimits:
    """Return the limits of a box as those of a case; the copy of the snapshot, which is in memory, comes on top."""
    limits = order.box.limits
    return CaseLimits(
        cores=limits.cpu_cores,
        cpu_s=min(_LIMIT_S, int(order.timeout_s) * limits.cpu_cores + 1),
        wall_s=float(order.timeout_s),
        memory_mb=limits.memory_mb + snapshot_mb,
        disk_mb=limits.disk_mb,
        file_mb=limits.disk_mb,
        files=_FILES,
        processes=_PROCESSES,
        descriptors=_DESCRIPTORS,
        output_kb=_OUTPUT_KB,
    )


def said_in(end: CaseEnd) -> bytes:
    """Return the object of JSON in what was printed: all of it, or its last line."""
    text = end.stdout.strip()
    lines = text.rsplit(b"\n", 1)
    for candidate in (text, lines[-1]) if len(lines) > 1 else (text,):
        try:
            if candidate.startswith(b"{") and isinstance(json.loads(candidate), dict):
                return candidate
        except (ValueError, RecursionError):
            continue
    return text


def _exit_code(end: CaseEnd) -> int | None:
    if end.verdict is Verdict.OK or end.exit_code is not None:
        return end.exit_code
    # as shells say it, of what a signal ended
    return 128 + end.signal if end.signal is not None else 1


def size_mb(folder: Path) -> int:
    """Return how much memory a copy of a folder takes, rounded up."""
    pages = (-(-path.lstat().st_size // _PAGE_BYTES) + 1 for path in folder.rglob("*"))
    return -(-sum(pages) * _PAGE_BYTES // (1 << 20))
