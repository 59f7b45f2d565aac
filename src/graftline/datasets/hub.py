"""The `DatasetHub` port: the homes of datasets.

A result is a file, whole and of the pinned checksum. A home that cannot be read, or holds something else than was
pinned, is an error: training on other bytes than were asked for is worse than not training.
"""

import os
import shutil
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Annotated, Literal, Protocol, assert_never

from pydantic import Field

from graftline.config import Config
from graftline.datasets.catalogue import Dataset, DatasetFile
from graftline.errors import DatasetError
from graftline.hashing import digest, sha256_file
from graftline.paths import portable


class DatasetHub(Protocol):
    """Reads the homes of datasets."""

    def revision(self, dataset: Dataset) -> str:
        """Return what changes when any file of `dataset` changes in its home.

        Raises:
            DatasetError: the home cannot be read.
        """

    def fetch(self, dataset: Dataset, file: DatasetFile, target: Path) -> None:
        """Write `file` of `dataset` to `target`, whole and verified, or not at all.

        Raises:
            DatasetError: the home cannot be read, or size or checksum are not the pinned ones.
        """


class LocalHub:
    """Homes that are folders below `root`: the samples of the checkout."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def revision(self, dataset: Dataset) -> str:
        try:
            return digest([[file.path, sha256_file(self._existing(dataset, file))] for file in dataset.files])
        except OSError as error:
            raise DatasetError(f"{self._root / dataset.home}: cannot be read ({error.strerror})") from error

    def fetch(self, dataset: Dataset, file: DatasetFile, target: Path) -> None:
        path = self._existing(dataset, file)
        try:
            with path.open("rb") as stream:
                _write(stream, file, self._name(dataset, file), target)
        except OSError as error:
            raise DatasetError(f"{path}: cannot be copied to {target} ({error.strerror})") from error

    def _existing(self, dataset: Dataset, file: DatasetFile) -> Path:
        path = self._root / self._name(dataset, file)
        if not path.is_file():
            raise DatasetError(f"{path}: no such file; restore it or mend `home` and `files` in configs/datasets.yaml")
        return path

    def _name(self, dataset: Dataset, file: DatasetFile) -> str:
        return str(portable(dataset.home) / portable(file.path))


class MemoryHub:
    """Homes held in this process: file name, home included, to bytes."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def revision(self, dataset: Dataset) -> str:
        return digest([[file.path, self._content(dataset, file).hex()] for file in dataset.files])

    def fetch(self, dataset: Dataset, file: DatasetFile, target: Path) -> None:
        _write(BytesIO(self._content(dataset, file)), file, f"{dataset.home}/{file.path}", target)

    def _content(self, dataset: Dataset, file: DatasetFile) -> bytes:
        name = str(portable(dataset.home) / portable(file.path))
        if name not in self._files:
            raise DatasetError(f"{name}: no such file in memory; known: {', '.join(sorted(self._files)) or 'none'}")
        return self._files[name]


class LocalHubConfig(Config):
    """Folders below the root of the checkout."""

    kind: Literal["local"] = "local"


class MemoryHubConfig(Config):
    """Files given in the configuration, as text by name."""

    kind: Literal["memory"] = "memory"
    files: dict[str, str] = Field(default_factory=dict)


HubConfig = Annotated[LocalHubConfig | MemoryHubConfig, Field(discriminator="kind")]


def open_hub(config: HubConfig, root: Path) -> DatasetHub:
    """Return the hub of `config`; local homes are looked up below `root`."""
    match config:
        case LocalHubConfig():
            return LocalHub(root)
        case MemoryHubConfig():
            return MemoryHub({name: text.encode() for name, text in config.files.items()})
        case _:
            assert_never(config)


def _write(content: IO[bytes], file: DatasetFile, name: str, target: Path) -> None:
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("wb") as stream:
        shutil.copyfileobj(content, stream)
        stream.flush()
        os.fsync(stream.fileno())
    size, sha256 = partial.stat().st_size, sha256_file(partial)
    for what, found, expected in (("size_bytes", size, file.size_bytes), ("sha256", sha256, file.sha256)):
        if expected is not None and found != expected:
            partial.unlink()
            raise DatasetError(
                f"{name}: {what} is {found}, but configs/datasets.yaml pins {expected};"
                " restore the file, or pin the new version if you mean to change it"
            )
    partial.replace(target)
