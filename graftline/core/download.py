"""The one way a file comes from its source: resumed, verified, whole or not at all; or read once as a stream.

A download grows in `.<name>.partial` beside its target; `.<name>.partial-state` says which version of which file it is a
part of. A target that has the pinned checksum is not fetched again; one without a pin is, for nothing else says that it
is right. huggingface_hub, fsspec and pip resume by size alone or not at all: neither a checksum nor a new version at the
same address would be noticed.
"""

import errno
import hashlib
import io
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Protocol

from graftline.core.errors import DownloadError
from graftline.core.hashing import sha256_file
from graftline.core.record import sync, write_atomically
from graftline.core.retry import RetryPolicy, SourceBusyError, with_retries

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_MAX_STATE_BYTES = 1 << 16

Advance = Callable[[int, int], None]
"""Called with the bytes done and the total; 0 for an unknown number."""


class Pinned(Protocol):
    """What a file has to be; None where that is not known."""

    @property
    def sha256(self) -> str | None: ...

    @property
    def size_bytes(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Pins:
    """What a file that no catalog describes has to be."""

    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Download:
    """A file as it came."""

    sha256: str
    size_bytes: int
    is_upstream: bool
    """Whether it is the file of the pinned revision; a file of a mirror without a pin is not."""


@dataclass(frozen=True, slots=True)
class SourceStream:
    """A file of a source, open for reading; it may not say how large the file is, or which version."""

    offset: int
    """Where `chunks` begin: where that was asked for, or 0."""
    size_bytes: int | None
    etag: str
    """What changes when the file changes, or nothing."""
    chunks: Iterator[bytes]


class Source(Protocol):
    """Where one file comes from."""

    @property
    def label(self) -> str:
        """What messages call it; without secrets."""

    def open(self, offset: int, etag: str) -> AbstractContextManager[SourceStream]:
        """Open it at `offset` if it is still the version `etag` (empty: whatever it is), else at 0.

        Raises:
            SourceBusyError: it may come at the next attempt, also while chunks are read.
            ConfigError, DownloadError: it will not.
        """


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine, as a source."""

    path: Path

    @property
    def label(self) -> str:
        return str(self.path)

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise self._unreadable(error) from error
        with stream:
            state = os.fstat(stream.fileno())
            version = f"{state.st_ino}-{state.st_mtime_ns}-{state.st_size}"
            start = offset if etag in ("", version) and offset <= state.st_size else 0
            stream.seek(start)
            yield SourceStream(start, state.st_size, version, self._chunks(stream))

    def _chunks(self, stream: IO[bytes]) -> Iterator[bytes]:
        try:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> DownloadError:
        if isinstance(error, FileNotFoundError):
            return DownloadError(f"{self.path}: no such file; restore it or mend its entry below configs/")
        return DownloadError(f"{self.path}: cannot be read ({error.strerror}); restore it or mend its permissions")


def download(
    source: Source, file: Pinned, target: Path, advance: Advance, policy: RetryPolicy, max_bytes: int | None = None
) -> Download:
    """Write `source` to `target` with the size and checksum of `file`, as far as they are pinned.

    Where the checksum is pinned, a part that came from another source is continued.

    Raises:
        ConfigError, DownloadError: it is something else, cannot be had, or cannot be written.
    """
    if file.sha256 and target.is_file() and sha256_file(target) == file.sha256:
        size = target.stat().st_size
        advance(size, size)
        return Download(file.sha256, size, is_upstream=True)
    partial = _Partial(source, file, target, max_bytes)
    start_s = monotonic()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        resumed_at = partial.resume()
        partial.fill(advance, policy)
        if partial.fault and resumed_at:
            # the beginning may be that of another version which the source does not tell apart
            logger.warning("%s: resumed at byte %d, %s; now fetched anew", source.label, resumed_at, partial.fault)
            partial.discard()
            partial.fill(advance, policy)
        if fault := partial.fault:
            partial.discard()
            raise DownloadError(f"{source.label}: {fault}")
        result = partial.finish()
    except OSError as error:
        raise DownloadError(_explain_unwritable(error, source.label, target)) from error
    logger.info("%s: fetched %d bytes in %.1f s", source.label, result.size_bytes - resumed_at, monotonic() - start_s)
    return result


def partial_bytes(target: Path) -> int:
    """Return how much of `target` lies beside it, unfinished."""
    partial = _partial_path(target)
    return partial.stat().st_size if partial.exists() else 0


def pin_fault(file: Pinned, size_bytes: int, sha256: str) -> str:
    """Return how content differs from the pins of `file`, in words; empty where it does not."""
    for name, actual, expected in (("size_bytes", size_bytes, file.size_bytes), ("sha256", sha256, file.sha256)):
        if expected is not None and actual != expected:
            return (
                f"{name} is {actual}, but {expected} is expected; restore the file at its source,"
                " or pin the new version below configs/ if you mean to change it"
            )
    return ""


class _Partial:
    """A file in the making."""

    def __init__(self, source: Source, file: Pinned, target: Path, max_bytes: int | None) -> None:
        self._source, self._file, self._target, self._max_bytes = source, file, target, max_bytes
        self._path = _partial_path(target)
        self._state_path = target.with_name(f".{target.name}.partial-state")
        self._sha256, self.size_bytes, self._etag, self._total = hashlib.sha256(), 0, "", file.size_bytes

    @property
    def fault(self) -> str:
        return pin_fault(self._file, self.size_bytes, self._sha256.hexdigest())

    def resume(self) -> int:
        """Take up what a killed download left, and return its size; 0 where there is nothing that can be continued."""
        try:
            if self._state_path.stat().st_size > _MAX_STATE_BYTES:
                return 0
            state = json.loads(self._state_path.read_bytes())
            etag, total = str(state["etag"]) if state["source"] == self._source.label else "", state["size_bytes"]
            has_same_pin = state["sha256"] == self._file.sha256
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return 0
        # without tag and pin, nothing would tell whether the rest belongs to the beginning; another source has other tags
        is_checkable = has_same_pin and bool(etag or self._file.sha256)
        if not is_checkable or not isinstance(total, int | None) or not self._path.is_file():
            return 0
        with self._path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                self._sha256.update(chunk)
                self.size_bytes += len(chunk)
        self._etag, self._total = etag, self._file.size_bytes if total is None else total
        return self.size_bytes

    def fill(self, advance: Advance, policy: RetryPolicy) -> None:
        """Read to the end of the file, through faults of the source."""
        if self._total is None or self.size_bytes != self._total or not self._path.exists():
            with_retries(policy, lambda: self._read_on(advance, policy), lambda: self.size_bytes)

    def discard(self) -> None:
        for path in (self._path, self._state_path):
            path.unlink(missing_ok=True)
        self._sha256, self.size_bytes, self._etag, self._total = hashlib.sha256(), 0, "", self._file.size_bytes

    def finish(self) -> Download:
        """Give it the name of its target."""
        sync(self._path)
        self._path.replace(self._target)
        self._state_path.unlink(missing_ok=True)
        return Download(self._sha256.hexdigest(), self.size_bytes, is_upstream=True)

    def _read_on(self, advance: Advance, policy: RetryPolicy) -> None:
        """Continue where it stopped, to the end of the file or the next fault of the source."""
        can_continue = bool(self._etag or self._file.sha256)
        with self._source.open(self.size_bytes if can_continue else 0, self._etag) as opened:
            if opened.offset != self.size_bytes or self.size_bytes == 0:
                self._start_over(opened)
            missing = (self._total or 0) - self.size_bytes
            if missing > shutil.disk_usage(self._target.parent).free:
                raise OSError(errno.ENOSPC, f"{missing} bytes more are needed")
            # unbuffered: after a kill, and on a full disk, what was written is there
            with self._path.open("ab", buffering=0) as stream:
                for chunk in require_throughput(opened.chunks, self._source.label, policy):
                    self._append(stream.write, chunk)
                    advance(self.size_bytes, self._total or 0)
                os.fsync(stream.fileno())
        if self._total is not None and self.size_bytes < self._total:
            raise SourceBusyError(
                f"{self._source.label}: ended at byte {self.size_bytes} of {self._total}; check the network or its source"
            )

    def _start_over(self, opened: SourceStream) -> None:
        self.discard()
        if opened.size_bytes is not None:
            if self._total not in (None, opened.size_bytes):
                raise DownloadError(f"{self._source.label}: {pin_fault(self._file, opened.size_bytes, '')}")
            self._total = opened.size_bytes
        self._check_limit(self._total or 0)
        self._etag = opened.etag
        self._path.write_bytes(b"")
        state = {"source": self._source.label, "etag": self._etag, "size_bytes": self._total}
        write_atomically(self._state_path, json.dumps({**state, "sha256": self._file.sha256}))

    def _check_limit(self, size_bytes: int) -> None:
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
                " its source, or pin the new version below configs/ if you mean to change it"
            )
        self._check_limit(self.size_bytes + len(chunk))
        remaining = memoryview(chunk)
        while remaining:
            written = write(remaining) or 0
            self._sha256.update(remaining[:written])
            self.size_bytes += written
            remaining = remaining[written:]


def raise_download_error(fault: str) -> None:
    """Refuse content that is not as pinned."""
    raise DownloadError(fault)


@contextmanager
def open_stream(
    source: Source, file: Pinned, policy: RetryPolicy, on_fault: Callable[[str], None] = raise_download_error
) -> Iterator[IO[bytes]]:
    """Open `source` for reading once, across torn connections; the read that finds the end checks the pins of `file`."""
    raw = _Stream(source, file, policy, on_fault)
    with io.BufferedReader(raw, _CHUNK_BYTES) as stream:
        with_retries(policy, raw.open)  # now, so that a source that does not let us in says so before anything is done
        yield stream


class _Stream(io.RawIOBase):
    def __init__(self, source: Source, file: Pinned, policy: RetryPolicy, on_fault: Callable[[str], None]) -> None:
        self._source, self._file, self._policy, self._on_fault = source, file, policy, on_fault
        self._connection = ExitStack()
        self._chunks: Iterator[bytes] | None = None
        self._buffer = memoryview(b"")
        self._sha256, self._size_bytes = hashlib.sha256(), 0
        self._etag, self._total = "", file.size_bytes
        self._has_ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if not self._buffer and not self._has_ended:
            chunk = with_retries(self._policy, self._next)
            self._buffer = memoryview(chunk)
            self._sha256.update(chunk)
            self._has_ended = not chunk
            if self._has_ended and (fault := pin_fault(self._file, self._size_bytes, self._sha256.hexdigest())):
                self._on_fault(f"{self._source.label}: {fault}")
        room = memoryview(buffer).cast("B")
        size = min(len(room), len(self._buffer))
        room[:size] = self._buffer[:size]
        self._buffer = self._buffer[size:]
        return size

    def close(self) -> None:
        self._connection.close()
        super().close()

    def _next(self) -> bytes:
        """Return the next chunk, empty at the end."""
        label = self._source.label
        try:
            chunk = next(self.open(), b"")
            if not chunk and self._total is not None and self._size_bytes < self._total:
                raise SourceBusyError(f"{label}: ended at byte {self._size_bytes} of {self._total}; check the network")
        except SourceBusyError:
            self._chunks = None
            self._connection.close()
            raise
        self._size_bytes += len(chunk)
        return chunk

    def open(self) -> Iterator[bytes]:
        if self._chunks is None:
            opened = self._connection.enter_context(self._source.open(self._size_bytes, self._etag))
            # with a pin, another file shows at the end
            is_same = bool(self._file.sha256) or (bool(self._etag) and opened.etag == self._etag)
            if self._size_bytes and not is_same:
                raise DownloadError(f"{self._source.label}: changed while it was read; run again")
            self._etag = opened.etag
            self._total = self._file.size_bytes if opened.size_bytes is None else opened.size_bytes
            chunks = _skip(opened.chunks, self._size_bytes - opened.offset)
            self._chunks = require_throughput(chunks, self._source.label, self._policy)
        return self._chunks


def require_throughput(chunks: Iterator[bytes], label: str, policy: RetryPolicy) -> Iterator[bytes]:
    """Yield `chunks`, none of which is empty; SourceBusyError if the connection gives less than `policy` asks for."""
    waited_s, size = 0.0, 0
    while True:
        start_s = monotonic()
        chunk = next(chunks, b"")
        waited_s += monotonic() - start_s  # what is done with a chunk takes time too
        if not chunk:
            return
        yield chunk
        size += len(chunk)
        if waited_s >= policy.slow_s:
            if size < policy.least_bytes_per_s * waited_s:
                raise SourceBusyError(
                    f"{label}: gave {size} bytes in {waited_s:.0f} s; check the network or its source"
                )
            waited_s, size = 0.0, 0


def _skip(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Yield what comes after `count` bytes: not every source begins where it was asked to."""
    for chunk in chunks:
        if count < len(chunk):
            yield chunk[count:]
        count = max(0, count - len(chunk))


def _partial_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


def _explain_unwritable(error: OSError, label: str, target: Path) -> str:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return f"{label}: cannot be written to {target} ({error.strerror}); check the folder"
    free = shutil.disk_usage(target.parent).free
    return (
        f"{label}: the disk of {target} is full, {free} bytes are free ({error.strerror});"
        " make room and run again, what was fetched is kept"
    )
