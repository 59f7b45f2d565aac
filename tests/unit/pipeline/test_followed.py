"""Recipes that follow another: which run they are, wherever they are trained, and what is said where they cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.cli.options import Output
from graftline.core.build import Contents, Request, build
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.pipeline import Runtime
from graftline.pipeline.recipe_models import resolve_checkpoints
from graftline.training.recipes.open import load_recipe
from graftline.training.runs import CheckpointNote, Runs, TrainingRun
from graftline.training.settings import TinkerTrainingConfig, config_digest
from graftline.training.train import OUTPUT
from tests.recipes import SYNTHETIC, write_recipe
from tests.training_root import CHECKOUT

CHECKPOINTS = [CheckpointNote(step=step, path=f"tinker://a/weights/{step}", probe_loss=1.0) for step in (2, 4)]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    for name in ("default", "local"):
        text = (CHECKOUT / "configs" / "manifests" / "local.yaml").read_text("utf-8")
        (tmp_path / "configs" / "manifests" / f"{name}.yaml").write_text(text, "utf-8")
    write_recipe(tmp_path, "first", SYNTHETIC)
    write_recipe(tmp_path, "after", SYNTHETIC, follows="first")
    return Paths(tmp_path)


def trained(paths: Paths, checkpoints: list[CheckpointNote]) -> Runs:
    """Have an adapter of `first`, and the record of its run."""
    runs = Runs(paths.root / OUTPUT)
    run = {"recipe": "sl_basic", "config": {}, "config_digest": "0", "dataset": {}, "examples": 1, "versions": {}}
    runs.write(TrainingRun(run_id="sl-1", **run, backend="b", total_steps=4, checkpoints=checkpoints))
    request = Request("trained_adapter", "first", "1", {}, {"run_id": "sl-1"})
    build(paths.adapter("first"), request, lambda folder: Contents({}))
    return runs


def test_what_is_followed_is_the_newest_checkpoint_of_its_adapter(paths: Paths) -> None:
    runs = trained(paths, CHECKPOINTS)
    config = load_recipe(paths, "after")
    found = resolve_checkpoints(config, paths, runs, has_checkpoints=True)
    assert (found.start_from, found.follows) == ("tinker://a/weights/4", "")
    assert config_digest(found) != config_digest(config)
    plain = load_recipe(paths, "first")
    assert resolve_checkpoints(plain, paths, runs, has_checkpoints=False) is plain


def test_what_cannot_be_followed_says_what_to_do(paths: Paths) -> None:
    config, runs = load_recipe(paths, "after"), Runs(paths.root / OUTPUT)
    with pytest.raises(ConfigError, match="`memory` forgets what it trained; use `local` or `tinker`"):
        resolve_checkpoints(config, paths, runs, has_checkpoints=False)
    with pytest.raises(
        ConfigError, match="recipe 'first' has no adapter in models/adapters/first yet; materialize its"
    ):
        resolve_checkpoints(config, paths, runs, has_checkpoints=True)
    with pytest.raises(ConfigError, match="the checkpoint that the adapter of 'first' was made of is not known"):
        resolve_checkpoints(config, paths, trained(paths, []), has_checkpoints=True)


@pytest.mark.parametrize("command", ["recipes", "train"])
def test_no_command_trains_the_bare_model_in_place_of_what_is_followed(paths: Paths, command: str) -> None:
    done = CliRunner().invoke(main, ["--root", str(paths.root), command, "run", "after"])
    assert (done.exit_code, "recipe 'first' has no adapter" in done.output) == (1, True), done.output


def test_a_runtime_trains_on_what_is_followed(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(paths, CHECKPOINTS)
    given: list[str] = []

    class Seen(Exception):
        pass

    def train(config: Any, **more: Any) -> None:
        given.append(config.start_from)
        raise Seen

    monkeypatch.setattr("graftline.pipeline.runtime.train_on_tinker", train)
    monkeypatch.setattr("graftline.pipeline.runtime.tokenizer_of", lambda *given: None)

    class Service:
        """What would train; nothing is asked of it."""

    with pytest.raises(Seen):
        Runtime.run("after", ports={"training_client": Service(), "dataset_store": {"kind": "memory"}}, root=paths.root)
    assert given == ["tinker://a/weights/4"]


def test_a_run_that_was_written_down_with_both_can_be_gone_on_with(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_recipe(paths, "after").model_copy(update={"start_from": "tinker://a/weights/4"})
    run = {"recipe": "sl_basic", "config_digest": "0", "dataset": {}, "examples": 1, "versions": {}, "backend": "b"}
    record = TrainingRun(run_id="sl-2", config=json.loads(config.model_dump_json()), **run, total_steps=4)
    Runs(paths.root / OUTPUT).write(record)
    given: list[tuple[str, str]] = []

    def train(paths: Paths, recipe: str, config: TinkerTrainingConfig, *more: object) -> Output:
        given.append((config.start_from, config.follows))
        return Output({})

    monkeypatch.setattr("graftline.cli.train._train", train)
    done = CliRunner().invoke(main, ["--root", str(paths.root), "train", "resume", "sl-2"])
    assert (done.exit_code, given) == (0, [("tinker://a/weights/4", "")]), done.output
