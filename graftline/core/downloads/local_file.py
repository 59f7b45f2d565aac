"""A file of this machine, as something to download."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from graftline.core.downloads.download import Opened
from graftline.core.errors import DownloadError

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine."""

    path: Path

    @property
    def label(self) -> str:
        return str(self.path)

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[Opened]:
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise DownloadError(f"{self.path}: {unreadable(error)}") from error
        with stream:
            state = os.fstat(stream.fileno())
            found = f"{state.st_ino}-{state.st_mtime_ns}-{state.st_size}"
            start = offset if etag in ("", found) and offset <= state.st_size else 0
            stream.seek(start)
            yield Opened(start, state.st_size, found, self._chunks(stream))

    def _chunks(self, stream: IO[bytes]) -> Iterator[bytes]:
        try:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
        except OSError as error:
            raise DownloadError(f"{self.path}: {unreadable(error)}") from error


def unreadable(error: OSError) -> str:
    """Return why a file cannot be read, and what to do."""
    if isinstance(error, FileNotFoundError):
        return "no such file; restore it or mend its entry below configs/"
    return f"cannot be read ({error.strerror}); restore it or mend its permissions"
