"""From configuration to a dataset store."""

from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.config import Config
from graftline.datasets.store.base import DatasetStore
from graftline.datasets.store.files import FilesDatasetStore
from graftline.datasets.store.memory import MemoryDatasetStore


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
    match config:
        case FilesDatasetStoreConfig():
            return FilesDatasetStore(root / config.folder)
        case MemoryDatasetStoreConfig():
            return MemoryDatasetStore({name: text.encode() for name, text in config.files.items()})
        case _:
            assert_never(config)
