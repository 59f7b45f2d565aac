"""Recipes that are run with the ports of a manifest: what would be done, what is done, and what cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest

from graftline.core.blobs import BlobStore
from graftline.core.errors import ConfigError, DataError
from graftline.datasets.sources.base import FolderHub
from graftline.datasets.store import FilesDatasetStore
from graftline.pipeline import Runtime
from graftline.pipeline.ports import RECIPE_PORTS as PORTS
from graftline.rollouts.retrieval.hashed import HashedEmbedder
from graftline.rollouts.retrieval.memory import MemoryVectorStore
from graftline.sandbox.actions.with_tests import SandboxWithTests
from graftline.testing.datasets import MemoryDatasetStore
from graftline.training.memory import MemoryTrainingService
from graftline.training.recipes.sl_basic import SlBasicConfig
from graftline.training.runs import Runs
from tests.pages import CHECKOUT

EXTRA = "pip install 'graftline[training]'"


def chat(number: int) -> dict[str, Any]:
    asked, said = f"What is {number}?", f"It is {number}."
    return {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}


def pair(number: int) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": f"What is {number}?"}],
        "chosen": [{"role": "assistant", "content": "It is so."}],
        "rejected": [{"role": "assistant", "content": "I do not know."}],
    }


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CHATS, PAIRS = lines([chat(number) for number in range(12)]), lines([pair(number) for number in range(8)])
STORED = {"dataset_store.files": {"chats.jsonl": CHATS, "sets/pairs.jsonl": PAIRS}}
LITTLE = {"dataset": "chats.jsonl", "held_out": "chats.jsonl", "batch_size": 4, "epochs": 3, "learning_rate": 0.03}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the shipped configuration."""
    for name in ("manifests", "recipes"):
        folder = tmp_path / "configs" / name
        folder.mkdir(parents=True)
        for path in (CHECKOUT / "configs" / name).glob("*.yaml"):
            (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
    return tmp_path


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_a_spec_has_every_value_of_a_recipe(root: Path) -> None:
    spec = Runtime.build_spec("sl_basic", {"batch_size": 3, "lora.rank": 4}, root=root)
    assert (spec.name, spec.recipe, [stage.name for stage in spec.stages]) == (
        "sl_basic_smollm2-135m",
        "sl_basic",
        ["train", "download"],
    )
    assert spec.description == "`sl_basic`: cross-entropy on the answers of chats."
    assert spec.sources == ("https://tinker-docs.thinkingmachines.ai/losses",)
    options = spec.stages[0].options
    assert options.keys() == SlBasicConfig.model_fields.keys() - {"recipe"}
    assert (options["batch_size"], options["lora"]["rank"], options["dataset"]) == (3, 4, "data/exports/sft.jsonl")
    assert json.loads(spec.model_dump_json())["stages"][0]["module"] == "graftline.training.recipes.sl_basic"


def test_a_recipe_without_a_file_is_given_all_its_values(root: Path) -> None:
    (root / "configs" / "recipes" / "sl_basic.yaml").unlink()
    values = {"model": "mine", "dataset": "chats.jsonl", "lora.rank": 2}
    assert Runtime.build_spec("sl_basic", values, root=root).stages[0].options["lora"]["rank"] == 2
    config = SlBasicConfig(model="mine", dataset="chats.jsonl")
    assert Runtime.build_spec("sl_basic", config, root=root).name == "sl_basic_mine"
    with pytest.raises(ConfigError, match="recipe sl_basic: model: field required"):
        Runtime.build_spec("sl_basic", {"dataset": "chats.jsonl"}, root=root)
    with pytest.raises(ConfigError, match="recipe 'dpo' was asked for, but the configuration is one of 'sl_basic'"):
        Runtime.build_spec("dpo", config, root=root)


@pytest.mark.parametrize(
    ("recipe", "values", "options", "message"),
    [
        ("sl", None, {}, r"recipe 'sl' is unknown; .*recipes are .*dpo, .*sl_basic"),
        ("sl_basic", None, {"manifest": "staging"}, "manifest 'staging' is unknown; known: default, local, dev, prod, test"),
        ("sl_basic", None, {"ports": {"blob": "memory"}}, "port 'blob' is unknown; known: training_client, dataset_store, blob"),
        ("sl_basic", None, {"ports": {"queue": object()}}, "port 'queue': is no setting, but of type object; only training"),
        ("sl_basic", {"sizes": 3}, {}, "sizes: unknown key"),
    ],
)  # fmt: skip
def test_what_is_unknown_is_refused_with_what_is_known(
    root: Path, recipe: str, values: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Runtime.run(recipe, values, root=root, dry_run=True, **options)


OF_THIS_MACHINE = ["files", "filesystem", "sources", "actors", "hashed", "sqlite", "warm"]


@pytest.mark.parametrize(
    ("manifest", "kinds"),
    [
        ("default", ["local", *OF_THIS_MACHINE]),
        ("prod", ["tinker", *OF_THIS_MACHINE]),
        ("test", ["memory", "memory", "memory", "memory", "memory", "hashed", "memory", "memory"]),
    ],
)
def test_a_dry_run_says_what_would_be_wired_and_opens_nothing(root: Path, manifest: str, kinds: list[str]) -> None:
    before = files(root)
    found = Runtime.run("sl_basic", manifest=manifest, root=root, dry_run=True)
    assert {name: one["kind"] for name, one in found.wiring.items()} == dict(zip(PORTS, kinds, strict=True))
    assert (found.result, found.adapter) == (None, None)
    assert found.spec.stages[0] == Runtime.build_spec("sl_basic", root=root).stages[0]
    assert files(root) == before


def test_ports_are_replaced_by_either_of_their_names(root: Path) -> None:
    ports = {"embedding_client.dimensions": 64, "blobs": "memory", "llm_client": {"kind": "memory", "answers": ["a"]}}
    wiring = Runtime.run("sl_basic", ports=ports, root=root, dry_run=True).wiring
    assert wiring["embedding_client"] == {"kind": "hashed", "dimensions": 64}
    assert wiring["blob_store"] == {"kind": "memory"}
    assert wiring["llm_client"] == {"kind": "memory", "answers": ["a"]}


def test_every_port_of_the_test_manifest_is_one_of_this_process(root: Path) -> None:
    with Runtime.build_ports("test", STORED, root=root) as ports:
        assert [type(getattr(ports, name)) for name in PORTS if name != "llm_client"] == [
            MemoryTrainingService, MemoryDatasetStore, BlobStore, FolderHub, HashedEmbedder, MemoryVectorStore, SandboxWithTests,
        ]  # fmt: skip
        assert ports.llm_client.name == "memory"
        assert ports.dataset_store.names() == ["chats.jsonl", "sets/pairs.jsonl"]
        assert ports.training_client is ports.training_client


def test_a_port_that_is_handed_in_is_used_and_stays_open(root: Path) -> None:
    store = MemoryDatasetStore({"mine.jsonl": b"{}\n"})
    with Runtime.build_ports("local", {"dataset_store": store}, root=root) as ports:
        assert ports.dataset_store is store
    wiring = Runtime.run("sl_basic", ports={"dataset_store": store}, root=root, dry_run=True).wiring
    assert wiring["dataset_store"] == {"kind": "given", "is": "MemoryDatasetStore"}


def test_a_recipe_is_trained_in_this_process(root: Path) -> None:
    pytest.importorskip("tinker_cookbook", reason=EXTRA)
    seen: list[int] = []
    given = {"manifest": "test", "ports": STORED, "root": root, "on_step": lambda step, total: seen.append(total)}
    done = Runtime.run("sl_basic", LITTLE, **given)
    assert done.result is not None
    run = done.result.run
    assert (run.status, run.backend, seen) == ("done", "memory", [9] * 9)
    assert run.held_out_loss < 0.9 * run.base_held_out_loss
    assert run.config["model"] == "smollm2-135m"
    # not among those of real models, whose run of this recipe and data would have the same name
    assert done.adapter == root / "models/adapters/memory" / run.run_id
    assert {path.name for path in done.adapter.iterdir() if path.suffix != ".lock"} == {
        "README.md", "_meta.json", "adapter_config.json", "adapter_model.safetensors", "facts.json",
    }  # fmt: skip
    again = Runtime.run("sl_basic", LITTLE, **given)
    assert (again.result.run, again.adapter, len(seen)) == (run, done.adapter, 9)


def test_the_same_recipe_has_the_same_losses(root: Path) -> None:
    pytest.importorskip("tinker_cookbook", reason=EXTRA)
    losses = []
    for name in ("one", "other"):
        own = root / name
        own.mkdir()
        (own / "configs").symlink_to(root / "configs")
        done = Runtime.run("sl_basic", {**LITTLE, "epochs": 1}, manifest="test", ports=STORED, root=own)
        losses.append([step.loss for step in Runs(own / "models/adapters/memory").steps(done.result.run_id)])
    assert losses[0] == losses[1]
    assert len(losses[0]) == 3


def test_preferences_are_trained_with_torch_over_the_table(root: Path) -> None:
    pytest.importorskip("tinker_cookbook", reason=EXTRA)
    values = {"dataset": "sets/pairs.jsonl", "learning_rate": 0.01, "epochs": 2}
    run = Runtime.run("dpo", values, manifest="test", ports=STORED, root=root).result.run
    assert run.first_loss == pytest.approx(0.6931, abs=1e-4)
    assert run.last_loss < run.first_loss


def test_files_of_the_root_are_the_datasets_of_other_manifests(root: Path) -> None:
    pytest.importorskip("tinker_cookbook", reason=EXTRA)
    (root / "elsewhere").mkdir()
    (root / "elsewhere" / "chats.jsonl").write_text(CHATS, "utf-8")
    with MemoryTrainingService() as service:

        def run(dataset: str, **ports: Any) -> Any:
            values = {"max_steps": 1, "batch_size": 4, "dataset": dataset}
            return Runtime.run("sl_basic", values, ports={"training_client": service, **ports}, root=root)

        done = run("elsewhere/chats.jsonl")
        other = run("chats.jsonl", dataset_store=FilesDatasetStore(root / "elsewhere"))
    assert done.result.run.dataset == other.result.run.dataset
    assert done.result.run_id != other.result.run_id


def test_a_dataset_that_is_not_there_is_an_error(root: Path) -> None:
    pytest.importorskip("tinker_cookbook", reason=EXTRA)
    with pytest.raises(DataError, match=r"nothing\.jsonl: cannot be read"):
        Runtime.run("sl_basic", {"dataset": "nothing.jsonl"}, manifest="test", ports=STORED, root=root)
    ports = {"dataset_store": "files", "dataset_store.folder": "nowhere"}
    with pytest.raises(DataError, match="is no folder; name the one that datasets are in"):
        Runtime.run("sl_basic", manifest="test", ports=ports, root=root)
