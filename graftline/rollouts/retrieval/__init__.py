"""From configuration to an embedder and a vector store."""

from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import ConfigError, install_command
from graftline.rollouts.retrieval.base import Embedder, VectorStore
from graftline.rollouts.retrieval.hashed import HashedEmbedder
from graftline.rollouts.retrieval.memory import MemoryVectorStore


class HashedEmbedderConfig(Config):
    """Words and letters, hashed; no weights."""

    kind: Literal["hashed"] = "hashed"
    dimensions: int = Field(default=512, ge=64, le=4096)


class MemoryVectorStoreConfig(Config):
    """In this process, for as long as it lasts."""

    kind: Literal["memory"] = "memory"


class SqliteVectorStoreConfig(Config):
    """One file, searched by sqlite-vec."""

    kind: Literal["sqlite"] = "sqlite"
    path: str = "data/retrieval/examples.sqlite"
    """Below the root."""


VectorStoreConfig = Annotated[MemoryVectorStoreConfig | SqliteVectorStoreConfig, Field(discriminator="kind")]


def open_embedder(config: HashedEmbedderConfig) -> Embedder:
    """Return the embedder of `config`."""
    return HashedEmbedder(config.dimensions)


def open_vector_store(config: VectorStoreConfig, root: Path) -> VectorStore:
    """Return the store of `config`; its file is below `root`.

    Raises:
        ConfigError: what searches it is not installed.
    """
    match config:
        case MemoryVectorStoreConfig():
            return MemoryVectorStore()
        case SqliteVectorStoreConfig(path=path):
            try:
                from graftline.rollouts.retrieval.sqlite import SqliteVectorStore
            except ImportError as error:
                raise ConfigError(f"vector store 'sqlite' needs {error.name}; {install_command('actors')}") from None
            return SqliteVectorStore(root / path)
        case _:
            assert_never(config)
