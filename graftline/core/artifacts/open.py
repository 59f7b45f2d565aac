"""From configuration to a store of artifacts."""

import re
from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.artifacts.base import ArtifactStore
from graftline.core.artifacts.bucket import BucketArtifacts
from graftline.core.artifacts.folder import FolderArtifacts
from graftline.core.artifacts.memory import MemoryArtifacts
from graftline.core.blobs.open import ObjectsConfig, configured_objects
from graftline.core.config import Config
from graftline.core.secrets import Secrets

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class FolderArtifactsConfig(Config):
    """The root itself: one machine, or a file system that every worker has as its root."""

    kind: Literal["folder"] = "folder"


class BucketArtifactsConfig(ObjectsConfig):
    """A bucket, or a folder that several machines mount; `url` is its address, or the name of the variable that has it.

    Every worker has a root of its own, in which it keeps what it made and what it read.
    """

    kind: Literal["bucket"] = "bucket"


class MemoryArtifactsConfig(Config):
    """In this process: for tests."""

    kind: Literal["memory"] = "memory"


ArtifactsConfig = Annotated[
    FolderArtifactsConfig | BucketArtifactsConfig | MemoryArtifactsConfig, Field(discriminator="kind")
]


def open_artifacts(config: ArtifactsConfig, root: Path, secrets: Secrets) -> ArtifactStore:
    """Return the store of `config`; whether it answers shows at the first use.

    Raises:
        ConfigError: its client is not installed or does not take the options, or a variable is not set.
    """
    match config:
        case FolderArtifactsConfig():
            return FolderArtifacts(root)
        case BucketArtifactsConfig():
            if _VARIABLE.fullmatch(config.url):
                address = secrets.require(config.url, "artifacts.url").get_secret_value()
                config = config.model_copy(update={"url": address})
            return BucketArtifacts(configured_objects(config, root, secrets, "artifacts"))
        case MemoryArtifactsConfig():
            return MemoryArtifacts()
        case _:
            assert_never(config)
