"""Which weights of the catalog a port trains, by which an adapter names its base."""

from pathlib import Path
from typing import Any

import pytest

from graftline.core.paths import Paths
from graftline.pipeline.recipe_models import find_served_weights
from graftline.training.local.process import LocalBackendConfig
from graftline.training.open import MemoryTrainingConfig, TinkerServiceConfig
from graftline.training.settings import TinkerTrainingConfig


@pytest.mark.parametrize(
    ("port", "card"),
    [
        (LocalBackendConfig(), "HuggingFaceTB/SmolLM2-135M-Instruct"),
        (LocalBackendConfig(model="qwen2.5-coder-0.5b"), "Qwen/Qwen2.5-Coder-0.5B-Instruct"),
        (TinkerServiceConfig(), "HuggingFaceTB/SmolLM2-135M-Instruct"),
        # whatever they call it, this is not the model of the catalog
        (LocalBackendConfig(folder="models/mine"), None),
        (MemoryTrainingConfig(), None),
    ],
)
def test_an_adapter_is_one_of_the_weights_that_were_really_trained(checkout: Path, port: Any, card: str | None) -> None:
    config = TinkerTrainingConfig(recipe="sl_basic", model="smollm2-135m", dataset="data/rows.jsonl")
    weights = find_served_weights(port, config, Paths(checkout))
    assert (weights and weights.card) == card
