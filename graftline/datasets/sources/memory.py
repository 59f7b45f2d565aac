"""Homes held in this process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from graftline.core.download import SourceStream
from graftline.core.errors import DownloadError
from graftline.core.paths import portable
from graftline.core.retry import RetryPolicy
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.folder import FolderHub


def memory_hub(files: Mapping[str, bytes]) -> FolderHub:
    """Return the hub of `files`, by name, home included; a dataset without a home has its own name for one."""

    def open_folder(name: str, dataset: Dataset) -> MemoryFolder:
        home = dataset.home or name
        return MemoryFolder(files, home.rstrip("/") if "://" in home else str(portable(home)))

    return FolderHub(open_folder, RetryPolicy())


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """The files whose names begin with `home`."""

    files: Mapping[str, bytes]
    home: str

    @property
    def label(self) -> str:
        return self.home

    def paths(self) -> Iterator[str]:
        return (name.removeprefix(f"{self.home}/") for name in self.files if name.startswith(f"{self.home}/"))

    def has(self, path: str) -> bool:
        return self._name(path) in self.files

    def fingerprint(self, path: str) -> str:
        return sha256(self._content(path)).hexdigest()

    def stamp(self, path: str) -> str:
        return self.fingerprint(path)

    def source(self, path: str) -> "MemoryFile":
        return MemoryFile(self._name(path), self._content(path))

    def _name(self, path: str) -> str:
        return f"{self.home}/{portable(path)}"

    def _content(self, path: str) -> bytes:
        name = self._name(path)
        if name not in self.files:
            raise DownloadError(f"{name}: no such file in memory; known: {', '.join(sorted(self.files)) or 'none'}")
        return self.files[name]


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """Bytes with a name."""

    label: str
    content: bytes

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        found = sha256(self.content).hexdigest()
        start = offset if etag in ("", found) else 0
        yield SourceStream(
            start, len(self.content), found, iter([self.content[start:]] if self.content[start:] else [])
        )
