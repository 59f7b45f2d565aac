"""From configuration to a hub, which reads every source by what it is: a folder, an address, a registry."""

from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.config import Config
from graftline.core.retry import RetryPolicy
from graftline.core.secrets import Secrets
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.base import DatasetHub, RoutingHub
from graftline.datasets.sources.folders import filesystem_hub, local_hub


class SourcesHubConfig(Config):
    """Every source in its own way: folders below the root, the Hugging Face hub, web servers, what fsspec knows."""

    kind: Literal["sources", "homes"] = "sources"
    """`homes` is what version 0.1.0 called it."""
    huggingface: str | None = None
    """Address of the server that `hf://` means; unset: what `HF_ENDPOINT` names, else the public one."""
    mirror_must_match_pins: bool = False
    """Whether a file of the mirror that is not the pinned one is refused, rather than used with a warning."""
    patience: RetryPolicy = RetryPolicy()


class LocalHubConfig(Config):
    """Folders below the root of the checkout, and a mirror where one is named."""

    kind: Literal["local"] = "local"
    mirror_must_match_pins: bool = False
    """Whether a file of the mirror that is not the pinned one is refused, rather than used with a warning."""


class MemoryHubConfig(Config):
    """Files given in the configuration, as text by name; they stand for every source, a mirror included."""

    kind: Literal["memory"] = "memory"
    files: dict[str, str] = Field(default_factory=dict)


HubConfig = Annotated[SourcesHubConfig | LocalHubConfig | MemoryHubConfig, Field(discriminator="kind")]


def open_hub(config: HubConfig, root: Path, secrets: Secrets, mirror: str = "") -> DatasetHub:
    """Return the hub of `config`.

    Args:
        root: below it lie the sources that are folders.
        secrets: where `HF_TOKEN` is looked up, once a source wants it.
        mirror: a folder, from the current one, or a URL of fsspec; empty for none.
    """
    match config:
        case SourcesHubConfig():
            hub = SourcesHub(root, config.patience, secrets, config.huggingface)
            return _add_mirror(hub, mirror, config.patience, config.mirror_must_match_pins)
        case LocalHubConfig():
            return _add_mirror(local_hub(root), mirror, RetryPolicy(), config.mirror_must_match_pins)
        case MemoryHubConfig():
            from graftline.testing.datasets import memory_hub

            return memory_hub({name: text.encode() for name, text in config.files.items()})
        case _:
            assert_never(config)


def _add_mirror(hub: DatasetHub, mirror: str, patience: RetryPolicy, must_match_pins: bool) -> DatasetHub:
    if not mirror:
        return hub
    from graftline.datasets.sources.mirror import MirrorHub

    return MirrorHub(mirror, hub, patience, must_match_pins)


class SourcesHub(RoutingHub):
    """The hub of every source, each read in its own way."""

    def __init__(self, root: Path, patience: RetryPolicy, secrets: Secrets, huggingface: str | None) -> None:
        self._root, self._patience, self._secrets, self._huggingface = root, patience, secrets, huggingface
        self._hubs: dict[str, DatasetHub] = {}

    def hub_of(self, dataset: Dataset) -> DatasetHub:
        kind = _kind(dataset)
        if kind not in self._hubs:
            self._hubs[kind] = self._open(kind)
        return self._hubs[kind]

    def _open(self, kind: str) -> DatasetHub:
        # each imports the library of its sources
        match kind:
            case "registry":
                from graftline.datasets.sources.registry import RegistryHub

                return RegistryHub(self._patience)
            case "huggingface":
                from graftline.datasets.sources.huggingface import HuggingFaceHub

                return HuggingFaceHub(self._patience, self._secrets, self._huggingface)
            case "http":
                from graftline.datasets.sources.http import HttpHub

                return HttpHub(self._patience)
            case "filesystem":
                return filesystem_hub(self._patience)
            case _:
                return local_hub(self._root)


def _kind(dataset: Dataset) -> str:
    if dataset.reader == "package_releases":
        return "registry"
    scheme, separator, _ = (dataset.url or "").partition("://")
    if not separator:
        return "local"
    return {"hf": "huggingface", "https": "http", "http": "http"}.get(scheme.lower(), "filesystem")
