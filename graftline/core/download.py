"""The one way a file comes from a home: resumed, verified, whole or not at all.

A download grows in `.<name>.partial` beside its target; `.<name>.partial-state` says which version of which file it
is a part of. A target that has the pinned checksum is not fetched again; one without a pin is, for nothing else says
that it is right.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from os import fsync
from pathlib import Path
from time import monotonic
from typing import IO, Protocol

from graftline.core.errors import DownloadError
from graftline.core.hashing import sha256_file
from graftline.core.record import write_atomically
from graftline.core.retry import RetryPolicy, SourceBusyError, with_retries

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_MAX_STATE_BYTES = 1 << 16

Advance = Callable[[int, int], None]
"""Called with the bytes done and the bytes there are; 0 for an unknown number."""


class Pinned(Protocol):
    """What is known of a file before it comes; None where it is not."""

    @property
    def sha256(self) -> str | None:
        """Where it is known, anything else is refused."""

    @property
    def size_bytes(self) -> int | None:
        """Where it is known, anything else is refused."""


@dataclass(frozen=True, slots=True)
class Pins:
    """What is known of a file that no catalog describes."""

    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Download:
    """A file as it came."""

    sha256: str
    size_bytes: int
    is_upstream: bool
    """Whether it is the file of the pinned revision: by checksum, or because its home says so. A file of a mirror
    without a pin is not."""


@dataclass(frozen=True, slots=True)
class SourceStream:
    """A file of a home, open for reading."""

    offset: int
    """Where `chunks` begin: where that was asked for, or 0."""
    size_bytes: int | None
    """Of the whole file; None where the home does not say."""
    etag: str
    """What changes when the file changes; empty where the home does not say."""
    chunks: Iterator[bytes]


class Source(Protocol):
    """One file of a home."""

    @property
    def label(self) -> str:
        """What messages call it; without secrets."""

    def open(self, offset: int, etag: str) -> AbstractContextManager[SourceStream]:
        """Open it at `offset` if it is still the version `etag` (empty: whatever it is), else at 0.

        Raises:
            SourceBusyError: it may come at the next attempt, also while chunks are read.
            ConfigError, DownloadError: it will not.
        """


def download(
    source: Source, file: Pinned, target: Path, advance: Advance, patience: RetryPolicy, max_bytes: int | None = None
) -> Download:
    """Write `source` to `target` with the size and checksum of `file`, as far as they are pinned.

    Where the checksum is pinned, a part that came from another source is gone on with.

    Raises:
        DownloadError: it is something else, cannot be had, or cannot be written.
        ConfigError: the home does not let us in.
    """
    if file.sha256 and target.is_file() and sha256_file(target) == file.sha256:
        size = target.stat().st_size
        advance(size, size)
        return Download(file.sha256, size, is_upstream=True)
    partial = _Partial(source, file, target, max_bytes)
    began = monotonic()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        resumed_at = partial.resume()
        _fill(partial, advance, patience)
        if partial.fault and resumed_at:
            # the beginning may be that of another version which the home does not tell apart
            logger.warning("%s: resumed at byte %d, %s; now fetched anew", source.label, resumed_at, partial.fault)
            partial.discard()
            _fill(partial, advance, patience)
        if fault := partial.fault:
            partial.discard()
            raise DownloadError(f"{source.label}: {fault}")
        fetched = partial.finish()
    except OSError as error:
        raise DownloadError(_unwritable(error, source.label, target)) from error
    logger.info("%s: fetched %d bytes in %.1f s", source.label, fetched.size_bytes - resumed_at, monotonic() - began)
    return fetched


def partial_bytes(target: Path) -> int:
    """Return how much of `target` lies beside it, unfinished."""
    partial = _partial_path(target)
    return partial.stat().st_size if partial.exists() else 0


def pin_fault(file: Pinned, size_bytes: int, sha256: str) -> str:
    """Return how content differs from the pins of `file`, in words; empty where it does not."""
    for what, found, expected in (("size_bytes", size_bytes, file.size_bytes), ("sha256", sha256, file.sha256)):
        if expected is not None and found != expected:
            return (
                f"{what} is {found}, but {expected} is expected; restore the file in its home,"
                " or pin the new version below configs/ if you mean to change it"
            )
    return ""


def require_throughput(chunks: Iterator[bytes], label: str, patience: RetryPolicy) -> Iterator[bytes]:
    """Yield `chunks`, none of which is empty; a connection that gives next to nothing for long is given up.

    Raises:
        SourceBusyError: it gives less than `patience` asks for.
    """
    waited_s, size = 0.0, 0
    while True:
        began = monotonic()
        chunk = next(chunks, b"")
        waited_s += monotonic() - began  # what is done with a chunk takes time too
        if not chunk:
            return
        yield chunk
        size += len(chunk)
        if waited_s >= patience.slow_s:
            if size < patience.least_bytes_per_s * waited_s:
                raise SourceBusyError(f"{label}: gave {size} bytes in {waited_s:.0f} s; check the network or its home")
            waited_s, size = 0.0, 0


def _fill(partial: "_Partial", advance: Advance, patience: RetryPolicy) -> None:
    if not partial.is_whole:
        with_retries(patience, lambda: partial.go_on(advance, patience), lambda: partial.size_bytes)


class _Partial:
    """A file in the making."""

    def __init__(self, source: Source, file: Pinned, target: Path, max_bytes: int | None) -> None:
        self._source, self._file, self._target, self._max_bytes = source, file, target, max_bytes
        self._path = _partial_path(target)
        self._state_path = target.with_name(f".{target.name}.partial-state")
        self._sha256 = hashlib.sha256()
        self.size_bytes = 0
        self._etag, self._total = "", file.size_bytes

    @property
    def is_whole(self) -> bool:
        return self._total is not None and self.size_bytes == self._total and self._path.exists()

    @property
    def fault(self) -> str:
        return pin_fault(self._file, self.size_bytes, self._sha256.hexdigest())

    def resume(self) -> int:
        """Take up what a killed download left, and return its size; 0 where there is nothing that could go on."""
        try:
            if self._state_path.stat().st_size > _MAX_STATE_BYTES:
                return 0
            state = json.loads(self._state_path.read_bytes())
            is_same_source = state["source"] == self._source.label
            etag, total = str(state["etag"]) if is_same_source else "", state["size_bytes"]
            is_ours = state["sha256"] == self._file.sha256
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return 0
        # without either, nothing would tell whether the rest belongs to the beginning; another source has other tags
        if not is_ours or not (etag or self._file.sha256) or not isinstance(total, int | None):
            return 0
        if not self._path.is_file():
            return 0
        with self._path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                self._sha256.update(chunk)
                self.size_bytes += len(chunk)
        self._etag, self._total = etag, self._file.size_bytes if total is None else total
        return self.size_bytes

    def go_on(self, advance: Advance, patience: RetryPolicy) -> None:
        """Read on where it stopped, to the end of the file or the next fault of the home."""
        can_go_on = bool(self._etag or self._file.sha256)
        with self._source.open(self.size_bytes if can_go_on else 0, self._etag) as opened:
            if opened.offset != self.size_bytes or self.size_bytes == 0:
                self._start_over(opened)
            self._check_room()
            # unbuffered: after a kill, and on a full disk, what was written is there
            with self._path.open("ab", buffering=0) as stream:
                for chunk in require_throughput(opened.chunks, self._source.label, patience):
                    self._append(stream.write, chunk)
                    advance(self.size_bytes, self._total or 0)
                fsync(stream.fileno())
        if self._total is not None and self.size_bytes < self._total:
            raise SourceBusyError(
                f"{self._source.label}: ended at byte {self.size_bytes} of {self._total}; check the network or its home"
            )

    def discard(self) -> None:
        for path in (self._path, self._state_path):
            path.unlink(missing_ok=True)
        self._sha256, self.size_bytes, self._etag, self._total = hashlib.sha256(), 0, "", self._file.size_bytes

    def finish(self) -> Download:
        """Give it the name of its target."""
        with self._path.open("rb") as stream:
            fsync(stream.fileno())
        self._path.replace(self._target)
        self._state_path.unlink(missing_ok=True)
        return Download(self._sha256.hexdigest(), self.size_bytes, is_upstream=True)

    def _start_over(self, opened: SourceStream) -> None:
        self.discard()
        if opened.size_bytes is not None:
            if self._total not in (None, opened.size_bytes):
                raise DownloadError(f"{self._source.label}: {pin_fault(self._file, opened.size_bytes, '')}")
            self._total = opened.size_bytes
        self._refuse_more_than_allowed(self._total or 0)
        self._etag = opened.etag
        self._path.write_bytes(b"")
        state = {
            "source": self._source.label,
            "etag": self._etag,
            "size_bytes": self._total,
            "sha256": self._file.sha256,
        }
        write_atomically(self._state_path, json.dumps(state))

    def _refuse_more_than_allowed(self, size_bytes: int) -> None:
        if self._max_bytes is not None and size_bytes > self._max_bytes:
            self.discard()
            raise DownloadError(
                f"{self._source.label}: has {size_bytes} bytes or more, but at most {self._max_bytes} are expected;"
                " mend its entry below configs/"
            )

    def _append(self, write: Callable[[memoryview], int | None], chunk: bytes) -> None:
        if self._total is not None and self.size_bytes + len(chunk) > self._total:
            self.discard()
            raise DownloadError(
                f"{self._source.label}: is longer than the {self._total} bytes that it should have; restore the file in"
                " its home, or pin the new version below configs/ if you mean to change it"
            )
        self._refuse_more_than_allowed(self.size_bytes + len(chunk))
        rest = memoryview(chunk)
        while rest:
            written = write(rest) or 0
            self._sha256.update(rest[:written])
            self.size_bytes += written
            rest = rest[written:]

    def _check_room(self) -> None:
        missing = (self._total or 0) - self.size_bytes
        if missing > shutil.disk_usage(self._target.parent).free:
            raise OSError(errno.ENOSPC, f"{missing} bytes more are needed")


def _partial_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


def _unwritable(error: OSError, label: str, target: Path) -> str:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return f"{label}: cannot be written to {target} ({error.strerror}); check the folder"
    free = shutil.disk_usage(target.parent).free
    return (
        f"{label}: the disk of {target} is full, {free} bytes are free ({error.strerror});"
        " make room and run again, what was fetched is kept"
    )


_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine."""

    path: Path

    @property
    def label(self) -> str:
        return str(self.path)

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise DownloadError(f"{self.path}: {explain_unreadable(error)}") from error
        with stream:
            state = os.fstat(stream.fileno())
            found = f"{state.st_ino}-{state.st_mtime_ns}-{state.st_size}"
            start = offset if etag in ("", found) and offset <= state.st_size else 0
            stream.seek(start)
            yield SourceStream(start, state.st_size, found, self._chunks(stream))

    def _chunks(self, stream: IO[bytes]) -> Iterator[bytes]:
        try:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
        except OSError as error:
            raise DownloadError(f"{self.path}: {explain_unreadable(error)}") from error


def explain_unreadable(error: OSError) -> str:
    """Return why a file cannot be read, and what to do."""
    if isinstance(error, FileNotFoundError):
        return "no such file; restore it or mend its entry below configs/"
    return f"cannot be read ({error.strerror}); restore it or mend its permissions"
