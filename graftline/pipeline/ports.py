"""From a manifest to open ports, or to a description of what would be opened.

Recipes know some ports by names of their own: see `RECIPE_PORTS`.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from graftline.core.artifacts import ArtifactStore, open_artifacts
from graftline.core.blobs import BlobStore, open_blob_store
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.core.secrets import Secrets, open_secrets
from graftline.datasets.sources.base import MIRROR_VARIABLE, DatasetHub
from graftline.datasets.sources.open import open_hub
from graftline.datasets.store import DatasetStore, open_dataset_store
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import load_fleet
from graftline.llm.open import ActorsConfig, open_chat_model
from graftline.pipeline.harbor_port import HarborService, open_harbor
from graftline.pipeline.manifests import PORTS, Manifest, load_manifest
from graftline.rollouts.queue import open_queue
from graftline.rollouts.queue.base import JobQueue
from graftline.rollouts.retrieval import open_embedder, open_vector_store
from graftline.rollouts.retrieval.base import Embedder, VectorStore
from graftline.rollouts.teachers.base import Teacher
from graftline.sandbox.actions import open_sandbox
from graftline.sandbox.base import Sandbox
from graftline.training.open import DEFAULT_MODEL, open_training_client
from graftline.training.tinker import TinkerSDKClient

if TYPE_CHECKING:
    from graftline.rollouts.teachers.examples import Examples

RECIPE_PORTS: Mapping[str, str] = {
    "training_client": "training_client",
    "dataset_store": "dataset_store",
    "blob_store": "blobs",
    "hub_client": "dataset_hub",
    "llm_client": "chat_model",
    "embedding_client": "embedder",
    "vector_store": "vector_store",
    "sandbox": "sandbox",
}
"""The names that recipes call ports by, and the keys of a manifest they stand for."""
MEMORY_CONTEXT_TOKENS = 32_768
"""Of a chat model in memory, which has no limit."""
_SETTINGS = (str, int, float, bool, Mapping, list, tuple, type(None))
"""Types of settings; a value of any other type is a port itself."""


class _Closable(Protocol):
    def close(self) -> Any: ...


PortT = TypeVar("PortT")
ClosableT = TypeVar("ClosableT", bound=_Closable)


class Ports:
    """Everything a lineage or a recipe talks to; each port is opened at its first use, and closed with `stack`.

    Args:
        manifest: What stands behind each port.
        paths: Of the checkout.
        stack: Closes what is opened here.
        secrets: Those of this process without it.
        opened: Ports that are open already, by name, and stay so; those that are opened here join them.
        allowed: Ports that may be used; all of them without it.
    """

    def __init__(
        self,
        manifest: Manifest,
        paths: Paths,
        stack: ExitStack,
        secrets: Secrets | None = None,
        opened: dict[str, Any] | None = None,
        allowed: Collection[str] | None = None,
    ) -> None:
        self.manifest = manifest
        self.secrets = open_secrets(os.environ, paths.root) if secrets is None else secrets
        self._paths, self._stack = paths, stack
        self._opened = {} if opened is None else opened
        self._allowed = allowed

    def replace(self, name: str, port: Any) -> None:
        """Use `port`, which is open and stays so, in place of what would be opened under a name."""
        self._opened[name] = port

    @property
    def dataset_hub(self) -> DatasetHub:
        """Where datasets come from."""
        return self._open_once("dataset_hub", lambda: dataset_hub(self.manifest, self._paths))

    @property
    def sandbox(self) -> Sandbox:
        """Where actions are applied."""
        return self._open_once("sandbox", lambda: self._close_at_end(open_sandbox(self.manifest.sandbox)))

    @property
    def teacher(self) -> Teacher:
        """What attempts tasks."""

        def open_() -> Teacher:
            # who only wants to know what is configured need not load the teachers, which takes a while
            from graftline.rollouts.teachers.open import ServedModel, open_teacher

            def open_served() -> ServedModel:
                return ServedModel(self.chat_model, self.context_tokens, self._paths.configs, self.examples)

            return open_teacher(self.manifest.teacher, self.sandbox, open_served)

        return self._open_once("teacher", open_)

    @property
    def chat_model(self) -> BlockingChatModel:
        """The served language model."""

        def open_() -> BlockingChatModel:
            model = open_chat_model(self.manifest.chat_model, self._paths.configs, self.secrets)
            return self._close_at_end(BlockingChatModel(model))

        return self._open_once("chat_model", open_)

    @property
    def context_tokens(self) -> int:
        """How many tokens, of prompt and answer, the served language model takes in."""
        config = self.manifest.chat_model
        if isinstance(config, ActorsConfig):
            return load_fleet(self._paths.configs, config.fleet).context_tokens
        return MEMORY_CONTEXT_TOKENS

    @property
    def queue(self) -> JobQueue:
        """The queue of attempts to be made."""
        return self._open_once("queue", lambda: self._close_at_end(open_queue(self.manifest.queue, self.secrets)))

    @property
    def blobs(self) -> BlobStore:
        """Where files are kept under names, such as shards of attempts."""
        return self._open_once("blobs", lambda: open_blob_store(self.manifest.blobs, self._paths.root, self.secrets))

    @property
    def embedder(self) -> Embedder:
        """What makes vectors of texts."""
        return self._open_once("embedder", lambda: open_embedder(self.manifest.embedder))

    @property
    def vector_store(self) -> VectorStore:
        """Where the vectors nearest to one are looked for."""
        config, root = self.manifest.vector_store, self._paths.root
        return self._open_once("vector_store", lambda: self._close_at_end(open_vector_store(config, root)))

    @property
    def training_client(self) -> TinkerSDKClient:
        """What trains."""
        return self._open_once("training_client of no recipe", self.training_client_for, "training_client")

    @property
    def artifacts(self) -> ArtifactStore:
        """Where the artifacts of all workers are."""
        config, root = self.manifest.artifacts, self._paths.root
        return self._open_once("artifacts", lambda: open_artifacts(config, root, self.secrets))

    @property
    def dataset_store(self) -> DatasetStore:
        """Where recipes find what they train on."""
        config, root = self.manifest.dataset_store, self._paths.root
        return self._open_once("dataset_store", lambda: open_dataset_store(config, root))

    @property
    def harbor(self) -> HarborService:
        """What keeps deployments, and runs their rollouts."""
        config, root = self.manifest.harbor, self._paths.root
        return self._open_once("harbor", lambda: self._stack.enter_context(open_harbor(config, root, self.secrets)))

    @property
    def examples(self) -> "Examples":
        """Verified steps that language models are shown."""
        from graftline.rollouts.teachers.examples import Examples

        return self._open_once("examples", lambda: Examples(self.embedder, self.vector_store), "teacher")

    blob_store, hub_client, llm_client, embedding_client = blobs, dataset_hub, chat_model, embedder

    def training_client_for(self, model: str = DEFAULT_MODEL, deadline_s: float = 600.0) -> TinkerSDKClient:
        """Return what trains `model`, with so long for every answer; it stays open until the end."""
        return self._stack.enter_context(self.open_training(model, deadline_s))

    @contextmanager
    def open_training(self, model: str, deadline_s: float) -> Iterator[TinkerSDKClient]:
        """Give what trains `model`, with so long for every answer, and close it; one that replaces it stays open."""
        self._check_allowed("training_client")
        if "training_client" in self._opened:
            yield self._opened["training_client"]
            return
        config = self.manifest.training_client
        with open_training_client(config, self._paths.root, self.secrets, model, deadline_s) as service:
            yield service

    def _open_once(self, name: str, open_: Callable[[], PortT], port: str = "") -> PortT:
        self._check_allowed(port or name)
        if name not in self._opened:
            self._opened[name] = open_()
        return cast(PortT, self._opened[name])

    def _check_allowed(self, port: str) -> None:
        if self._allowed is not None and port not in self._allowed:
            raise ConfigError(
                f"port {port!r} is used by what does not name it; known to it: {', '.join(sorted(self._allowed))}"
            )

    def _close_at_end(self, port: ClosableT) -> ClosableT:
        self._stack.callback(port.close)
        return port


def dataset_hub(manifest: Manifest, paths: Paths, environment: Mapping[str, str] | None = None) -> DatasetHub:
    """Return the hub of `manifest` alone; secrets and mirror are those of `environment` (of the process)."""
    variables = os.environ if environment is None else environment
    secrets = open_secrets(variables, paths.root)
    return open_hub(manifest.dataset_hub, paths.root, secrets, variables.get(MIRROR_VARIABLE, ""))


@contextmanager
def open_ports(manifest: Manifest, paths: Paths) -> Iterator[Ports]:
    """Open the ports of `manifest`, and close them at the end: sandbox and teacher at once, others when they are used."""
    with ExitStack() as stack:
        ports = Ports(manifest, paths, stack)
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


@contextmanager
def open_recipe_ports(paths: Paths, manifest: Manifest, replacements: Mapping[str, Any]) -> Iterator[Ports]:
    """Give the ports that `resolve_overrides` returned, none of them open, and close those that were at the end."""
    with ExitStack() as stack:
        yield Ports(manifest, paths, stack, opened=dict(replacements))


def resolve_overrides(paths: Paths, manifest: str, overrides: Mapping[str, Any]) -> tuple[Manifest, dict[str, Any]]:
    """Return the manifest called `manifest` with settings replaced, and the ports that were handed in, by its keys.

    `overrides` has an implementation by its kind, settings by dotted key, or a port itself; by the names of recipes, or by
    those of manifests.
    """
    settings: dict[str, Any] = {}
    replacements: dict[str, Any] = {}
    for override, value in overrides.items():
        port, dot, setting = override.partition(".")
        key = RECIPE_PORTS.get(port, port)
        if key not in PORTS:
            raise ConfigError(f"port {port!r} is unknown; known: {', '.join(dict.fromkeys((*RECIPE_PORTS, *PORTS)))}")
        if isinstance(value, _SETTINGS):
            settings[f"{key}{dot}{setting}"] = value
        elif dot or key not in RECIPE_PORTS.values():
            raise ConfigError(
                f"port {override!r}: is no setting, but of type {type(value).__name__};"
                f" only {', '.join(RECIPE_PORTS)} can be handed in"
            )
        else:
            replacements[key] = value
    return load_manifest(paths, manifest, settings), replacements


def describe_recipe_ports(manifest: Manifest, replacements: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the implementation and settings of every port, by the names of recipes; nothing is opened."""
    settings = describe(manifest)
    return {
        name: {"kind": "given", "is": type(replacements[key]).__name__} if key in replacements else settings[key]
        for name, key in RECIPE_PORTS.items()
    }


def describe(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Return the implementation and settings of every port, by the keys of manifests; nothing is opened."""
    settings: dict[str, dict[str, Any]] = manifest.model_dump(mode="json")
    return settings
