"""Recipes that go on from the adapter of another one, over the backend of this machine: also when its checkpoint is gone."""

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.errors import ConfigError, TrainingError
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME
from graftline.pipeline.recipe_models import resolve_checkpoints
from graftline.training.adapter import CONFIG, WEIGHTS, download_adapter
from graftline.training.local.checkpoints import CheckpointStore, utc_now
from graftline.training.recipes.distill import DistillConfig
from graftline.training.recipes.open import load_recipe
from graftline.training.runs import Runs, TrainingRun
from graftline.training.settings import TinkerTrainingConfig
from graftline.training.tinker import TinkerSDKClient
from graftline.training.train import OUTPUT, train_on_tinker
from tests.training_root import write_root

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

WEEK_S = 7 * 24 * 3600


class Followed:
    """A checkout with the adapter of the recipe `tiny`, and the recipe `after`, which goes on from it."""

    def __init__(self, root: Path, model: Path, server: Any, client: TinkerSDKClient) -> None:
        self.paths, self.server, self.client = Paths(write_root(root, model, epochs=1)), server, client
        self.runs = Runs(root / OUTPUT)
        self.first = self.train(load_recipe(self.paths, "tiny"))
        files = download_adapter(self.runs, self.first, client, None)

        def copy(folder: Path) -> Contents:
            for path in files.iterdir():
                if path.name != RECORD_NAME:
                    shutil.copyfile(path, folder / path.name)
            return Contents({})

        request = Request("trained_adapter", "tiny", "1", {}, {"run_id": self.first.run_id})
        self.adapter = build(self.paths.adapter("tiny"), request, copy).folder
        recipes = root / "configs" / "recipes"
        values = json.loads((recipes / "tiny.yaml").read_text("utf-8"))
        (recipes / "after.yaml").write_text(json.dumps({**values, "follows": "tiny", "max_steps": 1}), "utf-8")

    def train(self, config: TinkerTrainingConfig) -> TrainingRun:
        return train_on_tinker(config, root=self.paths.root, service=self.client).run

    def resolve_checkpoints(self, store: Path | None = None) -> TinkerTrainingConfig:
        return resolve_checkpoints(
            load_recipe(self.paths, "after"), self.paths, self.runs, has_checkpoints=True, store=store
        )

    def expire(self, path: str) -> None:
        """Have the checkpoint at `path` be one whose time was over a day ago."""
        store = CheckpointStore(self.server.root, lambda: utc_now() - timedelta(days=8))
        store.set_ttl(store.parse(path), WEEK_S)


@pytest.fixture
def followed(tmp_path: Path, tiny_model: Path, tinker_server: Any) -> Iterator[Followed]:
    with TinkerSDKClient(tinker_server.api_key, tinker_server.url, deadline_s=60.0) as client:
        yield Followed(tmp_path / "root", tiny_model, tinker_server, client)


def test_a_run_goes_on_from_the_adapter_on_disk_where_its_checkpoint_has_expired(followed: Followed) -> None:
    followed.expire(followed.first.checkpoints[-1].path)
    with pytest.raises(TrainingError, match="the checkpoint that this run starts from is not there any more"):
        followed.train(followed.resolve_checkpoints())
    config = followed.resolve_checkpoints(followed.server.root)
    assert config.start_from == followed.first.checkpoints[-1].path
    assert followed.train(config).base_held_out_loss == pytest.approx(followed.first.held_out_loss, abs=1e-5)


def test_a_run_goes_on_from_an_adapter_of_another_machine(followed: Followed) -> None:
    followed.runs.path(followed.first.run_id).unlink()
    with pytest.raises(ConfigError, match="the checkpoint that the adapter of 'tiny' was made of is not known"):
        followed.resolve_checkpoints()
    config = followed.resolve_checkpoints(followed.server.root)
    assert config.start_from.startswith("tinker://tiny-")
    assert followed.train(config).base_held_out_loss == pytest.approx(followed.first.held_out_loss, abs=1e-5)


def test_the_adapter_of_a_recipe_teaches(followed: Followed) -> None:
    config = DistillConfig(model="tiny-qwen3", dataset="data/train.jsonl", teacher_recipe="tiny")
    taught = resolve_checkpoints(config, followed.paths, followed.runs, has_checkpoints=True)
    assert isinstance(taught, DistillConfig)
    assert (taught.teacher_path, taught.teacher_recipe) == (followed.first.sampler_path, "")
    store = CheckpointStore(followed.server.root)
    store.delete(store.parse(followed.first.sampler_path))
    resolve_checkpoints(config, followed.paths, followed.runs, has_checkpoints=True, store=followed.server.root)
    restored = store.files(store.parse(followed.first.sampler_path))
    for name in (WEIGHTS, CONFIG):
        assert (restored / name).read_bytes() == (followed.adapter / name).read_bytes()


def test_an_adapter_that_another_backend_made_is_not_gone_on_from(followed: Followed) -> None:
    followed.expire(followed.first.checkpoints[-1].path)

    def foreign(folder: Path) -> Contents:
        shutil.copyfile(followed.adapter / WEIGHTS, folder / WEIGHTS)
        return Contents({})

    build(followed.adapter, Request("trained_adapter", "tiny", "2", {}, {"run_id": followed.first.run_id}), foreign)
    with pytest.raises(ConfigError, match=r"was not trained by a backend of this machine \(it has no facts.json\)"):
        followed.resolve_checkpoints(followed.server.root)
