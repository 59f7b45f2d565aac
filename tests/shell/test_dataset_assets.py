"""The assets of every dataset in use: what is declared, and a run over a mirror that makes what `graftline run` makes."""

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.outcome import readable_failure
from graftline.core.config import load_yaml
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.datasets.catalog import Catalog
from graftline.pipeline.run import run_all
from orchestration.build import build_definitions
from tests.conftest import CHECKOUT
from tests.lineages import Quiet
from tests.shell.runs import materializations, materialize, stage_of
from tests.small_mirror import configure, shared_data, small_mirror

STAGES = ("raw", "normalized", "division", "splits", "label_tasks", "repository_changes")


def test_every_dataset_in_use_has_its_assets_and_check(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_DATASETS", "all")
    definitions = build_definitions()
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    catalog = load_yaml(checkout / "configs" / "datasets.yaml", Catalog)
    sources = {name for name, dataset in catalog.datasets.items() if dataset.reader != "evaluation"}

    declared = {key.to_user_string() for key in graph.materializable_asset_keys}
    assert {name for name in declared if name.startswith("raw_")} == {f"raw_{name}" for name in catalog.datasets}
    assert {name for name in declared if name.startswith("normalized_")} == {f"normalized_{name}" for name in sources}
    assert {"division", "splits", "label_tasks"} <= declared
    blocking = {key.asset_key.to_user_string() for key in graph.asset_check_keys if graph.get(key).blocking}
    assert {name for name in blocking if name.startswith("normalized_")} == {f"normalized_{name}" for name in sources}


def test_edits_wait_for_the_evaluations_that_they_are_kept_away_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_DATASETS", "commitpackft,marv,canitedit")
    graph = build_definitions().resolve_asset_graph()
    parents = {
        key: sorted(parent.to_user_string() for parent in graph.get(dg.AssetKey(key.split("/"))).parent_keys)
        for key in (
            "normalized_commitpackft",
            "normalized_marv",
            "division",
            "label_tasks",
            "repository_changes",
            "splits",
        )
    }
    normalized = ["normalized_commitpackft", "normalized_marv"]
    assert parents == {
        "normalized_commitpackft": ["raw_canitedit", "raw_commitpackft"],
        "normalized_marv": ["raw_canitedit", "raw_marv"],
        "division": normalized,
        "label_tasks": normalized,
        "repository_changes": ["division", *normalized],
        "splits": ["division", *normalized],
    }


def test_an_unknown_dataset_stops_the_definitions_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_DATASETS", "comitpackft")
    with pytest.raises(ConfigError, match=r"^GRAFTLINE_DATASETS: dataset 'comitpackft' is unknown; known: agentpack, "):
        build_definitions()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dg.ExecuteInProcessResult]:
    """A root over a mirror of every dataset, and a run of all stages over them."""
    shared, folder = shared_data(CHECKOUT), tmp_path_factory.mktemp("mirrored")
    configure(CHECKOUT, folder / "root")
    small_mirror(shared, folder / "mirror", rows=12)
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("GRAFTLINE_ROOT", str(folder / "root"))
        patch.setenv("GRAFTLINE_DATASET_MIRROR", str(folder / "mirror"))
        return folder / "root", materialize(folder / "root", instance, STAGES)


@pytest.fixture
def root(made: tuple[Path, dg.ExecuteInProcessResult], monkeypatch: pytest.MonkeyPatch) -> Path:
    root, _ = made
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", str(root.parent / "mirror"))
    return root


def test_materializing_makes_what_a_run_without_dagster_makes(
    root: Path, made: tuple[Path, dg.ExecuteInProcessResult]
) -> None:
    _, result = made
    assert result.success
    events = result.get_asset_materialization_events()
    told = {
        (stage_of(event.asset_key), event.asset_key.path[0], event.partition) for event in events if event.asset_key
    }
    # seven datasets, one of which is an evaluation; `splits` tells of each of its 15 partitions
    assert {stage: sum(name == stage for name, *_ in told) for stage in STAGES} == {
        "raw": 7,
        "normalized": 6,
        "division": 1,
        "splits": 15,
        "label_tasks": 1,
        "repository_changes": 1,
    }
    checks = {
        (found.asset_key.to_user_string(), found.check_name): found.passed
        for found in result.get_asset_check_evaluations()
        # which warns of some of them
        if found.check_name != "most_rows_kept"
    }
    # one for each normalized dataset and for changes of repositories, and two of the splits
    assert (len(checks), set(checks.values())) == (6 + 1 + 2, {True})
    assert checks["splits", "no_row_in_two_splits"]

    built = run_all(Paths(root), "local", {"sandbox": "memory", "teacher": "memory"}, Quiet())
    again = {f"{one.record.kind} {one.record.name}": one.reason for one in built if one.record.kind in STAGES}
    assert (len(again), {name: reason for name, reason in again.items() if reason}) == (7 + 6 + 1 + 15 + 1 + 1, {})


def test_data_versions_are_the_identities_of_what_is_stored(
    root: Path, made: tuple[Path, dg.ExecuteInProcessResult]
) -> None:
    tags = {one.asset_key.path[0]: one.tags or {} for one in materializations(made[1])}
    versions = {name: found["dagster/data_version"] for name, found in tags.items() if name.startswith("raw_")}
    used = load_yaml(root / "configs" / "datasets.yaml", Catalog).used
    assert versions == {f"raw_{name}": load_record(Paths(root).raw(name)).identity for name in used}


def test_a_dataset_that_cannot_be_had_leaves_the_others_to_be_made(root: Path, instance: dg.DagsterInstance) -> None:
    catalog = load_yaml(root / "configs" / "datasets.yaml", Catalog)
    [file] = (root.parent / "mirror" / "marv").iterdir()
    file.unlink()
    shutil.rmtree(Paths(root).raw("marv"))
    result = materialize(root, instance, {"raw", "normalized", "division"})
    failures = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    said = {event.step_key: event.step_failure_data.user_failure_data for event in failures}
    [(step, failure)] = said.items()
    assert (result.success, step) == (False, "raw_marv")
    assert failure is not None
    assert failure.description == (
        f"{root.parent}/mirror/marv/MaRV.json: no such file; mend `files` of the dataset; found: nothing"
    )
    made = {one.asset_key.to_user_string() for one in materializations(result)}
    assert {f"normalized_{name}" for name in catalog.sources if name != "marv"} <= made
    # what is decided over all datasets is not decided without one
    assert "division" not in made


def _full() -> None:
    raise OSError(28, "No space left on device")


def _forbidden() -> None:
    raise PermissionError(13, "Permission denied", "data/raw")


def _foreign() -> None:
    # as pyarrow raises it: neither a number nor a name
    raise OSError("Error writing bytes to file. Detail: [errno 28] No space left on device")


def _gone() -> None:
    raise DownloadError("hf://datasets/a/b: answers 503; try again later")


def _wrong() -> None:
    raise ConfigError("datasets.yaml: use: field required")


@pytest.mark.parametrize(
    ("fail", "description", "may_retry"),
    [
        (_full, "the file system: No space left on device; mend it and run again, {old}", True),
        (_forbidden, "data/raw: Permission denied; mend it and run again, {old}", True),
        (
            _foreign,
            "the file system: Error writing bytes to file. Detail: [errno 28] No space left on device;"
            " mend it and run again, {old}",
            True,
        ),
        (_gone, "hf://datasets/a/b: answers 503; try again later", True),
        # it would fail in the same way
        (_wrong, "datasets.yaml: use: field required", False),
    ],
)
def test_a_failure_is_a_sentence(fail: Any, description: str, may_retry: bool) -> None:
    with pytest.raises(dg.Failure) as raised, readable_failure():
        fail()
    assert (raised.value.description, raised.value.allow_retries) == (
        description.format(old="what was made before is untouched"),
        may_retry,
    )


def test_a_fault_of_ours_keeps_its_name_and_its_way() -> None:
    with pytest.raises(ZeroDivisionError), readable_failure():
        raise ZeroDivisionError("a fault of ours")
    with pytest.raises(dg.Failure) as raised, readable_failure():
        _forbidden()
    assert isinstance(raised.value.__cause__, PermissionError)
