"""What a run of a recipe would be, as JSON: its stages and their options, and where its formula is from."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from graftline.core.config import Config, put
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.training.recipes.open import CONFIGS, configured, load_recipe, restored
from graftline.training.settings import TinkerTrainingConfig

_ADDRESS = re.compile(r"https?://[^\s)>,;]+")


class StageSpec(Config):
    """One thing that is done."""

    name: str
    module: str
    """Where that is."""
    options: dict[str, Any]


class ExperimentSpec(Config):
    """A recipe with all its values."""

    name: str
    recipe: str
    description: str
    sources: tuple[str, ...]
    """Addresses of what it is worked out after."""
    stages: tuple[StageSpec, ...]


def recipe_config(
    paths: Paths, recipe: str, config: Mapping[str, Any] | TinkerTrainingConfig | None = None
) -> TinkerTrainingConfig:
    """Return the configuration of a run.

    Args:
        paths: Of the checkout.
        recipe: A file of `configs/recipes/`, or a recipe itself, of which all values are given then.
        config: Values in place of those of the file, by dotted key; or a whole configuration.

    Raises:
        ConfigError: there is no such recipe, or the configuration does not fit it.
    """
    if isinstance(config, TinkerTrainingConfig):
        if config.recipe != recipe:
            raise ConfigError(f"recipe {recipe!r} was asked for, but the configuration is one of {config.recipe!r}")
        return config
    names = configured(paths)
    if recipe in names:
        return load_recipe(paths, recipe, config)
    if recipe not in CONFIGS:
        raise ConfigError(
            f"recipe {recipe!r} is unknown; {paths.configs / 'recipes'} has {', '.join(names) or 'none'}, and there are"
            f" {', '.join(CONFIGS)} to be configured"
        )
    tree: dict[str, Any] = {"recipe": recipe}
    for key, value in (config or {}).items():
        put(tree, key, value, f"recipe {recipe}")
    return restored(tree, f"recipe {recipe}")


def experiment(config: TinkerTrainingConfig, output: str) -> ExperimentSpec:
    """Return what a run of `config` would be; adapters go to the folder `output`."""
    module = type(config).__module__
    return ExperimentSpec(
        name=f"{config.recipe}_{config.model}",
        recipe=config.recipe,
        description=_first_line(config),
        sources=tuple(dict.fromkeys(_ADDRESS.findall(_page(config)))),
        stages=(
            StageSpec(name="train", module=module, options=config.model_dump(mode="json", exclude={"recipe"})),
            StageSpec(name="download", module="graftline.training.adapter", options={"folder": output}),
        ),
    )


def description_of(config: TinkerTrainingConfig) -> str:
    """Return what tells a configured recipe from others, in one line; what its kind of recipe does where it does not say."""
    return config.description or _first_line(config)


def _first_line(config: TinkerTrainingConfig) -> str:
    return _page(config).partition("\n")[0]


def _page(config: TinkerTrainingConfig) -> str:
    return (import_module(type(config).__module__).__doc__ or "").strip()
