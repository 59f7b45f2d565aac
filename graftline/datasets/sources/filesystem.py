"""Homes that fsspec knows: `s3://…`, `gs://…`, `file:///…`, `memory://…` and others.

https://filesystem-spec.readthedocs.io
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import IO, Any

from graftline.core.download import SourceStream
from graftline.core.errors import ConfigError, DownloadError, GraftlineError
from graftline.core.hashing import digest
from graftline.core.paths import portable
from graftline.core.retry import RetryPolicy, SourceBusyError, with_retries
from graftline.core.web import public_url
from graftline.datasets.sources.folder import FolderHub

_CHUNK_BYTES = 1 << 20
_NEAR = frozenset({"file", "local", "memory"})
"""Where reading everything costs little, and times say less than content."""


def filesystem_hub(patience: RetryPolicy) -> FolderHub:
    """Return the hub whose homes are URLs that fsspec knows."""
    return FolderHub(lambda name, dataset: open_folder(dataset.home or "", patience), patience)


def open_folder(url: str, patience: RetryPolicy) -> "FilesystemFolder":
    """Return the folder at `url`, which may also be a path of this machine.

    Raises:
        ConfigError: nothing installed knows such a URL.
    """
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{public_url(url)}: {_first_line(error)}; install what fsspec needs for it, or mend it"
        ) from None
    except Exception as error:
        raise DownloadError(f"{public_url(url)}: {_cause(error)}") from error
    filesystem.invalidate_cache()  # it keeps listings as long as the process lives
    return FilesystemFolder(filesystem, path.rstrip("/"), public_url(url).rstrip("/"), patience)


@dataclass(frozen=True, slots=True)
class FilesystemFolder:
    """A folder of a file system of fsspec."""

    filesystem: Any
    folder: str
    label: str
    patience: RetryPolicy

    def paths(self) -> Iterator[str]:
        found = with_retries(self.patience, self._found)
        yield from (path.removeprefix(f"{self.folder}/") for path in found)

    def names(self) -> list[str]:
        """Return the names of what lies in it, files and folders.

        Raises:
            DownloadError: it cannot be listed.
        """
        with faults(self.label):
            listed = self.filesystem.ls(self.folder, detail=False)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in listed)

    def has(self, path: str) -> bool:
        return with_retries(self.patience, lambda: self._has(path))

    def fingerprint(self, path: str) -> str:
        return with_retries(self.patience, lambda: self._fingerprint(path))

    def stamp(self, path: str) -> str:
        return with_retries(self.patience, lambda: self._stamp(path))

    def source(self, path: str) -> "FilesystemFile":
        return FilesystemFile(self.filesystem, f"{self.folder}/{portable(path)}", f"{self.label}/{path}")

    def _found(self) -> list[str]:
        with faults(self.label):
            if not self.filesystem.isdir(self.folder):
                raise DownloadError(f"{self.label}: no such folder; restore it or mend `home` of the dataset")
            return list(self.filesystem.find(self.folder))

    def _has(self, path: str) -> bool:
        with faults(f"{self.label}/{path}"):
            return bool(self.filesystem.isfile(f"{self.folder}/{portable(path)}"))

    def _fingerprint(self, path: str) -> str:
        file = self.source(path)
        with faults(file.label):
            if not _NEAR.isdisjoint(_protocols(self.filesystem)):
                content = sha256()
                with self.filesystem.open(file.path, "rb") as stream:
                    while chunk := stream.read(_CHUNK_BYTES):
                        content.update(chunk)
                return content.hexdigest()
        return self._stamp(path)

    def _stamp(self, path: str) -> str:
        # of a bucket that is its ETag, of files near by what the system says of size and time
        file = self.source(path)
        with faults(file.label):
            return digest([str(self.filesystem.checksum(file.path)), self.filesystem.size(file.path)])


@dataclass(frozen=True, slots=True)
class FilesystemFile:
    """A file of a file system of fsspec."""

    filesystem: Any
    path: str
    label: str

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        with faults(self.label):
            found, size_bytes = str(self.filesystem.checksum(self.path)), self.filesystem.size(self.path)
            stream = self.filesystem.open(self.path, "rb")
        with stream:
            start = offset if etag in ("", found) and (size_bytes is None or offset <= size_bytes) else 0
            yield SourceStream(start, size_bytes, found, self._chunks(stream, start))

    def _chunks(self, stream: IO[bytes], start: int) -> Iterator[bytes]:
        with faults(self.label):
            stream.seek(start)
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk


@contextmanager
def faults(label: str) -> Iterator[None]:
    """Say what goes wrong in a file system as our own errors.

    Raises:
        SourceBusyError: it may work at the next attempt.
        DownloadError: it will not.
    """
    try:
        yield
    except GraftlineError:
        raise
    except FileNotFoundError as error:
        raise DownloadError(f"{label}: no such file; restore it or mend `home` and `files` of the dataset") from error
    except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise DownloadError(f"{label}: {_cause(error)}; check its permissions and the credentials") from error
    except OSError as error:
        raise SourceBusyError(f"{label}: {_cause(error)}; check the network or its home") from error
    except Exception as error:  # there is a vendor behind each of them, with errors of its own
        raise DownloadError(f"{label}: {_cause(error)}; check `home` and the credentials") from error


def _protocols(filesystem: Any) -> set[str]:
    return {filesystem.protocol} if isinstance(filesystem.protocol, str) else set(filesystem.protocol)


def _cause(error: Exception) -> str:
    return f"cannot be read ({type(error).__name__}: {_first_line(error)})"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
