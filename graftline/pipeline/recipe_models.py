"""The model that a recipe names, as what trains has it: which one it is, its weights, and how long a text it takes in."""

import os
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from graftline.core.errors import ConfigError, RecordError, TrainingError
from graftline.core.paths import Paths
from graftline.core.record import load_record, load_verified
from graftline.harbor.address import is_loopback
from graftline.llm.weights.catalog import Weights, find_weights, load_models
from graftline.llm.weights.fetch import fetch_model
from graftline.training.local.process import LocalBackendConfig
from graftline.training.open import TrainingClientConfig
from graftline.training.recipes.distill import DistillConfig
from graftline.training.runs import Runs
from graftline.training.sdk import parse_url
from graftline.training.settings import TinkerTrainingConfig
from graftline.training.tinker import TinkerSDKClient

_CHECKPOINTS = {"follows": ("start_from", "weights"), "teacher_recipe": ("teacher_path", "sampler_weights")}
"""By what names a recipe: what then says its checkpoint, and the kind of that."""


def model_name(port: TrainingClientConfig, config: TinkerTrainingConfig) -> str:
    """Return what is trained and asked, which a backend of this machine may say otherwise than the recipe."""
    return (port.folder or port.model or config.model) if port.kind == "local" else config.model


def model_digest(model: str, paths: Paths) -> str:
    """Return what tells the weights of a model from others: their digest where the catalog has them, else their name."""
    models = load_models(paths).models
    return models[model].sha256 if model in models else model


def find_served_weights(port: TrainingClientConfig, config: TinkerTrainingConfig, paths: Paths) -> Weights | None:
    """Return the weights of the catalog that are trained; None where what is trained is not of the catalog."""
    if port.kind == "memory" or (port.kind == "local" and port.folder):
        return None
    return find_weights(model_name(port, config), paths)


def fetch_served_weights(port: TrainingClientConfig, config: TinkerTrainingConfig, paths: Paths) -> None:
    """Have the weights here that a backend of this machine is to load; others have their own."""
    name = model_name(port, config)
    if port.kind == "local" and not port.folder and name in load_models(paths).models:
        fetch_model(name, paths, os.environ)


def context_tokens(service: TinkerSDKClient, model: str) -> int | None:
    """Return how many tokens a model takes in, question and answer; None where the service does not tell."""
    try:
        models = service.capabilities().supported_models
    except TrainingError as error:
        # some that speak the wire have no such route
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    # the service in memory answers to every name, and tells one
    named = models if len(models) == 1 else [supported for supported in models if supported.model_name == model]
    return named[0].max_context_length if named else None


def resolve_checkpoints(
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
    """
    names = {"follows": config.follows}
    if isinstance(config, DistillConfig):
        names["teacher_recipe"] = config.teacher_recipe
    changes: dict[str, str] = {}
    for key, recipe in names.items():
        if recipe:
            field, kind = _CHECKPOINTS[key]
            path = _checkpoint(key, recipe, kind, paths, runs, has_checkpoints, store)
            changes |= {key: "", field: path}
    return config.model_copy(update=changes) if changes else config


def store_of(port: TrainingClientConfig, root: Path) -> Path | None:
    """Return where the backend of `port` keeps checkpoints; None where that is not on this machine."""
    if port.kind == "tinker" and is_loopback(urlsplit(parse_url(port.base_url)).hostname or ""):
        return root / LocalBackendConfig().store
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
        from graftline.training.local.checkpoints import CheckpointStore

        load_verified(folder, "trained_adapter")
        path = path or f"tinker://{recipe}-{adapter.identity[:12]}/{kind}/adapter"
        CheckpointStore(store).restore(path, folder)
    if not path:
        raise ConfigError(
            f"{key}: the checkpoint that the adapter of {recipe!r} was made of is not known, so nothing can be trained on"
            " it; materialize its trained_adapter again"
        )
    return path
