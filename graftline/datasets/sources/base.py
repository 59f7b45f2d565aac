"""The `DatasetHub` port: where the files of datasets are; and what its implementations share.

A result is a file, whole and of the pinned checksum. A source that cannot be read, or holds something else than was
pinned, is an error: training on other bytes than were asked for is worse than not training.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from graftline.core.download import Advance, Download, Source, download, open_stream
from graftline.core.errors import DownloadError
from graftline.core.hashing import digest
from graftline.core.paths import portable
from graftline.core.retry import RetryPolicy
from graftline.datasets.catalog import Dataset, DatasetFile

MIRROR_VARIABLE = "GRAFTLINE_DATASET_MIRROR"
"""Names the mirror, in the environment."""
MAX_LISTED = 100_000
"""So many files are looked at in one source."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a look at a source showed."""

    revision: str
    """The newest revision there is, whatever is pinned."""
    etag: str = ""
    """By which the next look asks whether anything changed; empty where the source has no such thing."""


class DatasetHub(Protocol):
    """Reads the sources of datasets. `name` is that of the dataset in the catalog, by which a mirror knows it.

    Of a dataset that follows its source, `files`, `fetch` and `stream` read the revision that `revision` returned last.
    """

    def revision(self, name: str, dataset: Dataset) -> str:
        """Return what changes when a byte changes that would be fetched for this very entry of the catalog.

        Asks nobody when that is pinned.

        Raises:
            ConfigError: nobody knows the source, or it is not pinned to a revision and has to be.
            DownloadError: the source cannot be read.
        """

    def observe(self, name: str, dataset: Dataset, previous: Observation | None) -> Observation:
        """Look at what the source holds now; `previous` is the last observation, and is returned when nothing changed.

        One look, without retries: who observes looks again later.

        Raises:
            ConfigError, DownloadError: as `revision`.
            SourceBusyError: the source asks to come back later.
        """

    def is_upstream(self, name: str, dataset: Dataset) -> bool:
        """Return whether `dataset` is read from its own source, and not from a mirror, which may hold anything."""

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        """Return the files of `dataset` in its source, patterns resolved, in the order of their paths.

        What the source says of size and checksum is filled in.

        Raises:
            ConfigError, DownloadError: as `revision`, or there is no file for an entry.
        """

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        """Write `file`, one that `files` returned, to `target`, whole and verified, or not at all.

        What a killed fetch left beside `target` is taken up again, and a `target` that is right is left as it is.

        Raises:
            ConfigError: the source wants a token, or terms to be accepted.
            DownloadError: the source cannot be read, or size or checksum are not the pinned ones.
        """

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        """Open `file`, one that `files` returned, for reading once from start to end, keeping nothing.

        The read that finds the end verifies size and checksum.

        Raises:
            ConfigError, DownloadError: as `fetch`.
        """


class RoutingHub(ABC):
    """A hub that hands each dataset to another one."""

    @abstractmethod
    def hub_of(self, dataset: Dataset) -> DatasetHub:
        """Return the hub that reads `dataset`."""

    def revision(self, name: str, dataset: Dataset) -> str:
        return self.hub_of(dataset).revision(name, dataset)

    def observe(self, name: str, dataset: Dataset, previous: Observation | None) -> Observation:
        return self.hub_of(dataset).observe(name, dataset, previous)

    def is_upstream(self, name: str, dataset: Dataset) -> bool:
        return self.hub_of(dataset).is_upstream(name, dataset)

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        return self.hub_of(dataset).files(name, dataset)

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        return self.hub_of(dataset).fetch(name, dataset, file, target, advance)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        return self.hub_of(dataset).stream(name, dataset, file)


class UpstreamHub(ABC):
    """A hub of sources proper, not of mirrors: it downloads whatever `source` opens."""

    def __init__(self, patience: RetryPolicy) -> None:
        self._patience = patience

    @abstractmethod
    def source(self, name: str, dataset: Dataset, path: str) -> Source:
        """Return the file `path` of `dataset` as something to download."""

    def is_upstream(self, name: str, dataset: Dataset) -> bool:
        return True

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        return download(self.source(name, dataset, file.path), file, target, advance, self._patience)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        return open_stream(self.source(name, dataset, file.path), file, self._patience)


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


class FolderHub(UpstreamHub):
    """Sources that are folders of some kind, each opened by `open_folder`."""

    def __init__(self, open_folder: Callable[[str, Dataset], Folder], patience: RetryPolicy) -> None:
        super().__init__(patience)
        self._open = open_folder

    def revision(self, name: str, dataset: Dataset) -> str:
        return folder_revision(self._open(name, dataset), self.files(name, dataset))

    def observe(self, name: str, dataset: Dataset, previous: Observation | None) -> Observation:
        return observe_folder(self._open(name, dataset), self.files(name, dataset), previous)

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        folder, targets = self._open(name, dataset), entries(dataset)
        if any(entry.is_pattern for entry in targets):
            paths = list_paths(folder)
        else:
            paths = [entry.path for entry in targets if folder.has(entry.path)]
        return resolve(folder.label, dataset, {path: Facts() for path in paths})

    def source(self, name: str, dataset: Dataset, path: str) -> Source:
        return self._open(name, dataset).source(path)


def list_paths(folder: Folder) -> list[str]:
    """Return the paths of `folder`, sorted; DownloadError if there are too many."""
    paths: list[str] = []
    for path in folder.paths():
        paths.append(path)
        if len(paths) > MAX_LISTED:
            raise DownloadError(f"{folder.label}: holds more than {MAX_LISTED} files; name the folder of the dataset")
    return sorted(paths)


def folder_revision(folder: Folder, files: Sequence[DatasetFile]) -> str:
    """Return the digest of the names and contents of `files`."""
    return digest([[file.path, folder.fingerprint(file.path)] for file in files])


def observe_folder(folder: Folder, files: Sequence[DatasetFile], previous: Observation | None) -> Observation:
    """Look at `files`; they are read only when one was written to since the `previous` look."""
    stamp = digest([[file.path, folder.stamp(file.path)] for file in files])
    return previous if previous and previous.etag == stamp else Observation(folder_revision(folder, files), stamp)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a source says of a file; None where it does not say."""

    size_bytes: int | None = None
    sha256: str | None = None


def entries(dataset: Dataset) -> Sequence[DatasetFile]:
    """Return the entries of `dataset` with the pins that hold: none where it follows its source."""
    return [DatasetFile(path=file.path) for file in dataset.files] if dataset.follow else dataset.files


def matches(pattern: str, path: str) -> bool:
    """Return whether `path` fits `pattern`, in which `*` is any part of one name; hidden files only fit by name."""
    patterns, parts = pattern.split("/"), path.split("/")
    return len(patterns) == len(parts) and all(map(_matches_part, patterns, parts))


def _matches_part(pattern: str, part: str) -> bool:
    if part.startswith(".") and part != ".." and not pattern.startswith("."):
        return False
    # a listing may hold anything, and a name with ".." or a line break has to be refused, not passed over
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), part, re.DOTALL) is not None


def resolve(label: str, dataset: Dataset, listing: Mapping[str, Facts]) -> list[DatasetFile]:
    """Return the files of `dataset` in the `listing` of the source called `label`, in the order of their paths.

    Raises:
        DataError: the name of one would lead out of its folder, or means something else on another system.
        DownloadError: there is no file for an entry, or one differs from its pins.
    """
    files: dict[str, DatasetFile] = {}
    # those with a pattern first, so that an entry of its own, which may be pinned, stands
    for entry in sorted(entries(dataset), key=lambda entry: not entry.is_pattern):
        if entry.is_pattern:
            paths = [str(portable(path)) for path in listing if matches(entry.path, path)]
        else:
            paths = [entry.path] if entry.path in listing else []
        if not paths:
            first = ", ".join(sorted(listing)[:5]) or "nothing"
            raise DownloadError(f"{label}/{entry.path}: no such file; mend `files` of the dataset; found: {first}")
        files |= {path: _pin(label, entry, path, listing[path]) for path in paths}
    return [files[path] for path in sorted(files)]


def _pin(label: str, entry: DatasetFile, path: str, facts: Facts) -> DatasetFile:
    pairs = (("size_bytes", facts.size_bytes, entry.size_bytes), ("sha256", facts.sha256, entry.sha256))
    for field, actual, expected in pairs:
        if actual is not None and expected is not None and actual != expected:
            raise DownloadError(
                f"{label}/{path}: {field} is {actual}, but {expected} is expected; restore the file at its source,"
                " or pin the new version below configs/ if you mean to change it"
            )
    size = facts.size_bytes if entry.size_bytes is None else entry.size_bytes
    return DatasetFile(path=path, sha256=entry.sha256 or facts.sha256, size_bytes=size)
