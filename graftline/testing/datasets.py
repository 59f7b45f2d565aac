"""Datasets held in this process: the hub they are fetched from, and the store that recipes read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize

from graftline.core.download import SourceStream
from graftline.core.errors import DownloadError
from graftline.core.paths import portable
from graftline.core.retry import RetryPolicy
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.base import FolderHub
from graftline.datasets.store import FilesDatasetStore, check_name


def memory_hub(files: Mapping[str, bytes]) -> FolderHub:
    """Return the hub of `files`, by name, source included; a dataset without a `url` has its own name for one."""

    def open_folder(name: str, dataset: Dataset) -> MemoryFolder:
        source = dataset.url or name
        return MemoryFolder(files, source.rstrip("/") if "://" in source else str(portable(source)))

    return FolderHub(open_folder, RetryPolicy())


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """The files whose names begin with `label`."""

    files: Mapping[str, bytes]
    label: str

    def paths(self) -> Iterator[str]:
        return (name.removeprefix(f"{self.label}/") for name in self.files if name.startswith(f"{self.label}/"))

    def has(self, path: str) -> bool:
        return self._name(path) in self.files

    def fingerprint(self, path: str) -> str:
        return sha256(self.source(path).content).hexdigest()

    stamp = fingerprint

    def source(self, path: str) -> "MemoryFile":
        name = self._name(path)
        if name not in self.files:
            raise DownloadError(f"{name}: no such file in memory; known: {', '.join(sorted(self.files)) or 'none'}")
        return MemoryFile(name, self.files[name])

    def _name(self, path: str) -> str:
        return f"{self.label}/{portable(path)}"


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """Bytes with a name."""

    label: str
    content: bytes

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        current = sha256(self.content).hexdigest()
        start = offset if etag in ("", current) else 0
        yield SourceStream(
            start, len(self.content), current, iter([self.content[start:]] if self.content[start:] else [])
        )


class MemoryDatasetStore(FilesDatasetStore):
    """Datasets given as bytes by name, kept in a temporary folder for as long as the store is used.

    Raises:
        DataError: a name cannot be one.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        paths = [Path(check_name(name)) for name in files]
        folder = Path(mkdtemp(prefix="graftline-datasets-"))
        finalize(self, rmtree, folder)
        for path, content in zip(paths, files.values(), strict=True):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        super().__init__(folder, "memory")
