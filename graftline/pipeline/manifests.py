"""Manifests: which implementation stands behind each port in an environment (`configs/manifests/<name>.yaml`)."""

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, Field

from graftline.core.artifacts import ArtifactsConfig, FolderArtifactsConfig
from graftline.core.blobs import BlobsConfig, FilesystemBlobsConfig
from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.datasets.sources.open import HubConfig
from graftline.datasets.store.open import DatasetStoreConfig, FilesDatasetStoreConfig
from graftline.llm.open import ActorsConfig, ChatModelConfig
from graftline.pipeline.executor import ExecutorConfig, InProcessConfig
from graftline.pipeline.harbor_port import HarborPortConfig, LocalHarborConfig
from graftline.rollouts.queue.base import MemoryQueueConfig, QueueConfig
from graftline.rollouts.retrieval import HashedEmbedderConfig, SqliteVectorStoreConfig, VectorStoreConfig
from graftline.rollouts.teachers.base import TeacherConfig
from graftline.sandbox.actions import SandboxConfig
from graftline.training.open import LocalBackendConfig, TrainingClientConfig

MANIFESTS = ("local", "dev", "prod", "test")
DEFAULT_MANIFEST = "default"
"""Another name of `local`."""


class Manifest(Config):
    """One implementation per port, and what executes the steps of a Dagster run."""

    dataset_hub: HubConfig
    sandbox: SandboxConfig
    teacher: TeacherConfig
    chat_model: ChatModelConfig = ActorsConfig()
    queue: QueueConfig = MemoryQueueConfig()
    embedder: HashedEmbedderConfig = HashedEmbedderConfig()
    vector_store: VectorStoreConfig = SqliteVectorStoreConfig()
    blobs: BlobsConfig = FilesystemBlobsConfig(url="data/blobs")
    training_client: TrainingClientConfig = LocalBackendConfig()
    dataset_store: DatasetStoreConfig = FilesDatasetStoreConfig()
    harbor: HarborPortConfig = LocalHarborConfig()
    # manifests written for 0.1.0 spell it with an e
    artifacts: ArtifactsConfig = Field(
        default=FolderArtifactsConfig(), validation_alias=AliasChoices("artifacts", "artefacts")
    )
    executor: ExecutorConfig = InProcessConfig()


PORTS = tuple(name for name in Manifest.model_fields if name != "executor")


def load_manifest(paths: Paths, name: str, overrides: Mapping[str, Any] | None = None) -> Manifest:
    """Return the manifest called `name`; `overrides` replaces ports (`sandbox`: "memory") or single keys of them.

    Raises:
        ConfigError: there is no such manifest or port, or the result does not fit.
    """
    if name not in (DEFAULT_MANIFEST, *MANIFESTS):
        raise ConfigError(f"manifest {name!r} is unknown; known: {', '.join((DEFAULT_MANIFEST, *MANIFESTS))}")
    file = f"{'local' if name == DEFAULT_MANIFEST else name}.yaml"
    return load_yaml(paths.configs / "manifests" / file, Manifest, _values(overrides or {}))


def _values(overrides: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    # a port before its settings, in whatever order they were given
    for key, value in sorted(overrides.items(), key=lambda item: item[0].count(".")):
        port, _, rest = key.partition(".")
        if port not in PORTS:
            raise ConfigError(f"port {port!r} is unknown; known: {', '.join(PORTS)}")
        # a bare name is an implementation, and what the file says of another one does not apply to it
        values[key] = {"kind": value} if not rest and isinstance(value, str) else value
    return values
