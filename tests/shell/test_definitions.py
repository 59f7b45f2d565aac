"""The code location: it loads quickly, declares what it should, and imports nothing heavy."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from assets.partitions import use_instance_of_checkout
from orchestration.build import build_definitions

HEAVY = (
    "torch",
    "transformers",
    "tinker",
    "vllm",
    "celery",
    "dagster_celery",
    "dagster_k8s",
    "kubernetes",
    "dagster_postgres",
    "dbt",
    "networkx",
    "duckdb",
    "pyarrow",
    "matplotlib",
    "polars",
    "pandas",
    "hvac",
    "fsspec",
    "huggingface_hub",
    "scipy",
    "wandb",
    "rich.progress",
    "fastapi",
    "uvicorn",
    "graftline.harbor.client",
    "docker",
    "daytona",
)


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return build_definitions()


def test_definitions_can_be_loaded_and_bound(definitions: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(definitions)


def test_all_that_starts_runs_or_checks_says_what_for(definitions: dg.Definitions) -> None:
    repository = definitions.get_repository_def()
    of_dagster = "default_automation_condition_sensor"
    starts = [*repository.sensor_defs, *repository.schedule_defs, *(definitions.jobs or ())]
    assert {one.name for one in starts if not one.description} == {of_dagster}
    # those of dbt are part of the models
    models = [one for one in definitions.assets or () if isinstance(one, dg.AssetsDefinition)]
    checks = [spec for one in (*(definitions.asset_checks or ()), *models) for spec in one.check_specs]
    said = {spec.name: spec.description or "" for spec in checks}
    assert {name for name, what in said.items() if not what or what.startswith("Return")} == set()


def test_a_job_is_shown_no_sensor_that_never_requests_it(definitions: dg.Definitions) -> None:
    targets = {target.job_name for target in definitions.resolve_sensor_def("closed_loop").targets}
    assert targets == {"training", "evaluations", "closed_loop"}


def test_loading_the_definitions_imports_nothing_heavy(checkout: Path) -> None:
    program = f"""
import json, sys
import orchestration.definitions
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_lineage_has_the_edges_it_should(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    parents = {
        key: sorted(parent.to_user_string() for parent in graph.get(dg.AssetKey(key.split("/"))).parent_keys)
        for key in (
            "division",
            "splits",
            "label_tasks",
            "synthetic_rules",
            "tasks",
            "trajectories",
            "stg_edits",
            "stg_drops",
            "reports/teacher",
            "harbor_deployment",
            "instance_batch",
            "deployment_evaluation",
            "evaluation",
        )
    }
    assert parents == {
        "division": ["normalized_release_pairs"],
        "splits": ["division", "normalized_release_pairs"],
        "label_tasks": ["normalized_release_pairs"],
        "synthetic_rules": ["splits"],
        "tasks": ["splits", "synthetic_rules"],
        "trajectories": ["tasks", "teacher_trajectories"],
        "stg_edits": ["splits"],
        "stg_drops": ["normalized_release_pairs"],
        "reports/teacher": [
            "teacher_comparison",
            "teacher_failures",
            "teacher_levels",
            "teacher_measures",
            "teacher_over_out",
            "teacher_precision",
            "teacher_srl",
            "teacher_steps",
        ],
        "harbor_deployment": ["repository_changes", "tasks"],
        "instance_batch": ["harbor_deployment"],
        "deployment_evaluation": ["harbor_deployment", "instance_batch"],
        "evaluation": ["repository_changes", "splits", "tasks", "trained_adapter"],
    }


def test_the_checks_that_guard_the_lineage_block_it(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    ours = {
        (key.asset_key.to_user_string(), key.name): graph.get(key).blocking
        for key in graph.asset_check_keys
        # the tests of the models, all of which are checks too
        if graph.get(key.asset_key).group_name != "reports"
    }
    assert ours == {
        ("normalized_release_pairs", "schema_valid"): True,
        # what is left of a dataset is as good as before
        ("normalized_release_pairs", "most_rows_kept"): False,
        ("repository_changes", "schema_valid"): True,
        ("splits", "schema_valid"): True,
        ("splits", "no_row_in_two_splits"): True,
        ("tasks", "schema_valid"): True,
        ("teacher_trajectories", "schema_valid"): True,
        ("sft_dataset", "rows_fit"): True,
        ("trained_adapter", "adapter_is_whole"): True,
        ("trajectories", "schema_valid"): True,
        ("trajectories", "enough_verified_steps"): True,
        ("deployment_evaluation", "coverage"): True,
        ("deployment_evaluation", "mean_reward"): True,
        ("deployment_evaluation", "cost"): True,
        ("deployment_evaluation", "calibration"): True,
        ("evaluation", "adapter_not_worse_than_deployed"): True,
    }


@pytest.mark.filterwarnings("ignore:'assets.partitions' found in sys.modules:RuntimeWarning")
def test_the_range_that_is_printed_holds_every_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["assets.partitions"])
    runpy.run_module("assets.partitions", run_name="__main__")
    assert capsys.readouterr().out == "java|train...typescript|test\n"
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert "first_adapter" in instance.get_dynamic_partitions("recipes")


def test_without_an_instance_that_of_the_checkout_is_taken_as_make_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "")
    use_instance_of_checkout()
    assert os.environ["DAGSTER_HOME"] == str(Path(__file__).resolve().parents[2] / ".dagster")
    monkeypatch.setenv("DAGSTER_HOME", "/elsewhere")
    use_instance_of_checkout()
    assert os.environ["DAGSTER_HOME"] == "/elsewhere"


def test_the_workspace_file_finds_the_location_from_any_folder(checkout: Path, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("dagster")),
        "definitions",
        "validate",
        "-w",
        str(checkout / "workspace.yaml"),
    ]
    environment = {**os.environ, "DAGSTER_HOME": "", "PYTHONPATH": "", "PYTHONWARNINGS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, "All code locations passed validation" in done.stderr + done.stdout) == (0, True)
