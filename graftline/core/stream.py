"""A file of a home read once and not kept, across torn connections."""

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING

from graftline.core.download import Pinned, Source, SourceStream, pin_fault, require_throughput
from graftline.core.errors import DownloadError
from graftline.core.retry import RetryPolicy, SourceBusyError, with_retries

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER_BYTES = 1 << 20


def raise_download_error(fault: str) -> None:
    """Raise DownloadError: what is to be done with content that is not as pinned, unless somebody knows better."""
    raise DownloadError(fault)


@contextmanager
def open_stream(
    source: Source, file: Pinned, patience: RetryPolicy, on_fault: Callable[[str], None] = raise_download_error
) -> Iterator[IO[bytes]]:
    """Open `source` for reading once; the read that finds the end checks the pins of `file`."""
    raw = _Stream(source, file, patience, on_fault)
    with io.BufferedReader(raw, _BUFFER_BYTES) as stream:
        raw.open()  # now, so that a home that does not let us in says so before anything is done
        yield stream


class _Stream(io.RawIOBase):
    def __init__(self, source: Source, file: Pinned, patience: RetryPolicy, on_fault: Callable[[str], None]) -> None:
        self._source, self._file, self._patience, self._on_fault = source, file, patience, on_fault
        self._connection = ExitStack()
        self._chunks: Iterator[bytes] | None = None
        self._waiting = memoryview(b"")
        self._sha256, self._size_bytes = hashlib.sha256(), 0
        self._etag, self._total = "", file.size_bytes
        self._has_ended = False

    def open(self) -> None:
        with_retries(self._patience, self._opened)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if not self._waiting and not self._has_ended:
            chunk = with_retries(self._patience, self._next)
            self._waiting = memoryview(chunk)
            self._sha256.update(chunk)
            self._has_ended = not chunk
            if self._has_ended and (fault := pin_fault(self._file, self._size_bytes, self._sha256.hexdigest())):
                self._on_fault(f"{self._source.label}: {fault}")
        room = memoryview(buffer).cast("B")
        size = min(len(room), len(self._waiting))
        room[:size] = self._waiting[:size]
        self._waiting = self._waiting[size:]
        return size

    def close(self) -> None:
        self._connection.close()
        super().close()

    def _next(self) -> bytes:
        """Return the next chunk, empty at the end."""
        try:
            chunk = next(self._opened(), b"")
            if not chunk and self._total is not None and self._size_bytes < self._total:
                raise SourceBusyError(
                    f"{self._source.label}: ended at byte {self._size_bytes} of {self._total}; check the network"
                )
        except SourceBusyError:
            self._chunks = None
            self._connection.close()
            raise
        self._size_bytes += len(chunk)
        return chunk

    def _opened(self) -> Iterator[bytes]:
        if self._chunks is None:
            opened = self._connection.enter_context(self._source.open(self._size_bytes, self._etag))
            if self._size_bytes and not self._is_same(opened):
                raise DownloadError(f"{self._source.label}: changed while it was read; run again")
            self._etag = opened.etag
            self._total = self._file.size_bytes if opened.size_bytes is None else opened.size_bytes
            self._chunks = require_throughput(_from(opened, self._size_bytes), self._source.label, self._patience)
        return self._chunks

    def _is_same(self, opened: SourceStream) -> bool:
        # with a pin, another file shows at the end
        return bool(self._file.sha256) or (bool(self._etag) and opened.etag == self._etag)


def _from(opened: SourceStream, offset: int) -> Iterator[bytes]:
    """Yield what comes after `offset`: not every home begins where it was asked to."""
    skipped = opened.offset
    for chunk in opened.chunks:
        if skipped + len(chunk) <= offset:
            skipped += len(chunk)
            continue
        rest = chunk[max(0, offset - skipped) :]
        skipped += len(chunk) - len(rest)
        yield rest
