"""The assets over a small checkout: a whole run, a second one, and runs that have to fail."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.partitions import range_tags
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord
from graftline.pipeline.run_log import last_run
from orchestration.build import build_definitions
from tests.shell.runs import materializations, materialize


@pytest.fixture
def root(small_checkout: Any, varied_pairs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Path:
    small_checkout.write(varied_pairs)
    monkeypatch.setenv("GRAFTLINE_ROOT", str(small_checkout.root))
    return small_checkout.root


@dataclass(frozen=True)
class Run:
    """What one run over all assets did."""

    success: bool
    is_made: list[bool]
    """Of every artifact, whether it was made anew."""
    versions: dict[str, str | None]
    """Of every asset."""


def run(root: Path, instance: dg.DagsterInstance) -> Run:
    result = materialize(root, instance)
    made = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    versions = {one.asset_key.to_user_string(): (one.tags or {}).get("dagster/data_version") for one in made}
    return Run(result.success, [bool(outcome.reason) for outcome in last_run(Paths(root))], versions)


@pytest.fixture(scope="module")
def runs(
    new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Run, Run]:
    """A root with nine good rows and three bad ones, and what two runs over it did."""
    small = new_checkout(tmp_path_factory.mktemp("runs") / "checkout")
    small.write([*varied_pairs, '{"id": ', b'\xff\xfe{"id": 1}', {**varied_pairs[0], "id": "x", "pre": " "}])
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("GRAFTLINE_ROOT", str(small.root))
        return small.root, run(small.root, instance), run(small.root, instance)


@pytest.fixture
def made(runs: tuple[Path, Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root of its own, of which everything is made."""
    root = Path(shutil.copytree(runs[0], tmp_path / "made"))
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    return root


def test_one_run_makes_everything_and_a_second_one_nothing(runs: tuple[Path, Run, Run]) -> None:
    _, first, second = runs
    # 2 of the dataset, 3 over all datasets, 5 stages in 9 partitions each, the warehouse, 2 reports
    assert (first.success, first.is_made, second.success, any(second.is_made)) == (True, [True] * 53, True, False)


def test_an_unchanged_rerun_keeps_every_data_version(runs: tuple[Path, Run, Run]) -> None:
    _, first, second = runs
    graph = build_definitions().resolve_asset_graph()
    others = {"training", "harbor", "evaluations", "prompts", "closed_loop"}
    declared = {key for key in graph.materializable_asset_keys if graph.get(key).group_name not in others}
    assert set(first.versions) == {key.to_user_string() for key in declared}
    assert second.versions == first.versions


def test_another_teacher_of_the_run_configuration_adds_its_attempts(made: Path, instance: dg.DagsterInstance) -> None:
    teaching = dg.AssetSelection.assets("teacher_trajectories")
    second = materialize(made, instance, teaching, {"teacher": {"settings": {"memory": {}}}})
    folder = Paths(made).partition("trajectories/raw", "python", "train")
    assert (second.success, sorted(path.name for path in folder.iterdir())) == (True, ["induction", "memory"])


def test_metadata_shows_counts_tables_and_where_files_are(root: Path, instance: dg.DagsterInstance) -> None:
    result = materialize(root, instance, {"raw"})
    [one] = materializations(result)
    metadata = one.metadata
    assert metadata["dagster/row_count"].value == 9
    assert metadata["state"].value == "made: not there yet"
    assert metadata["record"].value == str(Paths(root).raw("release_pairs") / "_meta.json")
    assert "| rows | 9 |" in metadata["counts"].value


def test_too_few_verified_steps_fail_the_run_and_stop_the_reports(made: Path, instance: dg.DagsterInstance) -> None:
    path = made / "configs" / "trajectories.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "least_verified_steps": 1000}), "utf-8")
    shutil.rmtree(made / "reports")
    result = materialize(made, instance)
    [evaluation] = [
        found for found in result.get_asset_check_evaluations() if found.check_name == "enough_verified_steps"
    ]
    assert (result.success, evaluation.passed) == (False, False)
    assert not (made / "reports").exists()


def test_a_damaged_dataset_keeps_its_good_rows_and_names_the_bad_ones(runs: tuple[Path, Run, Run]) -> None:
    root, _, _ = runs
    record = json.loads((Paths(root).normalized("release_pairs") / "_meta.json").read_text("utf-8"))
    page = (root / "reports" / "datasets" / "release_pairs.md").read_text("utf-8")
    assert record["counts"] == {
        "rows_in": 12,
        "rows": 9,
        "labels": 0,
        "dropped.empty_pre": 1,
        "dropped.invalid_utf8": 1,
        "dropped.malformed_json": 1,
    }
    for place in ("release_pairs.jsonl:10: ", "release_pairs.jsonl:11: ", "release_pairs.jsonl:12: "):
        assert place in page


def test_an_empty_partition_range_fails_instead_of_doing_nothing(root: Path, instance: dg.DagsterInstance) -> None:
    definitions = build_definitions()
    job = definitions.resolve_implicit_global_asset_job_def()
    # the inner range runs backwards: from test to train
    tags = range_tags("java|test", "python|train")
    selection = dg.AssetSelection.assets("splits").resolve(definitions.resolve_asset_graph())
    materialize(root, instance, {"raw", "normalized", "division"})
    result = job.get_subset(asset_selection=selection).execute_in_process(
        instance=instance, tags=tags, raise_on_error=False
    )
    assert not result.success


def test_reports_show_precision_by_language_with_a_plot(runs: tuple[Path, Run, Run]) -> None:
    root, _, _ = runs
    page = (root / "reports" / "teacher" / "metrics.md").read_text("utf-8")
    assert (root / "reports" / "teacher" / "precision.png").read_bytes().startswith(b"\x89PNG")
    for language in ("java", "javascript", "python"):
        assert f"| induction | {language} | rule | release_pairs |" in page


@pytest.mark.long  # a failed test of the models keeps the tables in make test, below
def test_a_part_of_the_models_leaves_the_other_tables_where_they_were(made: Path, instance: dg.DagsterInstance) -> None:
    (Paths(made).warehouse.parent / "_meta.json").unlink()
    (Paths(made).warehouse).unlink()
    part = materialize(made, instance, dg.AssetSelection.assets("dataset_stats").upstream())
    reports = materialize(made, instance, {"reports/teacher"})
    assert (part.success, reports.success) == (True, True)


@pytest.fixture(scope="module")
def broken(
    runs: tuple[Path, Run, Run], tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, dict[str, dg.AssetCheckEvaluation], bool]:
    """What became of a run of the models over two faults: its success, its checks, and whether the warehouse stayed."""
    root = Path(shutil.copytree(runs[0], tmp_path_factory.mktemp("broken") / "root"))
    before = Paths(root).warehouse.read_bytes()
    forge_splits(Paths(root))
    path = root / "configs" / "datasets.yaml"
    path.write_text(
        json.dumps({**json.loads(path.read_text("utf-8")), "cleaning": {"licenses": ["Apache-2.0"]}}), "utf-8"
    )
    models = dg.AssetSelection.groups("reports") - dg.AssetSelection.assets(
        dg.AssetKey(["reports", "datasets"]), dg.AssetKey(["reports", "teacher"])
    )
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("GRAFTLINE_ROOT", str(root))
        result = materialize(root, instance, models)
    checks = {found.check_name: found for found in result.get_asset_check_evaluations()}
    return result.success, checks, Paths(root).warehouse.read_bytes() == before


def forge_splits(paths: Paths) -> None:
    """Put a stored file of another making in place, in which a package is in two splits."""
    folder = paths.partition("processed", "java", "dev")
    other = next(
        paths.partition("processed", "java", split)
        for split in ("train", "test")
        if (paths.partition("processed", "java", split) / "edits.jsonl").read_text("utf-8")
    )
    for name in ("edits.jsonl", "edits.parquet"):
        (folder / name).write_bytes((other / name).read_bytes())
    record = json.loads((folder / "_meta.json").read_text("utf-8"))
    sums = json.loads((other / "_meta.json").read_text("utf-8"))["files"]
    forged = ArtifactRecord.model_validate({**record, "files": sums}).with_identity()
    (folder / "_meta.json").write_text(forged.model_dump_json(), "utf-8")


def test_a_failed_test_of_the_models_is_shown_and_keeps_the_old_warehouse(
    broken: tuple[bool, dict[str, dg.AssetCheckEvaluation], bool],
) -> None:
    success, checks, is_kept = broken
    assert [name for name, check in checks.items() if check.passed] == []
    assert (success, "group_in_one_split" in checks or "unique_stg_edits_id" in checks, is_kept) == (False, True, True)


def test_a_license_that_is_not_allowed_any_longer_fails_the_models(
    broken: tuple[bool, dict[str, dg.AssetCheckEvaluation], bool],
) -> None:
    success, checks, _ = broken
    refused = "relationships_stg_edits_license__license__ref_stg_allowed_licenses_"
    assert (success, checks[refused].passed) == (False, False)
    assert checks[refused].description == (
        "stg_edits: Got 9 results, configured to fail if != 0; materialize what the model reads again, the warehouse is"
        " as it was before"
    )


def test_models_without_their_inputs_fail_and_say_nothing_of_their_tests(
    root: Path, instance: dg.DagsterInstance
) -> None:
    result = materialize(root, instance, {"stg_edits"})
    assert (result.success, result.get_asset_check_evaluations()) == (False, [])
