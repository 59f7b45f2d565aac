"""The tokenizer of a recipe: of a model of the catalog, which is made here if it is not yet, or of anything else."""

from collections.abc import Mapping
from pathlib import Path

from graftline.core.paths import Paths
from graftline.llm.weights.catalog import load_models
from graftline.llm.weights.convert import convert_here
from graftline.training.datums import Tokenizer, load_tokenizer
from graftline.training.memory.service import MemoryTrainingService
from graftline.training.open import LocalBackendConfig, TrainingClientConfig
from graftline.training.service import TrainingService
from graftline.training.settings import TinkerTrainingConfig


def tokenizer_of(
    service: TrainingService,
    port: TrainingClientConfig,
    config: TinkerTrainingConfig,
    paths: Paths,
    environment: Mapping[str, str],
) -> Tokenizer:
    """Return the tokenizer of what `service`, opened by `port`, trains: its own, that of its folder, or that of `config`.

    Raises:
        ConfigError: transformers is missing.
        ModelError: it is not there, or cannot be read.
    """
    if isinstance(service, MemoryTrainingService):
        return service.tokenizer
    if isinstance(port, LocalBackendConfig) and port.folder and not config.tokenizer:
        return load_tokenizer(paths.root / port.folder)
    return load_tokenizer(tokenizer_place(config, paths, environment))


def tokenizer_place(config: TinkerTrainingConfig, paths: Paths, environment: Mapping[str, str]) -> Path | str:
    """Return the folder of the tokenizer, or its name where it is of no model of the catalog.

    Raises:
        ModelError: the weights of the model are not there.
    """
    name = config.tokenizer or config.model
    return convert_here(name, paths, environment) if name in load_models(paths).models else name
