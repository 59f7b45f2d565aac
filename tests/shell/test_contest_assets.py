"""The asset `evaluation` and its check, of solvers: partitions, what is shown, and what the check says."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets import contests
from graftline.core.record import write_atomically
from orchestration.build import build_definitions

CHECK = "adapter_not_worse_than_deployed"


@pytest.fixture
def root(small_checkout: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root whose manifest `local` starts nothing, with one evaluation of two teachers."""
    root: Path = small_checkout.root
    ports = {"dataset_hub": "sources", "sandbox": "memory", "teacher": "induction", "harbor": "memory"}
    manifest = json.dumps({port: {"kind": kind} for port, kind in ports.items()})
    (root / "configs" / "manifests" / "local.yaml").write_text(manifest, "utf-8")
    pairs = [
        {"language": "python", "pre": f"x = old({n})\n", "post": f"x = new({n})\n", "class": f"c{n % 2}"}
        for n in range(6)
    ]
    (root / "data" / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), "utf-8")
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    return root


def write(root: Path, candidate: str, deployed: str) -> None:
    file = {
        "tasks": [{"kind": "pairs", "path": "data/pairs.jsonl"}],
        "solvers": {
            "induction": {"kind": "teacher"},
            "gold": {"kind": "teacher", "teacher": {"kind": "memory"}},
        },
        "candidate": candidate,
        "deployed": deployed,
    }
    (root / "configs" / "evaluations").mkdir(exist_ok=True)
    (root / "configs" / "evaluations" / "teachers.yaml").write_text(json.dumps(file), "utf-8")


def run(**options: Any) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("evaluations", ["teachers"])
        job = build_definitions().resolve_job_def("evaluations")
        return job.execute_in_process(instance=instance, raise_on_error=False, partition_key="teachers", **options)


def test_an_evaluation_of_solvers_is_a_partition_that_shows_tables_plots_and_pages(root: Path) -> None:
    write(root, "induction", "gold")

    result = run()

    assert result.success
    # Dagster itself logs a bare one before
    *_, planned = [
        event.step_materialization_data.materialization
        for event in result.get_asset_materialization_events()
        if event.partition == "teachers"
    ]
    shown = {name: value.value for name, value in planned.metadata.items()}
    assert (shown["pass_at_1.induction"], shown["pass_at_1.gold"]) == (1.0, 0.0)
    assert "| induction |" in shown["figures"]
    assert "| gold | induction | all | verified | 6 |" in shown["comparisons"]
    assert "data:image/png" in shown["pass_plot"]
    assert "data:image/png" in shown["classes_plot"]
    report = Path(shown["report"])
    assert report == root / "reports" / "evaluations" / "teachers" / "report.md"
    assert "](pass.png)" in report.read_text("utf-8")
    assert {path.name for path in report.parent.iterdir()} == {"report.md", "attempts.html", "pass.png", "classes.png"}
    # a browser opens no file from a page of a server
    assert planned.metadata["browser"] == dg.MetadataValue.path(str(report.with_name("attempts.html")))
    [check] = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == (CHECK, True)


def test_the_pages_of_an_evaluation_are_written_whole_and_the_one_that_names_the_others_last(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "induction", "gold")
    written: list[str] = []

    def noted(path: Path, content: str | bytes) -> None:
        written.append(path.name)
        write_atomically(path, content)

    monkeypatch.setattr(contests, "write_atomically", noted)

    assert run().success
    assert written == ["pass.png", "classes.png", "attempts.html", "report.md"]
    assert not [*(root / "reports" / "evaluations").rglob(".*")]


def test_a_candidate_that_is_worse_fails_the_check(root: Path) -> None:
    write(root, "gold", "induction")

    [check] = run().get_asset_check_evaluations()

    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "0.000 against 1.000: -1.000" in str(check.metadata["standings"].value)
    assert check.metadata["difference.teachers"].value == -1.0
