"""The `DatasetStore` port: datasets that recipes are trained on, by name; each a file of JSON lines.

A result is a dataset as it is, whatever its rows are like: `training/examples.py` and the recipes that read it judge those.
A name that the store lacks is an error, for a recipe that names it cannot do without. Where the datasets of the catalog
come from is another port, `DatasetHub`.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Annotated, Literal, Protocol

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_file
from graftline.core.paths import portable

SUFFIX = ".jsonl"
"""Ends the names of datasets."""
_MOST_LISTED = 8


class DatasetStore(Protocol):
    """Reads datasets. Safe to use from several threads."""

    @property
    def label(self) -> str:
        """What messages call it."""

    def names(self, prefix: str = "") -> list[str]:
        """Return the names that begin with `prefix`, sorted; DataError if the store cannot be read."""

    def open(self, name: str) -> IO[bytes]:
        """Open a dataset for reading; the caller closes it.

        Raises:
            DataError: there is none of this name, or it cannot be read.
        """

    def sha256(self, name: str) -> str:
        """Return the digest of the bytes of a dataset, in hexadecimal; DataError as `open`."""

    def folder(self) -> AbstractContextManager[Path]:
        """Give a folder in which every dataset is the file of its name, not to be written to, until the end of the block.

        Raises:
            DataError: as `names`.
        """


class FilesDatasetStoreConfig(Config):
    """Files below a folder."""

    kind: Literal["files"] = "files"
    folder: str = "."
    """That names are relative to, itself from the root."""


class MemoryDatasetStoreConfig(Config):
    """Files given in the configuration, as text by name."""

    kind: Literal["memory"] = "memory"
    files: dict[str, str] = Field(default_factory=dict)


DatasetStoreConfig = Annotated[FilesDatasetStoreConfig | MemoryDatasetStoreConfig, Field(discriminator="kind")]


def open_dataset_store(config: DatasetStoreConfig, root: Path) -> DatasetStore:
    """Return the store of `config`; its folder is below `root`.

    Raises:
        DataError: a name in the configuration cannot be that of a dataset.
    """
    if isinstance(config, FilesDatasetStoreConfig):
        return FilesDatasetStore(root / config.folder)
    from graftline.testing.datasets import MemoryDatasetStore

    return MemoryDatasetStore({name: text.encode() for name, text in config.files.items()})


class FilesDatasetStore:
    """The files below `folder`, but for hidden ones and those in hidden folders; messages call it `label`."""

    def __init__(self, folder: Path, label: str | None = None) -> None:
        self._folder = folder
        self.label = label or str(folder)

    def names(self, prefix: str = "") -> list[str]:
        self._require_folder()
        if any(part.startswith(".") for part in prefix.split("/")) or prefix.startswith("/"):
            return []  # no name does
        names = []
        # only what can hold such names is looked through
        for folder, subfolders, files in os.walk(self._folder / prefix.rpartition("/")[0]):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            paths = (Path(folder, name) for name in files if name.endswith(SUFFIX) and not name.startswith("."))
            names += [path.relative_to(self._folder).as_posix() for path in paths]
        return sorted(name for name in names if name.startswith(prefix))

    def open(self, name: str) -> IO[bytes]:
        with self._reading(name) as path:
            return path.open("rb")

    def sha256(self, name: str) -> str:
        with self._reading(name) as path:
            return sha256_file(path)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        self._require_folder()
        yield self._folder

    def _require_folder(self) -> None:
        if not self._folder.is_dir():
            raise DataError(f"{self._folder}: is no folder; name the one that datasets are in")

    @contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        path = self._folder / check_name(name)
        if not path.is_file():
            names = self.names(name[: name.rfind("/") + 1])
            more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
            listed = ", ".join(names[:_MOST_LISTED]) + more
            raise DataError(f"{self.label}: has no dataset {name!r}; it has {listed or 'none'}")
        try:
            yield path
        except OSError as error:
            raise DataError(f"{self.label}: {name!r} cannot be read ({error.strerror}); mend the file") from None


def check_name(name: str) -> str:
    """Return `name`; DataError if it cannot be the name of a dataset."""
    path = portable(name)
    if str(path) != name or any(part.startswith(".") for part in path.parts) or path.suffix != SUFFIX:
        raise DataError(
            f"dataset name {name!r}: has an empty part, one that begins with a dot, or does not end in {SUFFIX}; use a"
            " plain relative path such as 'data/exports/sft.jsonl'"
        )
    return name
