"""Append-only JSON lines of trajectories: written by many, read whole, never overwritten.

A writer appends to a shard of its own, whose name starts with a dot and which it holds locked; what `add` was called
with is on disk when it returns. A shard is sealed, which is to say gets its name, when it is large enough or the writer
ends. One whose writer was killed is sealed by whoever looks next, without its half-written last line.

Readers see sealed shards only. An attempt may stand there twice, where a worker was killed after it wrote and before it
could say so; they keep the one that was read last.
"""

import fcntl
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pydantic import ValidationError

from graftline.core.errors import DataError, RecordError
from graftline.core.jsonl import whole_length
from graftline.core.record import sync
from graftline.datasets.instruction_source import FIELDS
from graftline.rollouts.task import Task
from graftline.rollouts.trajectory import Trajectory

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OPEN = ".open"
_MAX_BYTES = 64 << 20


class ShardWriter:
    """Appends trajectories to shards in `folder` called after `writer`; may be used by several threads."""

    def __init__(self, folder: Path, writer: str, max_bytes: int = _MAX_BYTES) -> None:
        if not _NAME.fullmatch(writer):
            raise DataError(f"writer {writer!r}: expected up to 100 letters, digits and . _ -")
        self._folder, self._writer, self._max_bytes = folder, writer, max_bytes
        self._open: tuple[Path, IO[bytes]] | None = None
        self._lock = threading.Lock()

    def add(self, trajectory: Trajectory) -> None:
        """Append `trajectory`; it is on disk when this returns."""
        line = trajectory.model_dump_json().encode() + b"\n"
        with self._lock:
            self._open = self._open or _open_shard(self._folder, self._writer)
            _, stream = self._open
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
            if stream.tell() >= self._max_bytes:
                self._seal()

    def seal(self) -> bool:
        """Let readers see what was added, and return whether anything was; what comes next goes to another shard."""
        with self._lock:
            return self._seal()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seal()

    def _seal(self) -> bool:
        if not self._open:
            return False
        path, stream = self._open
        path.rename(_name_of_sealed(path))
        sync(self._folder)
        stream.close()
        self._open = None
        return True


def sealed_shards(folder: Path) -> list[Path]:
    """Return the shards that can be read, by name; those of writers that were killed are sealed first."""
    if not folder.is_dir():
        return []
    for path in sorted(folder.glob(f".*{_OPEN}")):
        _seal_abandoned(path)
    return sorted(path for path in folder.glob("*.jsonl") if not path.name.startswith("."))


def read_shards(shards: Iterable[Path]) -> Iterator[Trajectory]:
    """Yield the trajectories of sealed shards, in order, those that stand there twice included.

    Raises:
        RecordError: a line is no trajectory.
    """
    for shard in shards:
        with shard.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield Trajectory.model_validate_json(line)
                except ValidationError as error:
                    fault = error.errors(include_url=False)[0]
                    raise RecordError(
                        f"{shard}: line {number} is no trajectory of this version"
                        f" ({'.'.join(map(str, fault['loc']))}: {fault['msg']}); move the file away"
                    ) from None


def latest_by_key(trajectories: Iterable[Trajectory]) -> dict[str, Trajectory]:
    """Return the last trajectory of every attempt, in the order in which the attempts came first."""
    return {trajectory.key: trajectory for trajectory in trajectories}


def link_shards(source: Path, folder: Path) -> list[Path]:
    """Give `folder` the sealed shards of `source` too, and return them there: what was written once stays as it is."""
    linked = []
    for shard in sealed_shards(source):
        linked.append(folder / shard.name)
        if not linked[-1].exists():
            os.link(shard, linked[-1])
    return linked


def _open_shard(folder: Path, writer: str) -> tuple[Path, IO[bytes]]:
    """Return a shard that nobody else has, locked."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = folder / f".{writer}-{number:05}.jsonl{_OPEN}"
        number += 1
        if path.exists() or _name_of_sealed(path).exists():
            continue
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except FileExistsError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # whoever looked between the two sealed the empty file
        if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
            sync(folder)
            return path, os.fdopen(descriptor, "ab")
        os.close(descriptor)


def _seal_abandoned(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # its writer lives
        if not path.exists():
            return
        whole = whole_length(descriptor)
        if not whole:
            path.unlink()
            return
        os.ftruncate(descriptor, whole)
        os.fsync(descriptor)
        path.rename(_name_of_sealed(path))
        sync(path.parent)
    finally:
        os.close(descriptor)


def _name_of_sealed(path: Path) -> Path:
    return path.with_name(path.name.removeprefix(".").removesuffix(_OPEN))


@dataclass(frozen=True, slots=True)
class Current:
    """The attempts that count, in the order of tasks, teachers and attempts, and how many others there are."""

    attempts: list[Trajectory]
    left_out: dict[str, int]
    """`not_kept.other_task`: the task is gone, or has changed; `not_kept.superseded`: made again since."""


def current_attempts(attempts: Iterable[Trajectory], tasks: Sequence[Task]) -> Current:
    """Return those of `attempts`, which stand in the order in which they were made, that count for `tasks`.

    They say of their instructions what the tasks say now: that may be found out after the attempt.
    """
    order = {task.digest: number for number, task in enumerate(tasks)}
    latest: dict[tuple[int, str, int], Trajectory] = {}
    left_out: Counter[str] = Counter()
    for attempt in attempts:
        number = order.get(attempt.task_digest)
        if number is None:
            left_out["not_kept.other_task"] += 1
            continue
        place = number, attempt.teacher, attempt.attempt
        left_out["not_kept.superseded"] += place in latest
        latest[place] = _update_fields(attempt, tasks[number])
    return Current(
        [latest[place] for place in sorted(latest)], {name: count for name, count in left_out.items() if count}
    )


def _update_fields(attempt: Trajectory, task: Task) -> Trajectory:
    return attempt.model_copy(update={name: getattr(task, name) for name in FIELDS})
