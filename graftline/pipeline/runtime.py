"""`Runtime`: recipes, run with the ports of a manifest.

    Runtime.run("sl_basic", {"max_steps": 20}, manifest="local")

What a recipe is stands in `training/recipes/`, what a manifest wires in `configs/manifests/`; here they meet. Importing this
module loads neither the SDK nor torch.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graftline.core.config import Config, put
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths, find_root
from graftline.datasets.store import DatasetStore
from graftline.pipeline.manifests import DEFAULT_MANIFEST, Manifest
from graftline.pipeline.ports import Ports, describe_recipe_ports, open_ports, resolve_overrides
from graftline.pipeline.recipe_models import find_served_weights, resolve_checkpoints, store_of
from graftline.training.adapter import download_adapter
from graftline.training.loop import OnStep
from graftline.training.memory import MemoryTrainingService
from graftline.training.open import tokenizer_of
from graftline.training.recipes.open import CONFIGS, load_recipe, recipe_names, restore_config
from graftline.training.runs import Runs
from graftline.training.settings import TinkerTrainingConfig
from graftline.training.train import MEMORY_OUTPUT, OUTPUT, TinkerTrainingResult, train_on_tinker

logger = logging.getLogger(__name__)

Values = Mapping[str, Any] | TinkerTrainingConfig | None
"""Values in place of those of a recipe, by dotted key, or a whole configuration."""


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


@dataclass(frozen=True, slots=True)
class RecipeRun:
    """What became of a run, or what would have been done."""

    spec: ExperimentSpec
    wiring: dict[str, dict[str, Any]]
    """The implementation behind every port, with its settings."""
    result: TinkerTrainingResult | None = None
    """None where nothing was run."""
    adapter: Path | None = None
    """Its folder, in the layout of PEFT; None where it was not fetched."""


class Runtime:
    """Runs recipes. Nothing is kept from one call to the next."""

    @staticmethod
    def run(
        recipe: str,
        config: Values = None,
        *,
        manifest: str = DEFAULT_MANIFEST,
        ports: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        is_downloading: bool = True,
        dry_run: bool = False,
        root: Path | None = None,
        on_step: OnStep = lambda metrics, total: None,
        on_notice: Callable[[str], None] = logger.warning,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> RecipeRun:
        """Train by a recipe and fetch the adapter; a run that was interrupted goes on, one that is done is not repeated.

        Args:
            recipe: A file of `configs/recipes/`, or a recipe itself, of which all values are given in `config` then.
            config: What is different from the file.
            manifest: What stands behind each port.
            ports: What is different from the manifest: an implementation by its kind, a setting by its dotted key, or a
                port itself, which stays open.
            run_id: Of the run; made of the configuration and the data if it is None.
            is_downloading: Whether the adapter is fetched at the end.
            dry_run: Whether to say what would be done, and to open nothing.
            root: The checkout; as the command finds it if it is None.
            on_step: Called for every step, with how many there will be.
            on_notice: Called with what a person should know before the first step; logged if it is not given.
            is_stopped: Asked before every step whether to end, with a checkpoint.

        Raises:
            ConfigError: there is no such recipe, manifest or port, the values do not fit, or what the recipe follows is
                not there.
            DataError: what is trained on is not there, or cannot be trained on.
            BoundaryError: what trains, or what answers are tried in, cannot be had or fails.
            Interrupted: `is_stopped` said so.
        """
        paths = _paths(root)
        values = recipe_config(paths, recipe, config)
        wired, replacements = resolve_overrides(paths, manifest, ports or {})
        output = MEMORY_OUTPUT if _is_memory(wired, replacements) else OUTPUT
        spec, described = experiment(values, output.as_posix()), describe_recipe_ports(wired, replacements)
        if dry_run:
            return RecipeRun(spec, described)
        runs = Runs(paths.root / output)
        store = None if "training_client" in replacements else store_of(wired.training_client, paths.root)
        values = resolve_checkpoints(values, paths, runs, has_checkpoints=output != MEMORY_OUTPUT, store=store)
        with (
            open_ports(wired, paths, replacements) as opened,
            _root_of(paths, opened.dataset_store) as recipe_root,
        ):
            if wired.training_client.kind == "local" and "training_client" not in replacements:
                on_notice(
                    f"starting the training backend of this machine with {values.model}, which takes up to minutes"
                )
            service = opened.training_client_for(values.model, values.deadline_s)
            result = train_on_tinker(
                values,
                output_dir=runs.folder,
                root=recipe_root,
                tokenizer=tokenizer_of(service, opened.manifest.training_client, values, paths, os.environ),
                run_id=run_id,
                service=service,
                sandbox=lambda: opened.sandbox,
                on_step=on_step,
                on_notice=on_notice,
                is_stopped=is_stopped,
            )
            adapter = None
            if is_downloading:
                weights = find_served_weights(opened.manifest.training_client, values, paths)
                adapter = download_adapter(runs, result.run, service, weights)
        return RecipeRun(spec, described, result, adapter)

    @staticmethod
    def build_ports(
        manifest: str = DEFAULT_MANIFEST, overrides: Mapping[str, Any] | None = None, *, root: Path | None = None
    ) -> AbstractContextManager[Ports]:
        """Give the ports that recipes are run with, each opened at its first use, and close them at the end of the block.

        Raises:
            ConfigError: as `run`.
        """
        paths = _paths(root)
        wired, replacements = resolve_overrides(paths, manifest, overrides or {})
        return open_ports(wired, paths, replacements)

    @staticmethod
    def build_spec(recipe: str, config: Values = None, *, root: Path | None = None) -> ExperimentSpec:
        """Return what a run of a recipe would be, with all its values.

        Raises:
            ConfigError: there is no such recipe, or the values do not fit.
        """
        return experiment(recipe_config(_paths(root), recipe, config), OUTPUT.as_posix())


def _paths(root: Path | None) -> Paths:
    return Paths(root.resolve() if root else find_root(os.environ))


@contextmanager
def _root_of(paths: Paths, store: DatasetStore) -> Iterator[Path]:
    """Give what recipes read below: the datasets of `store`, and the configuration of the checkout."""
    with store.folder() as datasets:
        if datasets.resolve() == paths.root:
            yield paths.root
            return
        linked = {path.name: path for path in datasets.iterdir() if not path.name.startswith(".")}
        with TemporaryDirectory(prefix="graftline-root-") as folder:
            for name, target in {**linked, "configs": paths.configs}.items():
                (Path(folder) / name).symlink_to(target.resolve())
            yield Path(folder)


def _is_memory(manifest: Manifest, replacements: Mapping[str, Any]) -> bool:
    if "training_client" in replacements:
        return isinstance(replacements["training_client"], MemoryTrainingService)
    return manifest.training_client.kind == "memory"


_ADDRESS = re.compile(r"https?://[^\s)>,;]+")


def recipe_config(paths: Paths, recipe: str, config: Values = None) -> TinkerTrainingConfig:
    """Return the configuration of a run, as `Runtime.run` takes `recipe` and `config`."""
    if isinstance(config, TinkerTrainingConfig):
        if config.recipe != recipe:
            raise ConfigError(f"recipe {recipe!r} was asked for, but the configuration is one of {config.recipe!r}")
        return config
    names = recipe_names(paths)
    if recipe in names:
        return load_recipe(paths, recipe, config)
    if recipe not in CONFIGS:
        fileless = ", ".join(name for name in CONFIGS if name not in names)
        raise ConfigError(
            f"recipe {recipe!r} is unknown; the files of {paths.configs / 'recipes'} are {', '.join(names) or 'none'}"
            + (f"; without a file, where every value is set, there are {fileless}" if fileless else "")
        )
    tree: dict[str, Any] = {"recipe": recipe}
    for key, value in (config or {}).items():
        put(tree, key, value, f"recipe {recipe}:")
    return restore_config(tree, f"recipe {recipe}")


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
    """Return what tells a recipe from others, in one line; what its kind of recipe does where it does not say."""
    return config.description or _first_line(config)


def _first_line(config: TinkerTrainingConfig) -> str:
    return _page(config).partition("\n")[0]


def _page(config: TinkerTrainingConfig) -> str:
    return (import_module(type(config).__module__).__doc__ or "").strip()
