"""The assets and checks of Harbor, and the sensor on its builds, over small roots: with jails, in memory, and a service elsewhere."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.harbor.client import HarborClient
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.settings import load_settings
from graftline.pipeline.stages.evaluation import evaluation
from graftline.pipeline.stages.harbor_deployment import harbor_deployment, instance_batch
from orchestration.build import build_definitions
from orchestration.run_jobs import plan_runs
from sensors.cursor import SourceState
from sensors.dataset_versions import run_request
from sensors.tick import Tick
from tests.harbor_lineage import task, use_service, write_deployment, write_tasks
from tests.harbor_parts import KEY, half, service
from tests.harbor_server import HarborServer


@pytest.fixture
def root(small_checkout: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root whose manifest `local` starts nothing but a service of Harbor, and that when it is needed."""
    root: Path = small_checkout.root
    write_tasks(root, task(0), task(1))
    write_deployment(root, evaluation={"at_once": 2, "least_mean_reward": 1.0})
    use_ports(root, harbor="local")
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    return root


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    for definition in ("deployments", "evaluated_deployments"):
        instance.add_dynamic_partitions(definition, ["tiny"])
    return instance


def use_ports(root: Path, **ports: str) -> None:
    """Have the manifest `local` below `root` use these implementations."""
    chosen = {"dataset_hub": "homes", "sandbox": "memory", "teacher": "induction", **ports}
    text = json.dumps({port: {"kind": kind} for port, kind in chosen.items()})
    (root / "configs" / "manifests" / "local.yaml").write_text(text, "utf-8")


def run(instance: dg.DagsterInstance, job: str, **options: Any) -> dg.ExecuteInProcessResult:
    return (
        build_definitions().resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False, **options)
    )


def shown(result: dg.ExecuteInProcessResult) -> dict[tuple[str, str | None], Any]:
    events = (event.step_materialization_data.materialization for event in result.get_asset_materialization_events())
    return {(one.asset_key.to_user_string(), one.partition): one.metadata for one in events}


def checked(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


# assets


def test_a_deployment_is_built_and_evaluated_in_jails_of_this_machine(root: Path, instance: dg.DagsterInstance) -> None:
    deployed = run(instance, "harbor", partition_key="tiny")
    assert (deployed.success, sorted(shown(deployed))) == (
        True,
        [("harbor_deployment", "tiny"), ("instance_batch", "tiny")],
    )
    deployment, instances = shown(deployed).values()
    assert deployment["state"].value == "made: not there yet"
    assert (deployment["service"].value, deployment["version"].value) == ("local", 1)
    assert deployment["tasks"].value == "| seed | task_id |\n|---:|---|\n| 0 | d:0 |\n| 1 | d:1 |\n"
    assert deployment["build_log"].value == "```text\nthe context was unpacked\n```"
    overviews = [event.asset_observation_data.asset_observation for event in deployed.get_asset_observation_events()]
    assert [one.asset_key.to_user_string() for one in overviews] == ["harbor_deployment", "instance_batch"]
    assert str(overviews[0].metadata["plot"].value).startswith("![partitions](data:image/png;base64,")
    assert instances["deployment"].value == deployment["deployment"].value
    evaluated = run(instance, "deployment_evaluations", partition_key="tiny")
    assert (evaluated.success, checked(evaluated)) == (
        True,
        {"coverage": True, "mean_reward": True, "cost": True, "calibration": True},
    )
    [found] = shown(evaluated).values()
    figures = {name: found[name].value for name in ("mean_reward", "coverage", "valid", "infra")}
    assert figures == {"mean_reward": 1.0, "coverage": 1.0, "valid": 2, "infra": 0}
    assert found["figures"].value.startswith("| figure | value |\n|---|---|\n| mean reward | 1 |\n")
    assert found["rewards"].value.startswith("![rewards](data:image/png;base64,")
    folder = Paths(root).harbor("evaluations", "tiny")
    assert (found["report"].value, found["record"].value) == (str(folder / "report.md"), str(folder / "_meta.json"))


@pytest.fixture(scope="module")
def _evaluated(new_checkout: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = new_checkout(tmp_path_factory.mktemp("evaluated") / "root").root
    write_tasks(root, task(0), task(1))
    write_deployment(root, evaluation={"least_mean_reward": 1.0})
    write_deployment(root, "idle", evaluation=None)
    use_ports(root, harbor="memory")
    make(root, harbor_deployment, instance_batch, evaluation)
    return root


@pytest.fixture
def evaluated(_evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with an evaluation by rewards that are worked out, and a deployment that asks for none."""
    root = Path(shutil.copytree(_evaluated, tmp_path / "root"))
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    return root


def make(root: Path, *stages: Any) -> None:
    paths = Paths(root)
    with open_lineage(paths, load_manifest(paths, "local"), "made") as lineage:
        for stage in stages:
            stage(lineage, "tiny")


def test_a_second_run_changes_no_data_version_and_a_check_fails_by_what_the_file_asks_for(
    evaluated: Path, instance: dg.DagsterInstance
) -> None:
    result = run(instance, "deployment_evaluations", partition_key="tiny")
    # Dagster itself logs a bare one before
    *_, materialization = (
        event.step_materialization_data.materialization for event in result.get_asset_materialization_events()
    )
    record = load_record(Paths(evaluated).harbor("evaluations", "tiny"))
    assert materialization.metadata["state"].value == "unchanged"
    assert checked(result) == {"coverage": True, "mean_reward": False, "cost": True, "calibration": True}
    [mean] = [one for one in result.get_asset_check_evaluations() if one.check_name == "mean_reward"]
    assert "| 1 or more |" in mean.metadata["findings"].value
    again = run(instance, "deployment_evaluations", partition_key="tiny")
    versions = [
        one.get_asset_materialization_events()[-1].step_materialization_data.materialization.tags[
            "dagster/data_version"
        ]
        for one in (result, again)
    ]
    assert (versions, record.counts["rows"]) == ([record.identity, record.identity], 2)


def test_files_are_partitions_and_a_new_one_needs_no_reload(evaluated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = build_definitions()

    def partitions(instance: dg.DagsterInstance) -> dict[str, list[str]]:
        resources = {"artifacts": definitions.resources["artifacts"]}
        with dg.build_sensor_context(instance=instance, resources=resources) as context:
            result = definitions.resolve_sensor_def("partitions").evaluate_tick(context)
        return {one.partitions_def_name: [*one.partition_keys] for one in result.dynamic_partitions_requests or []}

    with dg.DagsterInstance.ephemeral() as instance:
        first = partitions(instance)
        assert first == {"deployments": ["idle", "tiny"], "evaluated_deployments": ["tiny"]}
        for definition, keys in first.items():
            instance.add_dynamic_partitions(definition, keys)
        write_deployment(evaluated, "new")
        assert partitions(instance) == {"deployments": ["new"], "evaluated_deployments": ["new"]}

    # where no sensor looks after them
    home = evaluated.with_name("home")
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    for job, names in {"harbor": ("idle", "new", "tiny"), "deployment_evaluations": ("new", "tiny")}.items():
        runs = [*plan_runs(Paths(evaluated), job, [])]
        assert runs == [(job, {"dagster/partition": name}) for name in names]
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.get_dynamic_partitions("deployments") == ["idle", "new", "tiny"]


def test_jobs_are_over_partitions_of_one_kind(evaluated: Path) -> None:
    definitions = build_definitions()
    jobs = {
        name: {key.to_user_string() for key in definitions.resolve_job_def(name).asset_layer.executable_asset_keys}
        for name in ("lineage", "harbor", "deployment_evaluations", "evaluations")
    }
    ours = {"harbor_deployment", "instance_batch", "deployment_evaluation", "evaluation"}
    assert not jobs.pop("lineage") & ours
    assert jobs == {
        "harbor": {"harbor_deployment", "instance_batch"},
        "deployment_evaluations": {"deployment_evaluation"},
        "evaluations": {"evaluation"},
    }


def test_another_version_of_a_dataset_evaluates_nothing_by_itself(evaluated: Path) -> None:
    tick = Tick(0.0, {}, states={"release_pairs": SourceState(entry="e", fetched="2")}, changed=["release_pairs"])
    catalog = load_settings(Paths(evaluated)).catalog
    request = run_request(tick, catalog, build_definitions().get_repository_def())
    selected = {key.to_user_string() for key in request.asset_selection or ()}
    assert "tasks" in selected
    assert not selected & {"harbor_deployment", "instance_batch", "deployment_evaluation", "evaluation"}


def test_a_service_that_is_not_to_be_had_is_said_without_a_traceback_and_evaluates_nothing(
    evaluated: Path, instance: dg.DagsterInstance
) -> None:
    with service(f"sqlite:///{evaluated / 'elsewhere.sqlite'}") as client:
        use_service(evaluated, str(client.base_url), "a-key-of-somebody-else")
        [failure] = run(instance, "harbor", partition_key="tiny").get_step_failure_events()
    said = failure.step_failure_data.user_failure_data
    assert said is not None
    assert "401 Unauthorized" in str(said.description)


# the sensor


def tick(root: Path, instance: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    """Return what one look of the sensor comes to."""
    sensor = build_definitions().get_repository_def().get_sensor_def("harbor_builds")
    resources = {name: build_definitions().resources[name] for name in ("artifacts", "harbor")}
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources) as context:
        found = sensor(context)
    assert isinstance(found, dg.SensorResult)
    return found


def requested(result: dg.SensorResult) -> list[tuple[str | None, str | None, list[str]]]:
    return [
        (one.job_name, one.partition_key, [key.to_user_string() for key in one.asset_selection or ()])
        for one in result.run_requests or ()
    ]


@contextmanager
def elsewhere(root: Path) -> Iterator[None]:
    with service(f"sqlite:///{root / 'elsewhere.sqlite'}", half) as client:
        use_service(root, str(client.base_url), KEY)
        yield


def upload(root: Path) -> None:
    """Upload the deployment as somebody else does."""
    shutil.copytree(root, root.with_name("other"), ignore=shutil.ignore_patterns("*.sqlite*"))
    make(root.with_name("other"), harbor_deployment)
    shutil.rmtree(root.with_name("other"))


def test_what_turned_ready_is_requested_step_by_step(root: Path, instance: dg.DagsterInstance) -> None:
    write_deployment(root)
    with elsewhere(root):
        nothing = tick(root, instance)
        assert (requested(nothing), nothing.skip_reason.skip_message, nothing.cursor) == (
            [],
            "the service has none of the deployments",
            "{}",
        )
        upload(root)
        first = tick(root, instance, nothing.cursor)
        assert requested(first) == [("harbor", "tiny", ["harbor_deployment", "instance_batch"])]
        [observed] = first.asset_events
        assert (observed.partition, observed.metadata["status"].value, observed.metadata["instances"].value) == (
            "tiny",
            "ready",
            0,
        )
        make(root, harbor_deployment)
        second = tick(root, instance, first.cursor)
        assert (requested(second), second.asset_events) == ([("harbor", "tiny", ["instance_batch"])], [])
        make(root, instance_batch)
        third = tick(root, instance, second.cursor)
        assert requested(third) == [("deployment_evaluations", "tiny", ["deployment_evaluation"])]
        assert [one.metadata["instances_ready"].value for one in third.asset_events] == [2]
        make(root, evaluation)
        last = tick(root, instance, third.cursor)
        assert (requested(last), last.skip_reason.skip_message, last.asset_events) == (
            [],
            "tiny: version 1 is ready, 2 of 2 instances are ready",
            [],
        )


def test_a_build_that_goes_on_or_failed_is_told_of_and_requests_nothing(
    root: Path, instance: dg.DagsterInstance
) -> None:
    with HarborServer() as server:
        use_service(root, server.url, server.key)
        HarborClient(server.url, server.key).request("POST", "/api/harbor/deployments", {"name": "tiny"})
        server.looks = 1_000
        building = tick(root, instance)
        server.looks, server.build_error = 0, "no such image"
        failed = tick(root, instance, building.cursor)
    assert [requested(building), requested(failed)] == [[], []]
    assert [one.skip_reason.skip_message for one in (building, failed)] == [
        "tiny: version 1 is building, 0 of 0 instances are ready",
        "tiny: version 1 is failed (no such image), 0 of 0 instances are ready",
    ]
    assert [event.metadata["error"].value for event in failed.asset_events] == ["no such image"]


def test_a_service_of_this_process_is_not_started_to_be_looked_at(root: Path, instance: dg.DagsterInstance) -> None:
    found = tick(root, instance, "{}")
    assert found.skip_reason.skip_message == (
        "the service of manifest 'local' runs only while an asset is made; nothing is started here"
    )
    assert (found.cursor, (root / "data" / "harbor").exists()) == ("{}", False)


def test_a_service_that_cannot_be_reached_is_a_reason_and_what_was_known_is_kept(
    root: Path, instance: dg.DagsterInstance
) -> None:
    with elsewhere(root):
        pass
    found = tick(root, instance, '{"tiny": "x"}')
    assert (requested(found), found.cursor) == ([], '{"tiny": "x"}')
    assert "the service cannot be looked at: " in str(found.skip_reason.skip_message)
    assert "cannot be reached" in str(found.skip_reason.skip_message)
