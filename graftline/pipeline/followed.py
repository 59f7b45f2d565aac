"""What a recipe that `follows` another goes on from, and what a teacher is: checkpoints that adapters were made of."""

from pathlib import Path

from graftline.core.errors import ConfigError, RecordError
from graftline.core.paths import Paths
from graftline.core.record import load_record, load_verified
from graftline.training.open import TrainingClientConfig
from graftline.training.recipes.distill import DistillConfig
from graftline.training.runs import Runs
from graftline.training.settings import TinkerTrainingConfig


def resolved(
    config: TinkerTrainingConfig, paths: Paths, runs: Runs, has_checkpoints: bool, store: Path | None = None
) -> TinkerTrainingConfig:
    """Return `config` as it is trained: `start_from` and `teacher_path` say what it names by recipe, and which run it is.

    Args:
        config: One that names no other recipe is returned as it is.
        paths: Of the checkout, where the adapters are.
        runs: Where the runs of the adapters are written down.
        has_checkpoints: Whether what trains keeps them.
        store: Where a backend of this machine keeps them: one that has expired, or was never there, is written again from
            its adapter. None for another backend, and where nothing is to be written.

    Raises:
        ConfigError: there is nothing to go on from.
        RecordError: the adapter was altered.
    """
    changes: dict[str, str] = {}
    if config.follows:
        path = _checkpoint("follows", config.follows, "weights", paths, runs, has_checkpoints, store)
        changes |= {"follows": "", "start_from": path}
    if isinstance(config, DistillConfig) and config.teacher_recipe:
        recipe = config.teacher_recipe
        path = _checkpoint("teacher_recipe", recipe, "sampler_weights", paths, runs, has_checkpoints, store)
        changes |= {"teacher_recipe": "", "teacher_path": path}
    return config.model_copy(update=changes) if changes else config


def store_of(port: TrainingClientConfig, root: Path) -> Path | None:
    """Return where the backend of `port` keeps checkpoints; None where that is not on this machine."""
    return root / port.store if port.kind == "local" else None


def _checkpoint(
    key: str, recipe: str, kind: str, paths: Paths, runs: Runs, has_checkpoints: bool, store: Path | None
) -> str:
    """Return the path of the checkpoint of `kind` that the adapter of `recipe` was made of."""
    if not has_checkpoints:
        raise ConfigError(f"{key}: the training service `memory` forgets what it trained; use `local` or `tinker`")
    folder = paths.adapter(recipe)
    try:
        adapter = load_record(folder)
    except RecordError:
        raise ConfigError(
            f"{key}: recipe {recipe!r} has no adapter in {paths.relative(folder)} yet; materialize its trained_adapter"
            " first (`graftline run` does where the recipe is part of it), or name a checkpoint in place of it"
        ) from None
    run = runs.find(str(adapter.config.get("run_id", "")))
    path = ""
    if run is not None:
        path = run.sampler_path if kind == "sampler_weights" else run.checkpoints[-1].path if run.checkpoints else ""
    if store is not None:
        from graftline.training.local.checkpoints import CheckpointStore, restore_checkpoint

        load_verified(folder, "trained_adapter")
        path = path or f"tinker://{recipe}-{adapter.identity[:12]}/{kind}/adapter"
        restore_checkpoint(CheckpointStore(store), path, folder)
    if not path:
        raise ConfigError(
            f"{key}: the checkpoint that the adapter of {recipe!r} was made of is not known, so nothing can be trained on"
            " it; materialize its trained_adapter again"
        )
    return path
