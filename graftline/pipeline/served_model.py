"""The model that a recipe names, as what trains has it: which one it is, its weights, and how long a text it takes in."""

import os
from http import HTTPStatus

from graftline.core.errors import TrainingError
from graftline.core.paths import Paths
from graftline.llm.weights.catalog import Weights, find_weights, load_models
from graftline.llm.weights.fetch import fetch_model
from graftline.training.open import TrainingClientConfig
from graftline.training.service import TrainingService
from graftline.training.settings import TinkerTrainingConfig


def served(port: TrainingClientConfig, config: TinkerTrainingConfig) -> str:
    """Return what is trained and asked, which a backend of this machine may say otherwise than the recipe."""
    return (port.folder or port.model or config.model) if port.kind == "local" else config.model


def model_digest(model: str, paths: Paths) -> str:
    """Return what tells the weights of a model from others: their digest where the catalog has them, else their name."""
    known = load_models(paths).models
    return known[model].sha256 if model in known else model


def served_weights(port: TrainingClientConfig, config: TinkerTrainingConfig, paths: Paths) -> Weights | None:
    """Return the weights of the catalog that are trained; None where what is trained is not of the catalog."""
    if port.kind == "memory" or (port.kind == "local" and port.folder):
        return None
    return find_weights(served(port, config), paths)


def fetch_served(port: TrainingClientConfig, config: TinkerTrainingConfig, paths: Paths) -> None:
    """Have the weights here that a backend of this machine is to load; others have their own.

    Raises:
        ModelError: they cannot be had.
    """
    name = served(port, config)
    if port.kind == "local" and not port.folder and name in load_models(paths).models:
        fetch_model(name, paths, os.environ)


def context_tokens(service: TrainingService, model: str) -> int | None:
    """Return how many tokens a model takes in, question and answer; None where the service does not tell.

    Raises:
        TrainingError: the service cannot be asked.
    """
    try:
        models = service.capabilities().supported_models
    except TrainingError as error:
        # some that speak the wire have no such route
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    # the service in memory answers to every name, and tells one
    named = models if len(models) == 1 else [one for one in models if one.model_name == model]
    return named[0].max_context_length if named else None
