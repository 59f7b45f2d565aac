"""What recipes are run with: ports of a manifest by the names that recipes know, some of them handed in.

| name | key of a manifest |
|---|---|
| `training_client` | `training_client` |
| `dataset_store` | `dataset_store` |
| `blob_store` | `blobs` |
| `hub_client` | `dataset_hub` |
| `llm_client` | `chat_model` |
| `embedding_client` | `embedder` |
| `vector_store` | `vector_store` |
| `sandbox` | `sandbox` |
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from graftline.core.blobs import BlobStore
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.datasets.sources.base import DatasetHub
from graftline.datasets.store.base import DatasetStore
from graftline.llm.blocking import BlockingChatModel
from graftline.pipeline.manifests import PORTS as KEYS
from graftline.pipeline.manifests import Manifest, load_manifest
from graftline.pipeline.ports import Ports, describe
from graftline.rollouts.retrieval.base import Embedder, VectorStore
from graftline.sandbox.base import Sandbox
from graftline.training.service import TrainingService

PORTS: Mapping[str, str] = {
    "training_client": "training_client",
    "dataset_store": "dataset_store",
    "blob_store": "blobs",
    "hub_client": "dataset_hub",
    "llm_client": "chat_model",
    "embedding_client": "embedder",
    "vector_store": "vector_store",
    "sandbox": "sandbox",
}
_SETTINGS = (str, int, float, bool, Mapping, list, tuple, type(None))
"""Of settings; anything else is a port itself."""


class RecipePorts:
    """The ports of a run; each is opened at its first use. What was handed in is used as it is, and stays open."""

    def __init__(self, manifest: Manifest, opened: Ports, given: Mapping[str, Any]) -> None:
        self.manifest = manifest
        self._opened, self._given = opened, given

    @property
    def dataset_store(self) -> DatasetStore:
        """Where recipes find what they train on."""
        return cast(DatasetStore, self._of("dataset_store"))

    @property
    def blob_store(self) -> BlobStore:
        """Where files are kept under names."""
        return cast(BlobStore, self._of("blob_store"))

    @property
    def hub_client(self) -> DatasetHub:
        """Where datasets come from."""
        return cast(DatasetHub, self._of("hub_client"))

    @property
    def llm_client(self) -> BlockingChatModel:
        """A served language model."""
        return cast(BlockingChatModel, self._of("llm_client"))

    @property
    def embedding_client(self) -> Embedder:
        """What makes vectors of texts."""
        return cast(Embedder, self._of("embedding_client"))

    @property
    def vector_store(self) -> VectorStore:
        """Where the vectors nearest to one are looked for."""
        return cast(VectorStore, self._of("vector_store"))

    @property
    def sandbox(self) -> Sandbox:
        """Where answers are tried."""
        return cast(Sandbox, self._of("sandbox"))

    @property
    def training_client(self) -> TrainingService:
        """What trains."""
        return cast(TrainingService, self._of("training_client"))

    def training_client_for(self, model: str, deadline_s: float) -> TrainingService:
        """Return what trains `model`, with so long for every answer; one that was handed in is as it is."""
        if "training_client" in self._given:
            return self.training_client
        return self._opened.training_client_for(model, deadline_s)

    def _of(self, name: str) -> Any:
        # what was handed in is whatever the caller says that it is
        return self._given[name] if name in self._given else getattr(self._opened, PORTS[name])


@contextmanager
def open_recipe_ports(paths: Paths, manifest: Manifest, given: Mapping[str, Any]) -> Iterator[RecipePorts]:
    """Give the ports that `chosen` returned, none of them open, and close those that were at the end."""
    with ExitStack() as stack:
        yield RecipePorts(manifest, Ports.closed_with(stack, manifest, paths), given)


def chosen(paths: Paths, manifest: str, overrides: Mapping[str, Any]) -> tuple[Manifest, dict[str, Any]]:
    """Return a manifest with settings replaced, and the ports that were handed in.

    Args:
        paths: Of the checkout.
        manifest: Its name.
        overrides: An implementation by its kind, settings by dotted key, or a port itself; by the names of this module, or
            those of manifests.

    Raises:
        ConfigError: there is no such manifest or port, or the settings do not fit.
    """
    settings: dict[str, Any] = {}
    given: dict[str, Any] = {}
    names = {key: name for name, key in PORTS.items()}
    for override, value in overrides.items():
        port, dot, rest = override.partition(".")
        key = PORTS.get(port, port)
        if key not in KEYS:
            raise ConfigError(f"port {port!r} is unknown; known: {', '.join(dict.fromkeys((*PORTS, *KEYS)))}")
        if isinstance(value, _SETTINGS):
            settings[f"{key}{dot}{rest}"] = value
        elif dot or key not in names:
            what = f"is no setting, but of type {type(value).__name__}"
            raise ConfigError(f"port {override!r}: {what}; only {', '.join(PORTS)} can be handed in")
        else:
            given[names[key]] = value
    return load_manifest(paths, manifest, settings), given


def wiring(manifest: Manifest, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what would be wired, by the names of this module; nothing is opened."""
    described = describe(manifest)
    return {
        name: {"kind": "given", "is": type(given[name]).__name__} if name in given else described[key]
        for name, key in PORTS.items()
    }
