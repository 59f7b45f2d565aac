"""Recipes by name, and their configurations: `configs/recipes/<name>.yaml`."""

from collections.abc import Callable, Mapping
from typing import Any

from graftline.config import load_yaml, parse_yaml, validated
from graftline.errors import ConfigError
from graftline.paths import Paths
from graftline.training.recipes.base import Recipe
from graftline.training.recipes.dpo import Dpo, DpoConfig
from graftline.training.recipes.sl_basic import SlBasic, SlBasicConfig
from graftline.training.settings import TinkerTrainingConfig

CONFIGS: Mapping[str, type[TinkerTrainingConfig]] = {"dpo": DpoConfig, "sl_basic": SlBasicConfig}
_RECIPES: Mapping[type[TinkerTrainingConfig], Callable[[Any], Recipe]] = {DpoConfig: Dpo, SlBasicConfig: SlBasic}


def configured(paths: Paths) -> list[str]:
    """Return the names of the configurations of a checkout."""
    return sorted(path.stem for path in (paths.configs / "recipes").glob("*.yaml"))


def load_recipe(paths: Paths, name: str, changes: Mapping[str, Any] | None = None) -> TinkerTrainingConfig:
    """Return the configuration called `name`, with `changes` of single values.

    Raises:
        ConfigError: there is none, it is for no recipe that is known, or it does not fit.
    """
    if name not in (known := configured(paths)):
        raise ConfigError(f"recipe {name!r} is unknown; {paths.configs / 'recipes'} has {', '.join(known) or 'none'}")
    path = paths.configs / "recipes" / f"{name}.yaml"
    return load_yaml(path, _config_of(parse_yaml(path.read_text("utf-8"), str(path)), str(path)), changes)


def restored(values: Mapping[str, Any], source: str) -> TinkerTrainingConfig:
    """Return the configuration that was written down as `values`.

    Raises:
        ConfigError: as `load_recipe`.
    """
    return validated(values, _config_of(values, source), source)


def open_recipe(config: TinkerTrainingConfig) -> Recipe:
    """Return the recipe that `config` is of."""
    return _RECIPES[type(config)](config)


def _config_of(values: Any, source: str) -> type[TinkerTrainingConfig]:
    recipe = values.get("recipe", "") if isinstance(values, Mapping) else ""
    if recipe not in CONFIGS:
        raise ConfigError(f"{source}: recipe is {recipe!r}, but one of {', '.join(CONFIGS)} was expected")
    return CONFIGS[recipe]
