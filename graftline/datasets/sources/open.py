"""From configuration to a hub."""

from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.config import Config
from graftline.core.retry import RetryPolicy
from graftline.core.secrets import Secrets
from graftline.datasets.sources.addresses import HomesHub
from graftline.datasets.sources.base import DatasetHub
from graftline.datasets.sources.local import local_hub
from graftline.datasets.sources.memory import memory_hub


class HomesHubConfig(Config):
    """Every home in its own way: folders below the root, the Hugging Face hub, web servers, what fsspec knows."""

    kind: Literal["homes"] = "homes"
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
    """Files given in the configuration, as text by name; they stand for every home, a mirror included."""

    kind: Literal["memory"] = "memory"
    files: dict[str, str] = Field(default_factory=dict)


HubConfig = Annotated[HomesHubConfig | LocalHubConfig | MemoryHubConfig, Field(discriminator="kind")]


def open_hub(config: HubConfig, root: Path, secrets: Secrets, mirror: str = "") -> DatasetHub:
    """Return the hub of `config`.

    Args:
        root: below it lie the homes that are folders.
        secrets: where `HF_TOKEN` is looked up, once a home wants it.
        mirror: a folder, from the current one, or a URL of fsspec; empty for none.
    """
    match config:
        case HomesHubConfig():
            homes = HomesHub(root, config.patience, secrets, config.huggingface)
            return _mirrored(homes, mirror, config.patience, config.mirror_must_match_pins)
        case LocalHubConfig():
            return _mirrored(local_hub(root), mirror, RetryPolicy(), config.mirror_must_match_pins)
        case MemoryHubConfig():
            return memory_hub({name: text.encode() for name, text in config.files.items()})
        case _:
            assert_never(config)


def _mirrored(hub: DatasetHub, mirror: str, patience: RetryPolicy, must_match_pins: bool) -> DatasetHub:
    if not mirror:
        return hub
    from graftline.datasets.sources.mirror import MirrorHub

    return MirrorHub(mirror, hub, patience, must_match_pins)
