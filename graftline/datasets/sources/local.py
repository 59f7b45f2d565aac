"""Homes that are folders below the root: the samples of the checkout."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graftline.core.download import LocalFile, explain_unreadable
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.hashing import digest, sha256_file
from graftline.core.paths import portable
from graftline.core.retry import RetryPolicy
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.folder import FolderHub


def local_hub(root: Path) -> FolderHub:
    """Return the hub whose homes are folders below `root`."""
    return FolderHub(lambda name, dataset: LocalFolder(root / local_home(name, dataset)), RetryPolicy())


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
            raise DownloadError(f"{self.folder / path}: {explain_unreadable(error)}") from error

    def stamp(self, path: str) -> str:
        try:
            found = (self.folder / portable(path)).stat()
        except OSError as error:
            raise DownloadError(f"{self.folder / path}: {explain_unreadable(error)}") from error
        return digest([found.st_size, found.st_mtime_ns, found.st_ino])

    def source(self, path: str) -> LocalFile:
        return LocalFile(self.folder / portable(path))

    def _refuse(self, error: OSError) -> None:
        raise DownloadError(f"{self.folder}: cannot be listed ({error.strerror}); restore it or mend `home`") from error
