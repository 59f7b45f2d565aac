"""From a manifest to open ports, or to a description of what would be opened.

Recipes know some ports by names of their own: see `RECIPE_PORTS`.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from graftline.core.artifacts import ArtifactStore, open_artifacts
from graftline.core.blobs import BlobStore, open_blob_store
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.core.secrets import Secrets, open_secrets
from graftline.datasets.sources.base import MIRROR_VARIABLE, DatasetHub
from graftline.datasets.sources.open import open_hub
from graftline.datasets.store import DatasetStore, open_dataset_store
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import load_fleet, warn_of_terms
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
from graftline.sandbox.jail.open import JailConfig
from graftline.sandbox.runner import load_sandbox_settings
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


class _Port(Generic[PortT]):
    """A port that `open_` opens at its first use, and that is `part_of` the one of that key where it is none of its own."""

    def __init__(self, open_: "Callable[[Ports], PortT]", name: str = "", part_of: str = "") -> None:
        self._open, self._name, self._part_of = open_, name, part_of

    def __set_name__(self, owner: type, name: str) -> None:
        # of the names that are given to one port the first counts
        self._name = self._name or name

    def __get__(self, ports: "Ports", owner: type | None = None) -> PortT:
        ports.check_allowed(self._part_of or self._name)
        if self._name not in ports.opened:
            ports.opened[self._name] = self._open(ports)
        return cast(PortT, ports.opened[self._name])


def _open_teacher(ports: "Ports") -> Teacher:
    # who only wants to know what is configured need not load the teachers, which takes a while
    from graftline.rollouts.teachers.open import ServedModel, open_teacher

    def open_served() -> ServedModel:
        if isinstance(config := ports.manifest.chat_model, ActorsConfig):
            warn_of_terms(config.fleet, load_fleet(ports.paths.configs, config.fleet))
        return ServedModel(ports.chat_model, ports.context_tokens, ports.paths.configs, ports.examples)

    return open_teacher(ports.manifest.teacher, ports.sandbox, open_served)


def _open_chat_model(ports: "Ports") -> BlockingChatModel:
    model = open_chat_model(ports.manifest.chat_model, ports.paths.configs, ports.secrets)
    return ports.close_at_end(BlockingChatModel(model))


def _open_examples(ports: "Ports") -> "Examples":
    from graftline.rollouts.teachers.examples import Examples

    return Examples(ports.embedder, ports.vector_store)


class Ports:
    """Everything a lineage or a recipe talks to; each port is opened at its first use, and closed with `stack`.

    Ports that are `opened` already, by name, stay so, and those that are opened here join them; only those of the keys
    `allowed` may be used, all of them without it. Secrets are those of this process where none are given.
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
        self.manifest, self.paths = manifest, paths
        self.secrets = open_secrets(os.environ, paths.root) if secrets is None else secrets
        self.opened = {} if opened is None else opened
        self._stack, self._allowed = stack, allowed

    def replace(self, name: str, port: Any) -> None:
        """Use `port`, which is open and stays so, in place of what would be opened under a name."""
        self.opened[name] = port

    dataset_hub = _Port[DatasetHub](lambda ports: dataset_hub(ports.manifest, ports.paths))
    """Where datasets come from."""
    sandbox = _Port[Sandbox](lambda ports: ports.close_at_end(open_sandbox(ports.manifest.sandbox, ports.jail)))
    """Where actions are applied, and the tests of tasks run."""
    teacher = _Port[Teacher](_open_teacher)
    """What attempts tasks."""
    chat_model = _Port[BlockingChatModel](_open_chat_model)
    """The served language model."""
    queue = _Port[JobQueue](lambda ports: ports.close_at_end(open_queue(ports.manifest.queue, ports.secrets)))
    """The queue of attempts to be made."""
    blobs = _Port[BlobStore](lambda ports: open_blob_store(ports.manifest.blobs, ports.paths.root, ports.secrets))
    """Where files are kept under names, such as shards of attempts."""
    embedder = _Port[Embedder](lambda ports: open_embedder(ports.manifest.embedder))
    """What makes vectors of texts."""
    vector_store = _Port[VectorStore](
        lambda ports: ports.close_at_end(open_vector_store(ports.manifest.vector_store, ports.paths.root))
    )
    """Where the vectors nearest to one are looked for."""
    artifacts = _Port[ArtifactStore](
        lambda ports: open_artifacts(ports.manifest.artifacts, ports.paths.root, ports.secrets)
    )
    """Where the artifacts of all workers are."""
    dataset_store = _Port[DatasetStore](
        lambda ports: open_dataset_store(ports.manifest.dataset_store, ports.paths.root)
    )
    """Where recipes find what they train on."""
    harbor = _Port[HarborService](
        lambda ports: ports.enter(open_harbor(ports.manifest.harbor, ports.paths.root, ports.secrets))
    )
    """What keeps deployments, and runs their rollouts."""
    examples = _Port["Examples"](_open_examples, part_of="teacher")
    """Verified steps that language models are shown."""
    training_client = _Port[TinkerSDKClient](
        lambda ports: ports.training_client_for(), "training_client of no recipe", "training_client"
    )
    """What trains."""

    blob_store, hub_client, llm_client, embedding_client = blobs, dataset_hub, chat_model, embedder

    @property
    def jail(self) -> JailConfig:
        """Where the tests of tasks run, as `configs/sandbox.yaml` says."""
        return load_sandbox_settings(self.paths.root).tests

    @property
    def context_tokens(self) -> int:
        """How many tokens, of prompt and answer, the served language model takes in."""
        config = self.manifest.chat_model
        if isinstance(config, ActorsConfig):
            return load_fleet(self.paths.configs, config.fleet).prompt_and_answer_tokens
        return MEMORY_CONTEXT_TOKENS

    def training_client_for(self, model: str = DEFAULT_MODEL, deadline_s: float = 600.0) -> TinkerSDKClient:
        """Return what trains `model`, with so long for every answer; it stays open until the end."""
        return self.enter(self.open_training(model, deadline_s))

    @contextmanager
    def open_training(self, model: str, deadline_s: float) -> Iterator[TinkerSDKClient]:
        """Give what trains `model`, with so long for every answer, and close it; one that replaces it stays open."""
        self.check_allowed("training_client")
        if "training_client" in self.opened:
            yield self.opened["training_client"]
            return
        config = self.manifest.training_client
        with open_training_client(config, self.paths.root, self.secrets, model, deadline_s) as service:
            yield service

    def check_allowed(self, port: str) -> None:
        """Refuse a port that is not among those that may be used."""
        if self._allowed is not None and port not in self._allowed:
            raise ConfigError(
                f"port {port!r} is used by what does not name it; known to it: {', '.join(sorted(self._allowed))}"
            )

    def enter(self, context: AbstractContextManager[PortT]) -> PortT:
        """Return what a context gives, which ends when the ports are closed."""
        return self._stack.enter_context(context)

    def close_at_end(self, port: ClosableT) -> ClosableT:
        """Return `port`, which is closed with the others."""
        self._stack.callback(port.close)
        return port


def dataset_hub(manifest: Manifest, paths: Paths, environment: Mapping[str, str] | None = None) -> DatasetHub:
    """Return the hub of `manifest` alone; secrets and mirror are those of `environment` (of the process)."""
    variables = os.environ if environment is None else environment
    secrets = open_secrets(variables, paths.root)
    return open_hub(manifest.dataset_hub, paths.root, secrets, variables.get(MIRROR_VARIABLE, ""))


@contextmanager
def open_ports(
    manifest: Manifest, paths: Paths, replacements: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Ports]:
    """Give the ports of `manifest`, each opened at its first use, and close them at the end; what replaces one stays open."""
    with ExitStack() as stack:
        yield Ports(manifest, paths, stack, opened=dict(replacements))


@contextmanager
def build_ports(paths: Paths, manifest: str = "local", overrides: Mapping[str, Any] | None = None) -> Iterator[Ports]:
    """Give the ports of the manifest called `manifest`, some of them overridden, and close them at the end.

        with build_ports(Paths(root), "local", {"sandbox": "memory"}) as ports:
            ports.sandbox.apply_many(...)

    Raises:
        ConfigError: as `load_manifest`; at its first use, that what a port reads is not there or does not fit.
        BoundaryError: at its first use, that a port cannot be had on this machine.
    """
    with open_ports(load_manifest(paths, manifest, overrides), paths) as ports:
        yield ports


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
