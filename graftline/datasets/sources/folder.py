"""Homes that are folders of some kind, as one `DatasetHub`: what is left to them is to list and to open.

Not here: the kinds, in `local`, `memory` and `filesystem`.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol

from graftline.core.download import Advance, Download, Source, download, open_stream
from graftline.core.errors import DownloadError
from graftline.core.hashing import digest
from graftline.core.retry import RetryPolicy
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Observation
from graftline.datasets.sources.listing import MAX_LISTED, Facts, entries, resolved


class Folder(Protocol):
    """A folder with files. Everything raises DownloadError where it cannot be read."""

    @property
    def label(self) -> str:
        """What messages call it; without secrets."""

    def paths(self) -> Iterable[str]:
        """Yield the paths of all files below it, relative to it."""

    def has(self, path: str) -> bool:
        """Return whether there is a file called `path`."""

    def fingerprint(self, path: str) -> str:
        """Return what changes when the content of `path` changes."""

    def stamp(self, path: str) -> str:
        """Return what changes when `path` is written to, without reading it."""

    def source(self, path: str) -> Source:
        """Return `path` as something to download."""


def listed_paths(folder: Folder) -> list[str]:
    """Return the paths of `folder`, sorted.

    Raises:
        DownloadError: there are too many.
    """
    paths: list[str] = []
    for path in folder.paths():
        paths.append(path)
        if len(paths) > MAX_LISTED:
            raise DownloadError(f"{folder.label}: holds more than {MAX_LISTED} files; name the folder of the dataset")
    return sorted(paths)


def files_of(folder: Folder, dataset: Dataset) -> list[DatasetFile]:
    """Return the files of `dataset` in `folder`.

    Raises:
        DownloadError: there is none for an entry.
    """
    wanted = entries(dataset)
    if any(entry.is_pattern for entry in wanted):
        paths = listed_paths(folder)
    else:
        paths = [entry.path for entry in wanted if folder.has(entry.path)]
    return resolved(folder.label, dataset, {path: Facts() for path in paths})


def revision_of(folder: Folder, files: Sequence[DatasetFile]) -> str:
    """Return the digest of the names and contents of `files`."""
    return digest([[file.path, folder.fingerprint(file.path)] for file in files])


def observed(folder: Folder, files: Sequence[DatasetFile], known: Observation | None) -> Observation:
    """Look at `files`; they are read only when one was written to since the look that found `known`."""
    stamp = digest([[file.path, folder.stamp(file.path)] for file in files])
    return known if known and known.etag == stamp else Observation(revision_of(folder, files), stamp)


class FolderHub:
    """Homes that are folders."""

    def __init__(self, open_folder: Callable[[str, Dataset], Folder], patience: RetryPolicy) -> None:
        self._open, self._patience = open_folder, patience

    def revision(self, name: str, dataset: Dataset) -> str:
        folder = self._open(name, dataset)
        return revision_of(folder, files_of(folder, dataset))

    def observe(self, name: str, dataset: Dataset, known: Observation | None) -> Observation:
        folder = self._open(name, dataset)
        return observed(folder, files_of(folder, dataset), known)

    def is_home(self, name: str, dataset: Dataset) -> bool:
        return True

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        return files_of(self._open(name, dataset), dataset)

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        return download(self._open(name, dataset).source(file.path), file, target, advance, self._patience)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        return open_stream(self._open(name, dataset).source(file.path), file, self._patience)
