"""Sources that are folders: below the root of the checkout, and of the file systems that fsspec knows.

Those of fsspec are `s3://…`, `gs://…`, `file:///…`, `memory://…` and others; https://filesystem-spec.readthedocs.io
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from graftline.core.download import SourceStream
from graftline.core.errors import ConfigError, DownloadError, GraftlineError
from graftline.core.hashing import digest
from graftline.core.paths import portable
from graftline.core.retry import RetryPolicy, SourceBusyError, with_retries
from graftline.core.web import public_url
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.base import FolderHub

_CHUNK_BYTES = 1 << 20
_NEAR = frozenset({"file", "local", "memory"})
"""Where reading everything costs little, and times say less than content."""


def local_hub(root: Path) -> FolderHub:
    """Return the hub of folders below `root`; a fault of the disk is not waited for."""
    policy = RetryPolicy(deadline_s=0.0)

    def open_local(name: str, dataset: Dataset) -> FilesystemFolder:
        from fsspec.implementations.local import LocalFileSystem

        folder = str(root / _relative_folder(name, dataset))
        return FilesystemFolder(LocalFileSystem(), folder, folder, policy)

    return FolderHub(open_local, policy)


def _relative_folder(name: str, dataset: Dataset) -> Path:
    if dataset.url is None:
        raise ConfigError(
            f"dataset {name!r}: nobody knows its source; state `url` in configs/datasets.yaml,"
            " or set GRAFTLINE_DATASET_MIRROR"
        )
    if "://" in dataset.url:
        raise ConfigError(
            f"dataset {name!r}: its url {dataset.url!r} is not a folder below the root;"
            " use `dataset_hub: {kind: sources}` in the manifest, or set GRAFTLINE_DATASET_MIRROR"
        )
    return Path(portable(dataset.url))


def filesystem_hub(patience: RetryPolicy) -> FolderHub:
    """Return the hub of URLs that fsspec knows."""
    return FolderHub(lambda name, dataset: open_folder(dataset.url or "", patience), patience)


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

    def names(self) -> list[str]:
        """Return the names of what lies in it, files and folders; DownloadError if it cannot be listed."""
        with _reading(self.label):
            paths = self.filesystem.ls(self.folder, detail=False)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def paths(self) -> Iterator[str]:
        yield from (path.removeprefix(f"{self.folder}/") for path in with_retries(self.patience, self._list))

    def has(self, path: str) -> bool:
        file = self.source(path)
        return with_retries(self.patience, file.exists)

    def fingerprint(self, path: str) -> str:
        file = self.source(path)
        return with_retries(self.patience, file.sha256 if self._is_near() else file.stamp)

    def stamp(self, path: str) -> str:
        return with_retries(self.patience, self.source(path).stamp)

    def source(self, path: str) -> "FilesystemFile":
        return FilesystemFile(self.filesystem, f"{self.folder}/{portable(path)}", f"{self.label}/{path}")

    def _list(self) -> list[str]:
        with _reading(self.label):
            if not self.filesystem.isdir(self.folder):
                raise DownloadError(f"{self.label}: no such folder; restore it or mend `url` of the dataset")
            # some clients of services take no such option, and have no folders that cannot be read
            options = {"on_error": "raise"} if self._is_near() else {}
            return list(self.filesystem.find(self.folder, **options))

    def _is_near(self) -> bool:
        protocol = self.filesystem.protocol
        return not _NEAR.isdisjoint({protocol} if isinstance(protocol, str) else protocol)


@dataclass(frozen=True, slots=True)
class FilesystemFile:
    """A file of a file system of fsspec."""

    filesystem: Any
    path: str
    label: str

    def exists(self) -> bool:
        with _reading(self.label):
            return bool(self.filesystem.isfile(self.path))

    def sha256(self) -> str:
        content = sha256()
        with _reading(self.label), self.filesystem.open(self.path, "rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                content.update(chunk)
        return content.hexdigest()

    def stamp(self) -> str:
        """Return what changes with the file: of a bucket its ETag, of files near by what the system says of size and time."""
        with _reading(self.label):
            return digest([str(self.filesystem.checksum(self.path)), self.filesystem.size(self.path)])

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        with _reading(self.label):
            current, size_bytes = str(self.filesystem.checksum(self.path)), self.filesystem.size(self.path)
            stream = self.filesystem.open(self.path, "rb")
        with stream:
            start = offset if etag in ("", current) and (size_bytes is None or offset <= size_bytes) else 0
            yield SourceStream(start, size_bytes, current, self._chunks(stream, start))

    def _chunks(self, stream: IO[bytes], start: int) -> Iterator[bytes]:
        with _reading(self.label):
            stream.seek(start)
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk


@contextmanager
def _reading(label: str) -> Iterator[None]:
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
        raise DownloadError(f"{label}: no such file; restore it or mend `url` and `files` of the dataset") from error
    except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise DownloadError(f"{label}: {_cause(error)}; check its permissions and the credentials") from error
    except OSError as error:
        raise SourceBusyError(f"{label}: {_cause(error)}; check the network or its source") from error
    except Exception as error:  # there is a vendor behind each of them, with errors of its own
        raise DownloadError(f"{label}: {_cause(error)}; check `url` and the credentials") from error


def _cause(error: Exception) -> str:
    return f"cannot be read ({type(error).__name__}: {_first_line(error)})"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
