"""The assets over a small checkout: a whole run, a second one, and runs that have to fail."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.partitions import whole_range
from graftline.paths import Paths
from graftline.record import Record
from graftline.runtime.run_log import last_run
from graftline.runtime.settings import load_settings
from orchestration.build import build_definitions

DATASET_STAGES = ("raw/release_pairs", "normalized/release_pairs", "division")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def root(small_checkout: Any, varied_pairs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Path:
    small_checkout.write(varied_pairs)
    monkeypatch.setenv("GRAFTLINE_ROOT", str(small_checkout.root))
    return small_checkout.root


def materialize(
    root: Path,
    instance: dg.DagsterInstance,
    selection: dg.AssetSelection | None = None,
    ports: dict[str, Any] | None = None,
) -> dg.ExecuteInProcessResult:
    definitions = build_definitions()
    first, last = whole_range(load_settings(Paths(root)).catalogue)
    job = definitions.resolve_implicit_global_asset_job_def()
    if selection is not None:
        job = job.get_subset(asset_selection=selection.resolve(definitions.resolve_asset_graph()))
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    config = {"ops": {"teacher_trajectories": {"config": {"ports": ports}}}} if ports else None
    return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False, run_config=config)


def test_one_run_makes_everything_and_a_second_one_nothing(root: Path, instance: dg.DagsterInstance) -> None:
    first = materialize(root, instance)
    made = [bool(outcome.reason) for outcome in last_run(Paths(root))]
    second = materialize(root, instance)
    again = [outcome for outcome in last_run(Paths(root)) if outcome.reason]
    # 2 of the dataset, 2 over all datasets, 5 stages in 9 partitions each, the warehouse, 2 reports
    assert (first.success, made, second.success, again) == (True, [True] * 52, True, [])


def test_another_teacher_of_the_run_configuration_adds_its_attempts(root: Path, instance: dg.DagsterInstance) -> None:
    teaching = dg.AssetSelection.assets("teacher_trajectories")
    first = materialize(root, instance, teaching.upstream())
    second = materialize(root, instance, teaching, {"teacher": "memory"})
    unknown = materialize(root, instance, teaching, {"tutor": "memory"})
    folder = Paths(root).partition("trajectories/raw", "python", "train")
    assert (first.success, second.success, sorted(path.name for path in folder.iterdir())) == (
        True,
        True,
        ["induction", "memory"],
    )
    [failure] = unknown.get_step_failure_events()
    assert "port 'tutor' is unknown" in str(failure.step_failure_data.user_failure_data.description)


def test_an_unchanged_rerun_keeps_every_data_version(root: Path, instance: dg.DagsterInstance) -> None:
    def versions() -> dict[str, str | None]:
        found = {}
        for event in materialize(root, instance).get_asset_materialization_events():
            materialization = event.step_materialization_data.materialization
            found[materialization.asset_key.to_user_string()] = (materialization.tags or {}).get("dagster/data_version")
        return found

    first = versions()
    declared = build_definitions().resolve_asset_graph().executable_asset_keys
    assert set(first) == {key.to_user_string() for key in declared}
    assert versions() == first


def test_metadata_shows_counts_tables_and_where_files_are(root: Path, instance: dg.DagsterInstance) -> None:
    result = materialize(root, instance, dg.AssetSelection.assets(dg.AssetKey(["raw", "release_pairs"])))
    [event] = result.get_asset_materialization_events()
    metadata = event.step_materialization_data.materialization.metadata
    assert metadata["dagster/row_count"].value == 9
    assert metadata["state"].value == "made: not there yet"
    assert metadata["record"].value == str(Paths(root).raw("release_pairs") / "_meta.json")
    assert "| rows | 9 |" in metadata["counts"].value


def test_too_few_verified_steps_fail_the_run_and_stop_the_reports(
    root: Path, small_checkout: Any, instance: dg.DagsterInstance
) -> None:
    small_checkout.configure(least_verified_steps=1000)
    result = materialize(root, instance)
    [evaluation] = [
        found for found in result.get_asset_check_evaluations() if found.check_name == "enough_verified_steps"
    ]
    assert (result.success, evaluation.passed) == (False, False)
    assert not (root / "reports").exists()


def test_a_damaged_dataset_keeps_its_good_rows_and_names_the_bad_ones(
    root: Path, small_checkout: Any, varied_pairs: list[dict[str, Any]], instance: dg.DagsterInstance
) -> None:
    small_checkout.write([*varied_pairs, '{"id": ', b'\xff\xfe{"id": 1}', {**varied_pairs[0], "id": "x", "pre": " "}])
    assert materialize(root, instance).success
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
    tags = {"dagster/asset_partition_range_start": "java|test", "dagster/asset_partition_range_end": "python|train"}
    selection = dg.AssetSelection.assets("splits").resolve(definitions.resolve_asset_graph())
    materialize(root, instance, dg.AssetSelection.assets(*(dg.AssetKey(key.split("/")) for key in DATASET_STAGES)))
    result = job.get_subset(asset_selection=selection).execute_in_process(
        instance=instance, tags=tags, raise_on_error=False
    )
    assert not result.success


def test_reports_show_precision_by_language_with_a_plot(root: Path, instance: dg.DagsterInstance) -> None:
    assert materialize(root, instance).success
    page = (root / "reports" / "teacher" / "metrics.md").read_text("utf-8")
    assert (root / "reports" / "teacher" / "precision.png").read_bytes().startswith(b"\x89PNG")
    for language in ("java", "javascript", "python"):
        assert f"| induction | {language} | release_pairs |" in page


def test_a_part_of_the_models_leaves_the_other_tables_where_they_were(root: Path, instance: dg.DagsterInstance) -> None:
    assert materialize(root, instance).success
    (Paths(root).warehouse.parent / "_meta.json").unlink()
    (Paths(root).warehouse).unlink()
    part = materialize(root, instance, dg.AssetSelection.assets("dataset_stats").upstream())
    reports = materialize(root, instance, dg.AssetSelection.assets(dg.AssetKey(["reports", "teacher"])))
    assert (part.success, reports.success) == (True, True)


def test_a_failed_test_of_the_models_is_shown_and_keeps_the_old_warehouse(
    root: Path, small_checkout: Any, varied_pairs: list[dict[str, Any]], instance: dg.DagsterInstance
) -> None:
    assert materialize(root, instance).success
    before = Paths(root).warehouse.read_bytes()
    # a stored file of another making, in which a package is in two splits
    folder = Paths(root).partition("processed", "java", "dev")
    other = next(
        Paths(root).partition("processed", "java", split)
        for split in ("train", "test")
        if (Paths(root).partition("processed", "java", split) / "edits.jsonl").read_text("utf-8")
    )
    for name in ("edits.jsonl", "edits.parquet"):
        (folder / name).write_bytes((other / name).read_bytes())
    record = json.loads((folder / "_meta.json").read_text("utf-8"))
    sums = json.loads((other / "_meta.json").read_text("utf-8"))["files"]
    forged = Record.model_validate({**record, "files": sums}).identified()
    (folder / "_meta.json").write_text(forged.model_dump_json(), "utf-8")
    models = dg.AssetSelection.groups("reports") - dg.AssetSelection.assets(
        dg.AssetKey(["reports", "datasets"]), dg.AssetKey(["reports", "teacher"])
    )
    result = materialize(root, instance, models)
    checks = result.get_asset_check_evaluations()
    assert [found.check_name for found in checks if found.passed] == []
    failed = {found.check_name for found in checks}
    assert (result.success, "group_in_one_split" in failed or "unique_stg_edits_id" in failed) == (False, True)
    assert Paths(root).warehouse.read_bytes() == before


def test_models_without_their_inputs_fail_and_say_nothing_of_their_tests(
    root: Path, instance: dg.DagsterInstance
) -> None:
    result = materialize(root, instance, dg.AssetSelection.assets("stg_edits"))
    assert (result.success, result.get_asset_check_evaluations()) == (False, [])
