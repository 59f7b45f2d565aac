"""From a manifest to open ports, or to a description of what would be opened."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from graftline.actors.blocking import BlockingChatModel
from graftline.actors.fleet import load_fleet
from graftline.actors.open import ActorsConfig, open_chat_model
from graftline.artefacts.base import ArtefactStore
from graftline.artefacts.open import open_artefacts
from graftline.blobs.base import BlobStore
from graftline.blobs.open import open_blob_store
from graftline.datasets.hub.base import MIRROR_VARIABLE, DatasetHub
from graftline.datasets.hub.open import open_hub
from graftline.datasets.store.base import DatasetStore
from graftline.datasets.store.open import open_dataset_store
from graftline.jobs.base import JobQueue
from graftline.jobs.open import open_queue
from graftline.paths import Paths
from graftline.retrieval.base import Embedder, VectorStore
from graftline.retrieval.open import open_embedder, open_vector_store
from graftline.runtime.harbor_port import HarborService, open_harbor
from graftline.runtime.manifests import Manifest, load_manifest
from graftline.sandbox.base import Sandbox
from graftline.sandbox.open import open_sandbox
from graftline.secrets import Secrets, open_secrets
from graftline.teachers.base import Teacher
from graftline.training.open import DEFAULT_MODEL, open_training_client
from graftline.training.service import TrainingService

if TYPE_CHECKING:
    from graftline.teachers.examples import Examples
    from graftline.teachers.open import Served

_MEMORY_CONTEXT_TOKENS = 32_768


class Ports:
    """Everything a lineage talks to; each is opened at its first use, and closed with `stack`."""

    def __init__(
        self, manifest: Manifest, paths: Paths, secrets: Secrets, stack: ExitStack, hub: DatasetHub | None = None
    ) -> None:
        self._manifest, self._paths, self._stack = manifest, paths, stack
        self.secrets = secrets
        self._hub = hub

    @cached_property
    def dataset_hub(self) -> DatasetHub:
        """The homes of the datasets."""
        return self._hub or dataset_hub(self._manifest, self._paths)

    @classmethod
    def closed_with(cls, stack: ExitStack, manifest: Manifest, paths: Paths) -> Self:
        """Return the ports of `manifest`, none of them open, with the secrets of this process."""
        return cls(manifest, paths, open_secrets(os.environ, paths.root), stack)

    @cached_property
    def sandbox(self) -> Sandbox:
        """Where actions are applied."""
        opened = open_sandbox(self._manifest.sandbox)
        self._stack.callback(opened.close)
        return opened

    @cached_property
    def teacher(self) -> Teacher:
        """What attempts tasks."""
        # who only wants to know what is configured need not load the teachers, which takes a while
        from graftline.teachers.open import open_teacher

        return open_teacher(self._manifest.teacher, self.sandbox, self._served)

    @cached_property
    def chat_model(self) -> BlockingChatModel:
        """The served language model."""
        opened = BlockingChatModel(open_chat_model(self._manifest.chat_model, self._paths.configs, self.secrets))
        self._stack.callback(opened.close)
        return opened

    @cached_property
    def queue(self) -> JobQueue:
        """The queue of attempts to be made."""
        opened = open_queue(self._manifest.queue, self.secrets)
        self._stack.callback(opened.close)
        return opened

    @cached_property
    def blobs(self) -> BlobStore:
        """Where shards are uploaded to."""
        return open_blob_store(self._manifest.blobs, self._paths.root, self.secrets)

    @cached_property
    def embedder(self) -> Embedder:
        """What makes vectors of texts."""
        return open_embedder(self._manifest.embedder)

    @cached_property
    def vector_store(self) -> VectorStore:
        """Where the vectors nearest to one are looked for."""
        opened = open_vector_store(self._manifest.vector_store, self._paths.root)
        self._stack.callback(opened.close)
        return opened

    @cached_property
    def training_client(self) -> TrainingService:
        """What trains."""
        return self.training_client_for()

    @cached_property
    def artefacts(self) -> ArtefactStore:
        """Where the artefacts of all workers are."""
        return open_artefacts(self._manifest.artefacts, self._paths.root, self.secrets)

    @cached_property
    def dataset_store(self) -> DatasetStore:
        """Where recipes find what they train on."""
        return open_dataset_store(self._manifest.dataset_store, self._paths.root)

    @cached_property
    def harbor(self) -> HarborService:
        """What keeps deployments, and runs their rollouts."""
        return self._stack.enter_context(open_harbor(self._manifest.harbor, self._paths.root, self.secrets))

    @cached_property
    def examples(self) -> "Examples":
        """Verified steps that language models are shown."""
        from graftline.teachers.examples import Examples

        return Examples(self.embedder, self.vector_store)

    def training_client_for(self, model: str = DEFAULT_MODEL, deadline_s: float = 600.0) -> TrainingService:
        """Open what trains once more: for `model`, and with so long for every answer."""
        config = self._manifest.training_client
        opened = open_training_client(config, self._paths.root, self.secrets, model, deadline_s)
        return self._stack.enter_context(opened)

    def _served(self) -> "Served":
        from graftline.teachers.open import Served

        config, context_tokens = self._manifest.chat_model, _MEMORY_CONTEXT_TOKENS
        if isinstance(config, ActorsConfig):
            context_tokens = load_fleet(self._paths.configs, config.fleet).context_tokens
        return Served(self.chat_model, context_tokens, self._paths.configs, self.examples)


def dataset_hub(manifest: Manifest, paths: Paths, environment: Mapping[str, str] | None = None) -> DatasetHub:
    """Return the hub of `manifest` alone; secrets and mirror are those of `environment` (of the process)."""
    found = os.environ if environment is None else environment
    return open_hub(manifest.dataset_hub, paths.root, open_secrets(found, paths.root), found.get(MIRROR_VARIABLE, ""))


@contextmanager
def open_ports(manifest: Manifest, paths: Paths) -> Iterator[Ports]:
    """Open the ports of `manifest`, and close them at the end: sandbox and teacher at once, others when they are used.

    Raises:
        ConfigError: what an implementation reads is not there or does not fit.
        BoundaryError: an implementation cannot be had on this machine.
    """
    with ExitStack() as stack:
        ports = Ports.closed_with(stack, manifest, paths)
        _ = ports.teacher
        yield ports


@contextmanager
def build_ports(paths: Paths, manifest: str = "local", overrides: Mapping[str, Any] | None = None) -> Iterator[Ports]:
    """Open the ports of the manifest called `manifest`, some of them overridden, and close them at the end.

        with build_ports(Paths(root), "local", {"sandbox": "memory"}) as ports:
            ports.sandbox.apply_many(...)

    Raises:
        ConfigError: as `load_manifest`.
        BoundaryError: as `open_ports`.
    """
    with open_ports(load_manifest(paths, manifest, overrides), paths) as ports:
        yield ports


def describe(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Return what would be wired: for every port its implementation and settings, without opening anything."""
    described: dict[str, dict[str, Any]] = manifest.model_dump(mode="json")
    return described
