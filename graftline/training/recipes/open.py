"""Recipes by name, and their configurations: `configs/recipes/<name>.yaml`."""

from collections.abc import Mapping
from typing import Any

from graftline.core.config import load_yaml, parse_yaml, validate
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.llm.weights.catalog import load_models
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.actions import WarmSandboxConfig, open_sandbox
from graftline.sandbox.base import Sandbox
from graftline.training.memory import MODEL as MEMORY_MODEL
from graftline.training.recipes.base import OpenSandbox, Recipe
from graftline.training.recipes.distill import Distill, DistillConfig
from graftline.training.recipes.dpo import Dpo, DpoConfig
from graftline.training.recipes.recorded import RecordedGrpo
from graftline.training.recipes.sl_basic import SlBasic, SlBasicConfig
from graftline.training.recipes.srl import Srl, SrlConfig
from graftline.training.recipes.tasks import ExpertIteration, ExpertIterationConfig, RlGrpo, RlGrpoConfig
from graftline.training.settings import HELD_OUT, TRAIN, TinkerTrainingConfig

CONFIGS: Mapping[str, type[TinkerTrainingConfig]] = {
    "distill": DistillConfig,
    "dpo": DpoConfig,
    "expert_iteration": ExpertIterationConfig,
    "rl_grpo": RlGrpoConfig,
    "sl_basic": SlBasicConfig,
    "srl": SrlConfig,
}


def recipe_names(paths: Paths) -> list[str]:
    """Return the names of the configurations of a checkout."""
    return sorted(path.stem for path in (paths.configs / "recipes").glob("*.yaml"))


def load_recipe(paths: Paths, name: str, changes: Mapping[str, Any] | None = None) -> TinkerTrainingConfig:
    """Return the configuration called `name`, with `changes` of single values; ConfigError where it does not fit."""
    if name not in (names := recipe_names(paths)):
        raise ConfigError(f"recipe {name!r} is unknown; {paths.configs / 'recipes'} has {', '.join(names) or 'none'}")
    path = paths.configs / "recipes" / f"{name}.yaml"
    config = load_yaml(path, _config_of(parse_yaml(path.read_text("utf-8"), str(path)), str(path)), changes)
    if config.data is None or config.dataset:
        return config
    folder = paths.relative(paths.training_set(name))
    return config.model_copy(update={"dataset": f"{folder}/{TRAIN}", "held_out": f"{folder}/{HELD_OUT}"})


def check_models(config: TinkerTrainingConfig, paths: Paths, source: str) -> None:
    """Raise ConfigError where the catalog has not a model that is named.

    A name with a slash is one of a service, which alone knows it; so is that of a model whose `tokenizer` is named.
    """
    named = {"model": config.model}
    if isinstance(config, DistillConfig):
        named["teacher_model"] = config.teacher_model
    catalog = [*load_models(paths).models]
    allowed = {"", MEMORY_MODEL, *catalog, *([config.model] if config.tokenizer else ())}
    for key, model in named.items():
        if model not in allowed and "/" not in model:
            raise ConfigError(
                f"{source}: {key} is {model!r}, but configs/models.yaml has {', '.join(catalog)}; name one of them, or"
                " one of a service with its slash, such as 'Qwen/Qwen3-8B'; for any other one, set `tokenizer` too"
            )


def recipes_named(config: TinkerTrainingConfig) -> dict[str, str]:
    """Return the other recipes whose adapters `config` needs, by the key that names them."""
    named = {"follows": config.follows}
    if isinstance(config, DistillConfig):
        named["teacher_recipe"] = config.teacher_recipe
    return {key: recipe for key, recipe in named.items() if recipe}


def check_recipe(paths: Paths, name: str) -> None:
    """Raise ConfigError where a recipe cannot be loaded, names a model, a prompt or another recipe that there is not, or has data
    that its prompt cannot be asked about.
    """
    names = recipe_names(paths)
    config = load_recipe(paths, name)
    check_models(config, paths, str(paths.configs / "recipes" / f"{name}.yaml"))
    for key, recipe in recipes_named(config).items():
        if recipe not in names:
            folder = paths.configs / "recipes"
            raise ConfigError(f"{folder / f'{name}.yaml'}: {key} is {recipe!r}, but {folder} has {', '.join(names)}")
    if config.data is not None:
        # loads what makes rows, which nobody needs who only reads a recipe
        from graftline.training.rows import check_fits

        check_fits(config.recipe, config.data, load_prompt(paths.configs, config.data.prompt))


def restore_config(values: Mapping[str, Any], source: str) -> TinkerTrainingConfig:
    """Return the configuration that was written down as `values`; ConfigError as of `load_recipe`."""
    return validate(values, _config_of(values, source), source)


def open_recipe(config: TinkerTrainingConfig, sandbox: OpenSandbox | None = None) -> Recipe:
    """Return the recipe that `config` is of; `sandbox` returns what answers are graded in, that of this machine if it is None."""
    match config:
        case SlBasicConfig():
            return SlBasic(config)
        case DpoConfig():
            return Dpo(config)
        case SrlConfig():
            return Srl(config)
        case DistillConfig():
            return Distill(config)
        case ExpertIterationConfig():
            return ExpertIteration(config, sandbox or _sandbox_of_this_machine)
        case RlGrpoConfig(reward="recorded"):
            return RecordedGrpo(config)
        case RlGrpoConfig():
            return RlGrpo(config, sandbox or _sandbox_of_this_machine)
    raise TypeError(f"{type(config).__name__} is the configuration of no recipe")


def _sandbox_of_this_machine() -> Sandbox:
    # its processes end with this one
    return open_sandbox(WarmSandboxConfig())


def _config_of(values: Any, source: str) -> type[TinkerTrainingConfig]:
    recipe = values.get("recipe", "") if isinstance(values, Mapping) else ""
    if recipe not in CONFIGS:
        raise ConfigError(f"{source}: recipe is {recipe!r}, but one of {', '.join(CONFIGS)} was expected")
    return CONFIGS[recipe]
