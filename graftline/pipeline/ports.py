"""From a manifest to open ports, or to a description of what would be opened."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

from graftline.core.artifacts import ArtifactStore, open_artifacts
from graftline.core.blobs import BlobStore, open_blob_store
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.core.secrets import Secrets, open_secrets
from graftline.datasets.sources.base import MIRROR_VARIABLE, DatasetHub
from graftline.datasets.sources.open import open_hub
from graftline.datasets.store.base import DatasetStore
from graftline.datasets.store.open import open_dataset_store
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import load_fleet
from graftline.llm.open import ActorsConfig, open_chat_model
from graftline.pipeline.harbor_port import HarborService, open_harbor
from graftline.pipeline.manifests import Manifest, load_manifest
from graftline.rollouts.queue import open_queue
from graftline.rollouts.queue.base import JobQueue
from graftline.rollouts.retrieval import open_embedder, open_vector_store
from graftline.rollouts.retrieval.base import Embedder, VectorStore
from graftline.rollouts.teachers.base import Teacher
from graftline.sandbox.actions import open_sandbox
from graftline.sandbox.base import Sandbox
from graftline.training.open import DEFAULT_MODEL, open_training_client
from graftline.training.service import TrainingService

PortT = TypeVar("PortT")


class _Closed(Protocol):
    def close(self) -> Any: ...


ClosedT = TypeVar("ClosedT", bound=_Closed)

if TYPE_CHECKING:
    from graftline.rollouts.teachers.examples import Examples
    from graftline.rollouts.teachers.open import ServedModel

_MEMORY_CONTEXT_TOKENS = 32_768


class Ports:
    """Everything a lineage talks to; each is opened at its first use, and closed with `stack`."""

    def __init__(
        self,
        manifest: Manifest,
        paths: Paths,
        secrets: Secrets,
        stack: ExitStack,
        opened: dict[str, Any] | None = None,
        named: Collection[str] | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            manifest: What stands behind each port.
            paths: Of the checkout.
            secrets: Of this process.
            stack: What is opened is closed with it.
            opened: Ports that are open already, or stand in for one, by name; those that are opened here join them.
            named: Ports that may be used; all of them without it.
        """
        self._manifest, self._paths, self._stack = manifest, paths, stack
        self.secrets = secrets
        self._opened = {} if opened is None else opened
        self._named = named

    @classmethod
    def closed_with(cls, stack: ExitStack, manifest: Manifest, paths: Paths) -> Self:
        """Return the ports of `manifest`, none of them open, with the secrets of this process."""
        return cls(manifest, paths, open_secrets(os.environ, paths.root), stack)

    def stand_in(self, name: str, port: Any) -> None:
        """Use `port`, which is open and stays so, in place of what would be opened under a name."""
        self._opened[name] = port

    @property
    def dataset_hub(self) -> DatasetHub:
        """The homes of the datasets."""
        return self._once("dataset_hub", lambda: dataset_hub(self._manifest, self._paths))

    @property
    def sandbox(self) -> Sandbox:
        """Where actions are applied."""
        return self._once("sandbox", lambda: self._closing(open_sandbox(self._manifest.sandbox)))

    @property
    def teacher(self) -> Teacher:
        """What attempts tasks."""

        def opened() -> Teacher:
            # who only wants to know what is configured need not load the teachers, which takes a while
            from graftline.rollouts.teachers.open import open_teacher

            return open_teacher(self._manifest.teacher, self.sandbox, self._served)

        return self._once("teacher", opened)

    @property
    def chat_model(self) -> BlockingChatModel:
        """The served language model."""

        def opened() -> BlockingChatModel:
            model = open_chat_model(self._manifest.chat_model, self._paths.configs, self.secrets)
            return self._closing(BlockingChatModel(model))

        return self._once("chat_model", opened)

    @property
    def queue(self) -> JobQueue:
        """The queue of attempts to be made."""
        return self._once("queue", lambda: self._closing(open_queue(self._manifest.queue, self.secrets)))

    @property
    def blobs(self) -> BlobStore:
        """Where shards are uploaded to."""
        return self._once("blobs", lambda: open_blob_store(self._manifest.blobs, self._paths.root, self.secrets))

    @property
    def embedder(self) -> Embedder:
        """What makes vectors of texts."""
        return self._once("embedder", lambda: open_embedder(self._manifest.embedder))

    @property
    def vector_store(self) -> VectorStore:
        """Where the vectors nearest to one are looked for."""
        config, root = self._manifest.vector_store, self._paths.root
        return self._once("vector_store", lambda: self._closing(open_vector_store(config, root)))

    @property
    def training_client(self) -> TrainingService:
        """What trains."""
        return self._once("training_client of no recipe", self.training_client_for, "training_client")

    @property
    def artifacts(self) -> ArtifactStore:
        """Where the artifacts of all workers are."""
        config, root = self._manifest.artifacts, self._paths.root
        return self._once("artifacts", lambda: open_artifacts(config, root, self.secrets))

    @property
    def dataset_store(self) -> DatasetStore:
        """Where recipes find what they train on."""
        config, root = self._manifest.dataset_store, self._paths.root
        return self._once("dataset_store", lambda: open_dataset_store(config, root))

    @property
    def harbor(self) -> HarborService:
        """What keeps deployments, and runs their rollouts."""
        config, root = self._manifest.harbor, self._paths.root
        return self._once("harbor", lambda: self._stack.enter_context(open_harbor(config, root, self.secrets)))

    @property
    def examples(self) -> "Examples":
        """Verified steps that language models are shown."""
        from graftline.rollouts.teachers.examples import Examples

        return self._once("examples", lambda: Examples(self.embedder, self.vector_store), "teacher")

    def training_client_for(self, model: str = DEFAULT_MODEL, deadline_s: float = 600.0) -> TrainingService:
        """Return what trains `model`, with so long for every answer; it stays open until the end."""
        return self._stack.enter_context(self.training(model, deadline_s))

    @contextmanager
    def training(self, model: str, deadline_s: float) -> Iterator[TrainingService]:
        """Give what trains `model`, with so long for every answer, and close it; one that stands in for it stays open."""
        self._check("training_client")
        if "training_client" in self._opened:
            yield self._opened["training_client"]
            return
        config = self._manifest.training_client
        with open_training_client(config, self._paths.root, self.secrets, model, deadline_s) as service:
            yield service

    def _once(self, name: str, opened: Callable[[], PortT], port: str = "") -> PortT:
        self._check(port or name)
        if name not in self._opened:
            self._opened[name] = opened()
        return cast(PortT, self._opened[name])

    def _check(self, port: str) -> None:
        if self._named is not None and port not in self._named:
            raise ConfigError(
                f"port {port!r} is used by what does not name it; known to it: {', '.join(sorted(self._named))}"
            )

    def _closing(self, port: ClosedT) -> ClosedT:
        self._stack.callback(port.close)
        return port

    def _served(self) -> "ServedModel":
        from graftline.rollouts.teachers.open import ServedModel

        config, context_tokens = self._manifest.chat_model, _MEMORY_CONTEXT_TOKENS
        if isinstance(config, ActorsConfig):
            context_tokens = load_fleet(self._paths.configs, config.fleet).context_tokens
        return ServedModel(self.chat_model, context_tokens, self._paths.configs, self.examples)


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
