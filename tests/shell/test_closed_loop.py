"""The closed loop over a small root: the runs that are planned make it, and the sensor requests one after the other."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import dagster as dg
import pytest

from assets.partitions import range_tags
from graftline.core.paths import Paths
from graftline.core.record import load_record
from orchestration.build import build_definitions
from orchestration.run_jobs import plan_runs
from tests.unit.pipeline.conftest import _made, made, reconfigure, run
from tests.unit.pipeline.test_closed_loop import looped, tiny_model

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

__all__ = ["_made", "looped", "made", "reconfigure", "run", "tiny_model"]

CHECKOUT = Path(__file__).resolve().parents[2]
PORTS = {
    "dataset_hub": {"kind": "sources"},
    "sandbox": {"kind": "memory"},
    "teacher": {"kind": "induction"},
    "training_client": {"kind": "local", "folder": "model", "threads": 1},
}


@pytest.mark.long
def test_the_runs_that_are_planned_make_what_the_results_read(
    looped: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    (looped.configs / "manifests" / "local.yaml").write_text(json.dumps(PORTS), "utf-8")
    monkeypatch.setenv("GRAFTLINE_ROOT", str(looped.root))
    planned = [*plan_runs(looped, "closed_loop", [])]
    assert [job for job, _ in planned] == ["training", "training", "evaluations", "closed_loop"]
    definitions, made = build_definitions(), []
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for job, tags in planned:
            result = definitions.resolve_job_def(job).execute_in_process(instance=instance, tags=tags)
            made += result.get_asset_materialization_events()
    found = [event.step_materialization_data.materialization for event in made]
    shown = {(one.asset_key.to_user_string(), one.partition): one.metadata for one in found}
    versions = {
        (one.asset_key.to_user_string(), one.partition): (one.tags or {}).get("dagster/data_version") for one in found
    }
    assert {*shown} == {
        ("sft_dataset", "first"), ("trained_adapter", "first"), ("sft_dataset", "second"),
        ("trained_adapter", "second"), ("evaluation", "pairs"), ("closed_loop_results", None),
        ("reports/adapters", None),
    }  # fmt: skip
    adapter = load_record(looped.adapter("first"))
    assert versions["trained_adapter", "first"] == adapter.identity
    assert None not in versions.values()
    assert "MIT" in str(shown["sft_dataset", "first"]["licenses"].value)
    assert str(shown["trained_adapter", "second"]["loss_curve"].value).startswith("![loss](data:image/png;base64,")
    assert "| rival | adapter |" in str(shown["evaluation", "pairs"]["comparisons"].value)
    assert Path(str(shown["evaluation", "pairs"]["report"].value)).exists()
    assert "# The closed loop" in str(shown["closed_loop_results", None]["results"].value)
    assert str(shown["closed_loop_results", None]["plot"].value).startswith("![solved](data:image/png;base64,")


@pytest.mark.long
def test_what_make_types_goes_through_all_steps(looped: Paths, tmp_path: Path) -> None:
    (looped.configs / "manifests" / "local.yaml").write_text(json.dumps(PORTS), "utf-8")
    (home := tmp_path / "home").mkdir()
    assert "python -m orchestration.run_jobs closed_loop\n" in (CHECKOUT / "Makefile").read_text("utf-8")
    environment = {**os.environ, "GRAFTLINE_ROOT": str(looped.root), "DAGSTER_HOME": str(home)}
    words = [sys.executable, "-m", "orchestration.run_jobs", "closed_loop"]
    done = subprocess.run(words, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    page = (looped.data / "closed_loop" / "report.md").read_text("utf-8")
    assert "| a pair (2) | solved | adapter | 0 % | rival | 100 % |" in page


@pytest.mark.parametrize(
    ("job", "tags", "following"),
    [
        ("training", {"dagster/partition": "first"}, ("training", "second")),
        ("training", range_tags("second", "second"), ("evaluations", "pairs")),
        ("evaluations", {"dagster/partition": "pairs"}, ("closed_loop", None)),
    ],
)
def test_the_sensor_requests_what_comes_after_a_step(
    looped: Paths, monkeypatch: pytest.MonkeyPatch, job: str, tags: dict[str, str], following: tuple[str, str | None]
) -> None:
    [request] = asked(looped, monkeypatch, job, tags)
    assert isinstance(request, dg.RunRequest)
    assert (request.job_name, request.partition_key) == following


@pytest.mark.parametrize("tags", [{"dagster/partition": "other"}, range_tags("first", "second"), {}])
def test_the_sensor_leaves_other_runs_alone(
    looped: Paths, monkeypatch: pytest.MonkeyPatch, tags: dict[str, str]
) -> None:
    [skipped] = asked(looped, monkeypatch, "training", tags)
    assert isinstance(skipped, dg.SkipReason)


def asked(paths: Paths, monkeypatch: pytest.MonkeyPatch, job: str, tags: dict[str, str]) -> list[object]:
    """Return what the sensor says of a run that has succeeded."""
    monkeypatch.setenv("GRAFTLINE_ROOT", str(paths.root))
    definitions = build_definitions()
    with dg.DagsterInstance.ephemeral() as instance, warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        instance.add_dynamic_partitions("recipes", ["first", "second", "other"])
        run = instance.create_run_for_job(definitions.resolve_job_def(job), tags=tags)
        with dg.build_run_status_sensor_context(
            sensor_name="closed_loop",
            dagster_event=dg.DagsterEvent("PIPELINE_SUCCESS", job_name=job),
            dagster_instance=instance,
            dagster_run=run,
            repository_def=definitions.get_repository_def(),
            resources={"artifacts": definitions.resources["artifacts"]},
        ) as context:
            return [definitions.resolve_sensor_def("closed_loop")(context)]
