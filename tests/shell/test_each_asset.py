"""Every asset by itself, with stub resources: the manifest `test` is where they come from, by `resources_for`."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from ruamel.yaml import YAML

from assets.partitions import range_tags, whole_range
from graftline.core.errors import SandboxError
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.pipeline.settings import load_settings
from graftline.training.memory import MemoryTrainingService
from orchestration.build import build_definitions, resources_for
from resources.artifacts import Artifacts
from resources.warehouse import Warehouse
from tests.harbor_lineage import task, write_deployment, write_tasks
from tests.recipes import SYNTHETIC, write_recipe
from tests.unit.pipeline.test_optimized_prompts import FILE as PROMPT
from tests.unit.pipeline.test_optimized_prompts import task as prompt_task

DATASET = "release_pairs"
SOURCE = f"source/{DATASET}"
OVER_ALL = ("raw", "normalized", "division", "label_tasks", "repository_changes")
OF_PARTITIONS = ("splits", "synthetic_rules", "tasks", "teacher_trajectories", "trajectories")
OF_NAMES = {
    "sft_dataset": "tiny", "trained_adapter": "tiny", "harbor_deployment": "tiny", "instance_batch": "tiny",
    "deployment_evaluation": "tiny", "evaluation": "teachers", "optimized_prompt": "tiny",
}  # fmt: skip
"""Assets that are over names, with one of theirs."""
REPORTS = ("report_models", "reports/datasets", "reports/teacher")
LAST = ("reports/adapters", "closed_loop_results")
FOLDERS: Mapping[str, Callable[[Paths], Path]] = {
    "raw": lambda paths: paths.raw(DATASET),
    "normalized": lambda paths: paths.normalized(DATASET),
    "division": lambda paths: paths.data / "division",
    "label_tasks": lambda paths: paths.data / "label_tasks",
    "repository_changes": lambda paths: paths.data / "repository_changes",
    "splits": lambda paths: paths.partition("processed", "python", "train"),
    "synthetic_rules": lambda paths: paths.partition("synthetic", "python", "train"),
    "tasks": lambda paths: paths.partition("tasks", "python", "train"),
    "trajectories": lambda paths: paths.partition("trajectories/parquet", "python", "train"),
    "sft_dataset": lambda paths: paths.training_set("tiny"),
    "trained_adapter": lambda paths: paths.adapter("tiny"),
    "harbor_deployment": lambda paths: paths.harbor("deployments", "tiny"),
    "instance_batch": lambda paths: paths.harbor("instances", "tiny"),
    "deployment_evaluation": lambda paths: paths.harbor("evaluations", "tiny"),
    "evaluation": lambda paths: paths.evaluation("teachers"),
    "reports/adapters": lambda paths: paths.reports / "adapters",
    "closed_loop_results": lambda paths: paths.data / "closed_loop",
}
"""Where the artifact of an asset is, of which the event has to say the identity."""


@pytest.fixture(scope="module")
def root(new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a file for everything that may be configured, and nothing made of it."""
    small = new_checkout(tmp_path_factory.mktemp("each") / "root")
    root: Path = small.root
    small.write([row for row in varied_pairs if row["language"] == "python"])
    small.configure(languages=("python",), per_partition=1)
    write_recipe(root, "tiny", SYNTHETIC)
    write_tasks(root, task(0), task(1))
    write_deployment(root)
    rows = [{"language": "python", "pre": f"x = old({n})\n", "post": f"x = new({n})\n"} for n in range(2)]
    (root / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (root / "tasks.jsonl").write_text("".join(f"{prompt_task(n).model_dump_json()}\n" for n in range(24)), "utf-8")
    solvers = {name: {"kind": "teacher"} for name in ("base", "candidate", "reinforced", "rival")}
    contest = {"tasks": [{"kind": "pairs", "path": "pairs.jsonl"}], "solvers": solvers}
    loop = {"recipes": ["tiny"], "evaluations": {"teachers": "pairs"}, **{name: name for name in solvers}}
    for name, content in {"evaluations/teachers": contest, "prompts/tiny": PROMPT, "closed_loop": loop}.items():
        path = root / "configs" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")
    return root


def stubs(root: Path, **replaced: Any) -> dict[str, Any]:
    """Return resources that start no process and reach no network, some of them replaced."""
    manifest = root / "configs" / "manifests" / "test.yaml"
    text = manifest.read_text("utf-8").replace("dataset_hub:\n  kind: memory", "dataset_hub:\n  kind: sources")
    manifest.write_text(text, "utf-8")
    return {**resources_for(Paths(root), "test"), **replaced}


def assets_of(root: Path) -> dict[str, dg.AssetsDefinition]:
    """Return every asset by the name of its key, that of the report models by the name of what makes them all."""
    found = {}
    for one in build_definitions().assets or ():
        assert isinstance(one, dg.AssetsDefinition)
        keys = sorted(key.to_user_string() for key in one.keys)
        name = keys[0].removesuffix(f"_{DATASET}") if len(keys) == 1 else "report_models"
        found[name] = one
    return found


def materialize(
    root: Path, name: str, asset: dg.AssetsDefinition, instance: dg.DagsterInstance, **replaced: Any
) -> dg.ExecuteInProcessResult:
    """Materialize one asset alone."""
    first, last = whole_range(load_settings(Paths(root)).catalog)
    over = {"partition_key": OF_NAMES[name]} if name in OF_NAMES else {}
    tags = range_tags(first, last) if name in OF_PARTITIONS else {}
    resources = {key: one for key, one in stubs(root, **replaced).items() if key in asset.required_resource_keys}
    return dg.materialize([asset], resources=resources, instance=instance, tags=tags, raise_on_error=False, **over)


def add_named_partitions(instance: dg.DagsterInstance) -> None:
    for definition in ("recipes", "deployments", "evaluated_deployments"):
        instance.add_dynamic_partitions(definition, ["tiny"])
    instance.add_dynamic_partitions("evaluations", ["teachers"])


@pytest.fixture(scope="module")
def results(root: Path) -> dict[str, dg.ExecuteInProcessResult]:
    """What came of every asset, each in a run of its own, in the order in which they need each other."""
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("GRAFTLINE_ROOT", str(root))
        add_named_partitions(instance)
        assets = assets_of(root)
        order = [*OVER_ALL, *OF_PARTITIONS, *OF_NAMES, *REPORTS, *LAST]
        assert {*order, SOURCE} == {*assets}
        return {name: materialize(root, name, assets[name], instance) for name in order}


@pytest.mark.parametrize("name", [*OVER_ALL, *OF_PARTITIONS, *OF_NAMES, *REPORTS, *LAST])
def test_an_asset_is_made_alone_with_stub_resources(
    root: Path, results: Mapping[str, dg.ExecuteInProcessResult], name: str
) -> None:
    result = results[name]
    assert result.success, failure_of(result)
    made = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    assert made
    if name in FOLDERS:
        identity = load_record(FOLDERS[name](Paths(root))).identity
        assert identity in {(one.tags or {}).get("dagster/data_version") for one in made}


def test_a_dataset_in_its_home_is_observed_with_the_revision_that_a_run_fetches(
    root: Path, results: Mapping[str, dg.ExecuteInProcessResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    source = assets_of(root)[SOURCE]
    resources = {key: one for key, one in stubs(root).items() if key in source.required_resource_keys}
    look = dg.define_asset_job("look", selection=dg.AssetSelection.assets(["source", DATASET]))
    job = dg.Definitions(assets=[source], jobs=[look], resources=resources).resolve_job_def("look")
    with dg.DagsterInstance.ephemeral() as instance:
        [event] = job.execute_in_process(instance=instance).get_asset_observation_events()
    tags = event.asset_observation_data.asset_observation.tags
    assert tags["dagster/data_version"] == load_record(Paths(root).raw(DATASET)).inputs["source"]


class Refusing:
    """What is given in place of a system, and says so when it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # the framework looks whether it is a resource
        raise SandboxError(f"the stand-in was asked for {name}")


class RefusingTrainer(MemoryTrainingService):
    """One that refuses to train: another object has no words for its tokens."""

    def create_training_client(self, *arguments: Any, **settings: Any) -> Any:
        raise SandboxError("the stand-in was asked for a training client")


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("dataset_sources", "raw"),
        ("sandbox", "synthetic_rules"),
        ("teacher", "teacher_trajectories"),
        ("tinker", "trained_adapter"),
        ("harbor", "harbor_deployment"),
        ("actors", "optimized_prompt"),
    ],
)
def test_what_is_given_in_place_of_a_resource_is_what_its_asset_uses(
    root: Path,
    results: Mapping[str, dg.ExecuteInProcessResult],
    monkeypatch: pytest.MonkeyPatch,
    resource: str,
    name: str,
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    stand_in = RefusingTrainer() if resource == "tinker" else Refusing()
    # so that it has to be made anew
    for folder in [FOLDERS[name](Paths(root))] if name in FOLDERS else []:
        shutil.rmtree(folder)
    shutil.rmtree(root / "models" / "adapters" / "memory", ignore_errors=True)
    with dg.DagsterInstance.ephemeral() as instance:
        add_named_partitions(instance)
        result = materialize(root, name, assets_of(root)[name], instance, **{resource: stand_in})
    assert not result.success
    assert "the stand-in was asked for" in failure_of(result)


def test_another_root_another_warehouse_and_another_queue_are_those_that_are_used(
    root: Path,
    results: Mapping[str, dg.ExecuteInProcessResult],
    monkeypatch: pytest.MonkeyPatch,
    new_checkout: Any,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    monkeypatch.delenv("GRAFTLINE_REDIS_URL", raising=False)
    elsewhere, assets = new_checkout(tmp_path / "elsewhere"), assets_of(root)
    manifest = json.loads(json.dumps(YAML(typ="safe").load(root / "configs" / "manifests" / "test.yaml")))
    queued = {**manifest, "teacher": {"kind": "openai"}, "queue": {"kind": "redis"}}
    (root / "configs" / "manifests" / "dev.yaml").write_text(json.dumps(queued), "utf-8")
    asking = {name: one for name, one in resources_for(Paths(root), "dev").items() if name in ("teacher", "queue")}
    with dg.DagsterInstance.ephemeral() as instance:
        made = materialize(
            root, "raw", assets["raw"], instance, artifacts=Artifacts(root=str(elsewhere.root), manifest="local")
        )
        read = materialize(
            root, "reports/teacher", assets["reports/teacher"], instance, warehouse=Warehouse(path="/no/where.duckdb")
        )
        # a secret that is missing is told before the run
        with pytest.raises(dg.DagsterInvalidConfigError, match="GRAFTLINE_REDIS_URL"):
            materialize(root, "teacher_trajectories", assets["teacher_trajectories"], instance, **asking)
    assert made.success
    assert load_record(Paths(elsewhere.root).raw(DATASET)).counts["rows"] == 0
    assert "/no/where.duckdb: no such file" in failure_of(read)


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    failures = [event.step_failure_data for event in result.get_step_failure_events()]
    return "\n".join(str(one.user_failure_data.description if one.user_failure_data else one.error) for one in failures)
