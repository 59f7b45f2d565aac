"""Datasets in a folder: what `graftline trajectories export` wrote, and any other file of JSON lines."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from graftline.core.errors import DataError
from graftline.core.hashing import sha256_file
from graftline.datasets.store.base import SUFFIX, checked_name, missing


class FilesDatasetStore:
    """The files below `folder`, but for hidden ones and those in hidden folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def label(self) -> str:
        return str(self._folder)

    def names(self, prefix: str = "") -> list[str]:
        self._check()
        if any(part.startswith(".") for part in prefix.split("/")) or prefix.startswith("/"):
            return []  # no name does
        # only what can hold such names is looked through
        start = self._folder / prefix.rpartition("/")[0]
        found = []
        for folder, below, files in os.walk(start):
            below[:] = [name for name in below if not name.startswith(".")]
            found += [Path(folder) / name for name in files if name.endswith(SUFFIX) and not name.startswith(".")]
        names = sorted(path.relative_to(self._folder).as_posix() for path in found)
        return [name for name in names if name.startswith(prefix)]

    def open(self, name: str) -> IO[bytes]:
        try:
            return self._path(name).open("rb")
        except OSError as error:
            raise DataError(f"{self.label}: {name!r} cannot be read ({error.strerror}); mend the file") from None

    def sha256(self, name: str) -> str:
        try:
            return sha256_file(self._path(name))
        except OSError as error:
            raise DataError(f"{self.label}: {name!r} cannot be read ({error.strerror}); mend the file") from None

    @contextmanager
    def folder(self) -> Iterator[Path]:
        self._check()
        yield self._folder

    def _check(self) -> None:
        if not self._folder.is_dir():
            raise DataError(f"{self._folder}: is no folder; name the one that datasets are in")

    def _path(self, name: str) -> Path:
        path = self._folder / checked_name(name)
        if not path.is_file():
            raise missing(self.label, name, self.names(name[: name.rfind("/") + 1]))
        return path
