"""From configuration to a blob store."""

from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.blobs.base import BlobStore
from graftline.core.blobs.filesystem import FilesystemBlobStore
from graftline.core.blobs.memory import MemoryBlobStore
from graftline.core.blobs.objects import Objects, open_objects
from graftline.core.config import Config
from graftline.core.secrets import Secrets


class ObjectsConfig(Config):
    """A bucket, a folder, or whatever else fsspec has a client for."""

    url: str = Field(min_length=1)
    """A folder, from the root, or a URL: `s3://bucket/folder`, `gs://bucket/folder`."""
    options: dict[str, str | int | bool] = Field(default_factory=dict)
    """Of the client, such as `endpoint_url` of s3fs for a server other than Amazon's. Nothing secret."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """Options that are secret, by the names of the variables that hold them: `{key: AWS_ACCESS_KEY_ID}`. Without them
    the client looks where it always does, which for s3fs are the environment, `~/.aws` and the role of the machine."""


class FilesystemBlobsConfig(ObjectsConfig):
    """A bucket, a folder, or whatever else fsspec has a client for."""

    kind: Literal["filesystem"] = "filesystem"


class MemoryBlobsConfig(Config):
    """In this process: for tests."""

    kind: Literal["memory"] = "memory"


BlobsConfig = Annotated[FilesystemBlobsConfig | MemoryBlobsConfig, Field(discriminator="kind")]


def open_blob_store(config: BlobsConfig, root: Path, secrets: Secrets) -> BlobStore:
    """Return the store of `config`; whether it answers shows at the first use.

    Raises:
        ConfigError: its client is not installed or does not take the options, or a secret is not set.
    """
    match config:
        case FilesystemBlobsConfig():
            return FilesystemBlobStore(configured_objects(config, root, secrets, "blobs"))
        case MemoryBlobsConfig():
            return MemoryBlobStore()
        case _:
            assert_never(config)


def configured_objects(config: ObjectsConfig, root: Path, secrets: Secrets, port: str) -> Objects:
    """Return the objects of `config`, which is of the port called `port`; whether they answer shows at the first use.

    Raises:
        ConfigError: as `open_blob_store`.
    """
    secret = {
        option: secrets.require(name, f"{port}.secrets.{option}").get_secret_value()
        for option, name in config.secrets.items()
    }
    return open_objects(config.url, root, {**config.options, **secret}, secrets.redact, port)
