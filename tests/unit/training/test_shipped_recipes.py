"""The recipes of `configs/recipes/`: what they name is there, what is exported for them fits, and each says what it is."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from graftline.cli.data import export
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.pipeline.provenance.audit import audit
from graftline.pipeline.runtime import description_of
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.training.recipes.open import check_recipe, load_recipe, recipe_names
from tests.pages import CHECKOUT
from tests.recipes import write_recipe

PATHS = Paths(CHECKOUT)
RECIPES = {name: load_recipe(PATHS, name) for name in recipe_names(PATHS)}


def test_every_recipe_says_what_tells_it_from_the_others() -> None:
    descriptions = [description_of(config) for config in RECIPES.values()]
    assert len({*descriptions}) == len(RECIPES) >= 10
    assert all(config.description and len(config.description) <= 100 for config in RECIPES.values())


@pytest.mark.parametrize(
    "name", [name for name, config in RECIPES.items() if config.dataset.startswith("data/exports/")]
)
def test_the_prompt_of_exports_leaves_nearly_all_tokens_of_a_recipe_to_the_code(name: str) -> None:
    [prompt] = [option.default for option in export.params if option.name == "prompt"]
    settings = load_prompt(PATHS.configs, str(prompt)).settings
    # whatever the tokenizer, a token has a character at least
    said = "".join(text for text in (settings.system, settings.user, settings.state) if text)
    assert not settings.has_shots
    assert len(said) <= RECIPES[name].max_tokens // 16
    assert RECIPES[name].max_tokens >= 1024


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": "smollm2-1.7b"},
            "model is 'smollm2-1.7b', but configs/models.yaml has smollm2-135m, qwen2.5-coder-0.5b",
        ),
        (
            {"recipe": "distill", "teacher_model": "smollm2-1.7b"},
            "teacher_model is 'smollm2-1.7b', but configs/models.yaml",
        ),
        ({"follows": "none"}, r"follows is 'none', but .*recipes has wrong"),
        ({"recipe": "distill", "teacher_recipe": "none"}, r"teacher_recipe is 'none', but .*recipes has wrong"),
    ],
)
def test_a_recipe_that_names_what_there_is_not_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    (tmp_path / "configs").mkdir()
    write_recipe(tmp_path, "wrong", None, dataset="a.jsonl", **changes)
    with pytest.raises(ConfigError, match=message):
        check_recipe(Paths(tmp_path), "wrong")
    faults = audit(Paths(tmp_path), inputs_only=True).faults
    assert [fault for fault in faults if "wrong.yaml: " in fault] != []


def test_data_that_the_prompt_cannot_be_asked_about_is_told_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    shutil.copy(PATHS.configs / "teacher_prompts.yaml", tmp_path / "configs")
    write_recipe(tmp_path, "right", {"kind": "changes"})
    write_recipe(tmp_path, "wrong", {"kind": "changes", "prompt": "brief"})
    check_recipe(Paths(tmp_path), "right")
    with pytest.raises(
        ConfigError, match=r"data\.kind: changes has no known actions, which prompt 'brief' is answered"
    ):
        check_recipe(Paths(tmp_path), "wrong")


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "Qwen/Qwen3-8B"},
        {"model": "my-own", "tokenizer": "models/my-own"},
        {"recipe": "distill", "model": "Qwen/Qwen3-8B", "teacher_model": "Qwen/Qwen3-32B"},
        {"follows": "right"},
    ],
)
def test_a_recipe_may_name_models_that_a_service_or_a_folder_has(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "configs").mkdir()
    write_recipe(tmp_path, "right", None, dataset="a.jsonl", **changes)
    check_recipe(Paths(tmp_path), "right")
