"""Homes that are folders below the root: the samples of the checkout."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from graftline.datasets.catalogue import Dataset
from graftline.datasets.hub.download import Opened
from graftline.datasets.hub.folder import FolderHub
from graftline.datasets.hub.retry import Patience
from graftline.errors import ConfigError, DatasetError
from graftline.hashing import digest, sha256_file
from graftline.paths import portable

_CHUNK_BYTES = 1 << 20


def local_hub(root: Path) -> FolderHub:
    """Return the hub whose homes are folders below `root`."""
    return FolderHub(lambda name, dataset: LocalFolder(root / local_home(name, dataset)), Patience())


def local_home(name: str, dataset: Dataset) -> Path:
    """Return the home of `dataset`, relative to the root.

    Raises:
        ConfigError: it is nowhere, or not a folder.
        DataError: it is no relative path.
    """
    if dataset.home is None:
        raise ConfigError(
            f"dataset {name!r}: nobody knows its home; state `home` in configs/datasets.yaml,"
            " or set GRAFTLINE_DATASET_MIRROR"
        )
    if "://" in dataset.home:
        raise ConfigError(
            f"dataset {name!r}: its home {dataset.home!r} is not a folder below the root;"
            " use `dataset_hub: {kind: homes}` in the manifest, or set GRAFTLINE_DATASET_MIRROR"
        )
    return Path(portable(dataset.home))


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of this machine."""

    folder: Path

    @property
    def label(self) -> str:
        return str(self.folder)

    def paths(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.folder, onerror=self._refuse):
            for name in names:
                yield (Path(folder) / name).relative_to(self.folder).as_posix()

    def has(self, path: str) -> bool:
        return (self.folder / portable(path)).is_file()

    def fingerprint(self, path: str) -> str:
        try:
            return sha256_file(self.folder / portable(path))
        except OSError as error:
            raise DatasetError(f"{self.folder / path}: {_reason(error)}") from error

    def stamp(self, path: str) -> str:
        try:
            found = (self.folder / portable(path)).stat()
        except OSError as error:
            raise DatasetError(f"{self.folder / path}: {_reason(error)}") from error
        return digest([found.st_size, found.st_mtime_ns, found.st_ino])

    def source(self, path: str) -> "LocalFile":
        return LocalFile(self.folder / portable(path))

    def _refuse(self, error: OSError) -> None:
        raise DatasetError(f"{self.folder}: cannot be listed ({error.strerror}); restore it or mend `home`") from error


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
            raise DatasetError(f"{self.path}: {_reason(error)}") from error
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
            raise DatasetError(f"{self.path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file; restore it or mend `home` and `files` in configs/datasets.yaml"
    return f"cannot be read ({error.strerror}); restore it or mend its permissions"
