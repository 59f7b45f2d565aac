"""Pools: which steps share what is scarce, that two of them never run at once, and whose slots are freed. Runs that were lost."""

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef

from orchestration.build import build_definitions
from resources.slots import GONE, PROCESS, process, take_over_slots
from sensors.lost_runs import lost_runs
from tests.shell.graphql_client import open_graphql

STEP = """
import dagster as dg

@dg.asset(pool="sandbox")
def one():
    print("inside", flush=True)
    input()
    print("leaves", flush=True)

with dg.DagsterInstance.get() as instance:
    assert dg.materialize([one], instance=instance).success
"""


@pytest.fixture
def home(tmp_path: Path, checkout: Path) -> Path:
    """A folder for Dagster as the checkout has it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "dagster.yaml").write_text((checkout / "dagster.yaml").read_text("utf-8"), "utf-8")
    return folder


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home))) as opened:
        yield opened


def test_each_scarce_thing_has_a_pool() -> None:
    graph = build_definitions().resolve_asset_graph()
    pools: dict[str, set[str]] = {}
    for key in graph.materializable_asset_keys:
        node = graph.get(key)
        for pool in node.pools or ():
            pools.setdefault(pool, set()).add(key.to_user_string())
    assert {pool: keys for pool, keys in pools.items() if pool != "duckdb"} == {
        "sandbox": {"synthetic_rules", "tasks", "sft_dataset"},
        "actors": {"teacher_trajectories", "optimized_prompt"},
        "trainer": {"trained_adapter"},
        "harbor": {"harbor_deployment", "instance_batch", "deployment_evaluation", "evaluation"},
    }
    assert {"reports/datasets", "reports/teacher"} <= pools["duckdb"]


@pytest.mark.long  # what it stands on, slots claimed and freed, is in the tests below
def test_two_steps_of_one_pool_do_not_overlap(home: Path, instance: dg.DagsterInstance) -> None:
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONWARNINGS": "ignore"}

    def start_step() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", STEP]
        return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start_step() as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "inside\n"
        with start_step() as second:
            assert second.stdout is not None
            while not instance.event_log_storage.get_concurrency_info("sandbox").pending_step_count:
                assert second.poll() is None
            # what waits for the slot was not let in
            assert select.select([second.stdout], [], [], 0)[0] == []
            assert first.communicate("\n")[0] == "leaves\n"
            assert second.communicate("\n")[0] == "inside\nleaves\n"
    assert [first.returncode, second.returncode] == [0, 0]


def new_run(instance: dg.DagsterInstance, tags: dict[str, str], is_finished: bool = False) -> str:
    @dg.op
    def nothing() -> None:
        """Nothing."""

    @dg.job
    def job() -> None:
        nothing()

    run = instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    if is_finished:
        instance.report_run_failed(run)
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("sandbox")
    storage.claim_concurrency_slot("sandbox", run.run_id, "nothing")
    return run.run_id


def has_process(instance: dg.DagsterInstance, run_id: str, number: int) -> None:
    instance.add_run_tags(run_id, {PROCESS: process(number, run_id)})


def has_lost_its_process(instance: dg.DagsterInstance, run_id: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as started:
        has_process(instance, run_id, started.pid)
        started.communicate("")


def test_slots_of_a_run_whose_process_was_killed_are_freed_and_the_run_has_failed(
    instance: dg.DagsterInstance,
) -> None:
    left, own = new_run(instance, {}), new_run(instance, {})
    has_lost_its_process(instance, left)
    take_over_slots(instance, own)
    assert instance.event_log_storage.get_concurrency_run_ids() == {own}
    found = instance.get_run_by_id(left)
    assert found is not None
    assert found.status == dg.DagsterRunStatus.FAILURE


def says_nothing(_instance: dg.DagsterInstance, _run_id: str) -> None:
    """As before its first step, and where steps have processes of their own."""


def is_elsewhere(instance: dg.DagsterInstance, run_id: str) -> None:
    instance.add_run_tags(run_id, {PROCESS: f"another-machine:1:1:{run_id}"})


def goes_on(instance: dg.DagsterInstance, run_id: str) -> None:
    has_process(instance, run_id, os.getpid())


def is_made_again(instance: dg.DagsterInstance, run_id: str) -> None:
    """It has the tags of the run before it, whose process is gone."""
    has_lost_its_process(instance, before := new_run(instance, {}))
    found = instance.get_run_by_id(before)
    assert found is not None
    instance.add_run_tags(run_id, {PROCESS: found.tags[PROCESS]})


MAY_GO_ON = pytest.mark.parametrize("state", [says_nothing, is_elsewhere, goes_on, is_made_again])


@MAY_GO_ON
def test_slots_of_a_run_that_may_be_going_on_stay_its_own(
    instance: dg.DagsterInstance, state: Callable[[dg.DagsterInstance, str], None]
) -> None:
    state(instance, other := new_run(instance, {}))
    take_over_slots(instance, new_run(instance, {}))
    assert other in instance.event_log_storage.get_concurrency_run_ids()
    found = instance.get_run_by_id(other)
    assert found is not None
    assert found.status == dg.DagsterRunStatus.STARTED


def test_the_ui_shows_no_process_among_the_tags_of_a_run(instance: dg.DagsterInstance) -> None:
    take_over_slots(instance, own := new_run(instance, {}))
    assert PROCESS in instance.get_run_by_id(own).tags  # type: ignore[union-attr]
    with open_graphql(instance) as query:
        shown = query(f'{{ runOrError(runId: "{own}") {{ ... on Run {{ tags {{ key }} }} }} }}')["runOrError"]["tags"]
    assert [one["key"] for one in shown if "process" in one["key"]] == []


def test_slots_of_a_run_that_is_over_are_freed(instance: dg.DagsterInstance) -> None:
    over = new_run(instance, {}, is_finished=True)
    take_over_slots(instance, own := new_run(instance, {}))
    assert over not in instance.event_log_storage.get_concurrency_run_ids()
    found = instance.get_run_by_id(own)
    assert found is not None
    assert found.tags[PROCESS] == process(os.getpid(), own)


def tick(instance: dg.DagsterInstance) -> str:
    """What the sensor says that looks for lost runs."""
    told = lost_runs()(dg.build_sensor_context(instance=instance))
    assert isinstance(told, dg.SkipReason)
    return told.skip_message or ""


def status_of(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    found = instance.get_run_by_id(run_id)
    assert found is not None
    return found.status


def test_a_run_whose_process_is_gone_has_failed_and_is_told_of_once(instance: dg.DagsterInstance) -> None:
    has_lost_its_process(instance, lost := new_run(instance, {}))
    assert tick(instance) == f"{GONE}: {lost}"
    assert status_of(instance, lost) == dg.DagsterRunStatus.FAILURE
    assert tick(instance) == "no run has lost its process"


def test_a_run_is_lost_although_nobody_has_asked_how_its_process_ended(instance: dg.DagsterInstance) -> None:
    zombie = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    has_process(instance, run_id := new_run(instance, {}), zombie.pid)
    assert tick(instance) == "no run has lost its process"
    zombie.kill()
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert tick(instance) == f"{GONE}: {run_id}"
    zombie.communicate()


@MAY_GO_ON
def test_a_run_that_may_be_going_on_is_left_alone(
    instance: dg.DagsterInstance, state: Callable[[dg.DagsterInstance, str], None]
) -> None:
    state(instance, run_id := new_run(instance, {}))
    tick(instance)
    assert status_of(instance, run_id) == dg.DagsterRunStatus.STARTED


def test_the_daemon_looks_for_lost_runs_unasked() -> None:
    found = next(one for one in build_definitions().sensors or () if one.name == "lost_runs")
    assert isinstance(found, dg.SensorDefinition)
    assert found.default_status == dg.DefaultSensorStatus.RUNNING
