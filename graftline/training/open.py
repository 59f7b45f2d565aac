"""From configuration to a training service, and to the tokenizer of what it trains."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.config import Config
from graftline.core.paths import Paths
from graftline.core.secrets import Secrets
from graftline.llm.weights.catalog import load_models
from graftline.llm.weights.convert import convert_here
from graftline.training.datums import Tokenizer, load_tokenizer
from graftline.training.local.process import LocalBackendConfig, local_backend
from graftline.training.memory import MemoryTrainingService, memory_tokenizer
from graftline.training.settings import TinkerTrainingConfig
from graftline.training.tinker import TinkerSDKClient

DEFAULT_MODEL = "smollm2-135m"
"""What a backend of this machine serves by default."""


class TinkerServiceConfig(Config):
    """The Tinker service, or whatever else speaks its wire and runs already."""

    kind: Literal["tinker"] = "tinker"
    base_url: str | None = None
    """Its address; unset: what `TINKER_BASE_URL` names, else the hosted service."""
    api_key: str = "TINKER_API_KEY"
    """Name of the secret that holds the key."""


class MemoryTrainingConfig(Config):
    """A tiny random model in this process, really trained: for tests, and for recipes to be tried."""

    kind: Literal["memory"] = "memory"
    seed: int = 0
    """Of its weights."""


TrainingClientConfig = Annotated[
    TinkerServiceConfig | LocalBackendConfig | MemoryTrainingConfig, Field(discriminator="kind")
]


@contextmanager
def open_training_client(
    config: TrainingClientConfig, root: Path, secrets: Secrets, model: str = DEFAULT_MODEL, deadline_s: float = 600.0
) -> Iterator[TinkerSDKClient]:
    """Give the service of `config`, and close it at the end of the block.

    `root` has the weights below it, and checkpoints of a backend of this machine, which serves `model` where `config` does not
    say. No answer may take longer than `deadline_s`.
    """
    match config:
        case TinkerServiceConfig():
            key = secrets.require(config.api_key, "training_client 'tinker'")
            with TinkerSDKClient(key, config.base_url, deadline_s=deadline_s) as client:
                yield client
        case LocalBackendConfig():
            backend = local_backend(config, root, model)
            with backend as (url, key), TinkerSDKClient(key, url, deadline_s=deadline_s) as client:
                yield client
        case MemoryTrainingConfig():
            with MemoryTrainingService(config.seed, deadline_s) as client:
                yield client
        case _:
            assert_never(config)


def tokenizer_of(
    service: TinkerSDKClient,
    port: TrainingClientConfig,
    config: TinkerTrainingConfig,
    paths: Paths,
    environment: Mapping[str, str],
) -> Tokenizer:
    """Return the tokenizer of what `service`, opened by `port`, trains: its own, that of its folder, or that of `config`."""
    if isinstance(service, MemoryTrainingService):
        return memory_tokenizer()
    if isinstance(port, LocalBackendConfig) and port.folder and not config.tokenizer:
        return load_tokenizer(paths.root / port.folder)
    return load_tokenizer(tokenizer_source(config, paths, environment))


def tokenizer_source(config: TinkerTrainingConfig, paths: Paths, environment: Mapping[str, str]) -> Path | str:
    """Return the folder of the tokenizer, or its name where it is of no model of the catalog."""
    name = config.tokenizer or config.model
    return convert_here(name, paths, environment) if name in load_models(paths).models else name
