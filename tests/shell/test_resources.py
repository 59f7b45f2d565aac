"""One resource a system: who uses which, what a launchpad takes, and what stands in for each."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from graftline.core.paths import Paths
from graftline.sandbox.actions.memory import MemorySandbox
from orchestration.build import build_definitions, resources_for
from orchestration.run_jobs import describe_failures
from tests.recipes import train_in_memory, write_recipes
from tests.shell.graphql_client import open_graphql
from tests.shell.runs import failure_of, materialize, stage_of

OF_STAGES: Mapping[str, set[str]] = {
    "raw": {"dataset_sources"},
    "normalized": set(),
    "division": set(),
    "label_tasks": set(),
    "repository_changes": set(),
    "splits": set(),
    "synthetic_rules": {"sandbox"},
    "tasks": {"sandbox", "actors"},
    "teacher_trajectories": {"teacher", "sandbox", "actors", "queue"},
    "trajectories": set(),
    "sft_dataset": {"sandbox"},
    "trained_adapter": {"tinker", "sandbox"},
    "reports/adapters": set(),
    "reports/datasets": {"warehouse"},
    "reports/teacher": {"warehouse"},
    "source": {"dataset_sources"},
    "harbor_deployment": {"harbor"},
    "instance_batch": {"harbor"},
    "deployment_evaluation": {"harbor"},
    "evaluation": {"actors", "sandbox", "teacher", "tinker"},
}
"""The systems that assets use, beside `artifacts`, which all do."""
DATASETS = ("raw", "normalized", "division", "label_tasks", "repository_changes", "splits")


@pytest.fixture
def root(small_checkout: Any, varied_pairs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with rows, and nothing made of them."""
    small_checkout.write([row for row in varied_pairs if row["language"] == "python"])
    small_checkout.configure(languages=("python",), per_partition=1)
    monkeypatch.setenv("GRAFTLINE_ROOT", str(small_checkout.root))
    found: Path = small_checkout.root
    return found


@pytest.fixture(scope="module")
def job() -> dg.JobDefinition:
    return build_definitions().resolve_implicit_global_asset_job_def()


def test_every_asset_names_the_systems_it_uses_and_no_other(root: Path) -> None:
    train_in_memory(root)
    write_recipes(root)
    found: dict[str, set[str]] = {}
    for asset in build_definitions().assets or ():
        if not isinstance(asset, dg.AssetsDefinition):
            continue  # is made elsewhere
        for key in asset.keys:
            systems = asset.required_resource_keys - {"artifacts", "io_manager", "dbt"}
            assert found.setdefault(stage_of(key), systems) == systems
    # of dbt's models each is an asset
    models = {name for name, systems in found.items() if name not in OF_STAGES}
    assert {name: found[name] for name in found if name not in models} == dict(OF_STAGES)
    assert {frozenset(found[name]) for name in models} == {frozenset({"warehouse"})}


class Broken(MemorySandbox):
    """One that nothing may use."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("apply", "apply_many", "isolation"):
            raise AssertionError("the sandbox was used")
        return super().__getattribute__(name)


def test_a_sandbox_that_cannot_be_had_breaks_nothing_that_does_not_name_it(
    root: Path, instance: dg.DagsterInstance
) -> None:
    impossible = {"sandbox": {"settings": {"process": {"limits": {"memory_mb": 256}, "required_level": "full"}}}}
    result = materialize(root, instance, {*DATASETS, "synthetic_rules"}, impossible)
    made = {stage_of(event.asset_key) for event in result.get_asset_materialization_events()}
    assert (result.success, made) == (False, {*DATASETS})
    assert "full" in failure_of(result)
    assert "Traceback" not in failure_of(result)


@pytest.mark.parametrize(
    ("resource", "settings", "told"),
    [
        ("teacher", {"nonsense": {}}, ["nonsense", "induction", "memory", "openai"]),
        ("teacher", {"openai": {"tutor": "x"}}, ["tutor", "prompt", "adapter"]),
        ("sandbox", {"warm": {"required_level": "perfect"}}, ["perfect", "compute"]),
        ("sandbox", {"warm": {"workers": "two"}}, ["two", "Int"]),
        ("queue", {"kafka": {}}, ["kafka", "redis", "memory"]),
    ],
)
def test_what_a_launchpad_offers_is_refused_before_the_run(
    job: dg.JobDefinition, resource: str, settings: dict[str, Any], told: list[str]
) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError) as refused:
        dg.validate_run_config(job, {"resources": {resource: {"config": {"settings": settings}}}})
    assert [word for word in told if word not in str(refused.value)] == []


def test_a_number_out_of_its_range_is_refused_with_the_range(root: Path, instance: dg.DagsterInstance) -> None:
    result = materialize(root, instance, {"synthetic_rules"}, {"sandbox": {"settings": {"warm": {"workers": 0}}}})
    assert not result.success
    told = failure_of(result)
    assert told.startswith("resources: sandbox.warm.workers: ")
    assert "greater than or equal to 1" in told


def test_a_resource_that_there_is_not_is_refused_though_no_asset_lists_it(
    root: Path, instance: dg.DagsterInstance
) -> None:
    job = build_definitions().resolve_implicit_global_asset_job_def()
    # the framework takes any name for one that the chosen assets do not need
    assert dg.validate_run_config(job, {"resources": {"sandbx": {"config": {}}}})
    result = materialize(root, instance, {"raw"}, {"sandbx": {}})
    assert (result.success, failure_of(result)[:43]) == (False, "resources.sandbx: there is no such resource")


def test_the_resources_show_settings_and_of_secrets_the_names_alone(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-which-nobody-may-see")
    path = root / "configs" / "manifests" / "local.yaml"
    manifest = {"sandbox": {"kind": "warm", "workers": 2}, "teacher": {"kind": "induction"}}
    remote = {
        "chat_model": {"kind": "actors", "fleet": "gpu"},
        "training_client": {"kind": "tinker"},
        "queue": {"kind": "redis"},
        "dataset_hub": {"kind": "local"},
    }
    path.write_text(json.dumps({**manifest, **remote}), "utf-8")
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance, open_graphql(instance) as query:
        answer = query(
            '{allTopLevelResourceDetailsOrError(repositorySelector: {repositoryName: "__repository__",'
            ' repositoryLocationName: "graftline"}) {... on ResourceDetailsList {results {name description'
            " configuredValues {key value type} nestedResources {name} assetKeysUsing {path} sensorsUsing}}}}"
        )
    found = {one["name"]: one for one in answer["allTopLevelResourceDetailsOrError"]["results"]}
    assert found.keys() == {
        "artifacts", "sandbox", "actors", "teacher", "tinker", "harbor", "queue", "dataset_sources", "warehouse", "dbt",
    }  # fmt: skip
    assert all(one["description"] for one in found.values())
    values = {name: {one["key"]: one for one in found[name]["configuredValues"]} for name in found}
    assert json.loads(values["sandbox"]["settings"]["value"])["warm"]["workers"] == 2
    assert (values["tinker"]["api_key"]["type"], values["tinker"]["api_key"]["value"]) == ("ENV_VAR", "TINKER_API_KEY")
    assert (values["actors"]["api_key"]["type"], values["actors"]["api_key"]["value"]) == ("ENV_VAR", "VLLM_API_KEY")
    assert (values["queue"]["address"]["type"], values["queue"]["address"]["value"]) == (
        "ENV_VAR",
        "GRAFTLINE_REDIS_URL",
    )
    assert {one["name"] for one in found["teacher"]["nestedResources"]} == {"sandbox", "actors"}
    assert found["dataset_sources"]["sensorsUsing"] == ["dataset_versions"]
    assert "which-nobody-may-see" not in json.dumps(answer)


def test_a_key_that_is_in_a_file_is_looked_up_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    (root / ".env").write_text("TINKER_API_KEY=tml-of-a-file\n", "utf-8")
    path = root / "configs" / "manifests" / "local.yaml"
    wired = {"sandbox": {"kind": "memory"}, "teacher": {"kind": "memory"}, "dataset_hub": {"kind": "memory"}}
    path.write_text(json.dumps({**wired, "training_client": {"kind": "tinker"}}), "utf-8")
    assert resources_for(Paths(root), "local")["tinker"].api_key is None


def test_any_sandbox_stands_in_for_the_resource(root: Path, instance: dg.DagsterInstance) -> None:
    assert materialize(root, instance, DATASETS, sandbox=Broken()).success
    counting = Counting()
    assert materialize(root, instance, {"synthetic_rules", "tasks"}, sandbox=counting).success
    assert counting.batches > 0


class Counting(MemorySandbox):
    """Counts what it is asked for."""

    batches = 0

    def apply_many(self, *arguments: Any, **settings: Any) -> Any:
        self.batches += 1
        return super().apply_many(*arguments, **settings)


def test_reports_follow_what_they_are_about_and_nothing_that_costs_money_does(root: Path) -> None:
    graph = build_definitions().resolve_asset_graph()
    follows = {
        "report" if key.path[0] == "reports" or graph.get(key).group_name == "reports" else key.to_user_string()
        for key in graph.materializable_asset_keys
        if graph.get(key).automation_condition is not None
    }
    assert follows == {"report"}


def test_why_a_run_failed_is_said_once_more_in_a_sentence(root: Path, instance: dg.DagsterInstance) -> None:
    definitions = build_definitions()
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={dg.AssetKey("division")})
    assert [*describe_failures(instance)] == []
    job.execute_in_process(instance=instance, raise_on_error=False)
    [said] = describe_failures(instance)
    assert said.startswith(f"division: {root}/data/raw/release_pairs/normalized: has no _meta.json, so it was not made")
