"""Pools: which steps share what is scarce, that two of them never run at once, and whose slots are freed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef

from orchestration.build import build_definitions
from resources.slots import PROCESS, process, take_over_slots

STEP = """
import json, sys, time
import dagster as dg

@dg.asset(pool="sandbox")
def one():
    started = time.time()
    time.sleep(0.5)
    print(json.dumps([started, time.time()]), flush=True)

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
    for key in graph.executable_asset_keys:
        node = graph.get(key)
        for pool in node.pools or ():
            pools.setdefault(pool, set()).add(key.to_user_string())
    assert {pool: keys for pool, keys in pools.items() if pool != "duckdb"} == {
        "sandbox": {"synthetic_rules", "tasks", "sft_dataset"},
        "actors": {"teacher_trajectories", "optimized_prompt"},
        "trainer": {"trained_adapter", "closed_loop_results"},
        "harbor": {"harbor_deployment", "instance_batch", "evaluation"},
    }
    assert {"reports/datasets", "reports/teacher"} <= pools["duckdb"]


def test_two_steps_of_one_pool_do_not_overlap(home: Path) -> None:
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", STEP]
    # makes the databases, which two processes at once would get in one another's way over
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    times = sorted(json.loads(one.communicate(timeout=120)[0].splitlines()[-1]) for one in both)
    assert [one.returncode for one in both] == [0, 0]
    assert times[0][1] <= times[1][0]


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


def ended_process() -> str:
    """What told a process apart that is gone."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as started:
        said = process(started.pid)
        started.communicate("")
    return said


def test_slots_of_a_run_whose_process_was_killed_are_freed_and_the_run_has_failed(
    instance: dg.DagsterInstance,
) -> None:
    left = new_run(instance, {PROCESS: ended_process()})
    own = new_run(instance, {})
    take_over_slots(instance, own)
    assert instance.event_log_storage.get_concurrency_run_ids() == {own}
    found = instance.get_run_by_id(left)
    assert found is not None
    assert found.status == dg.DagsterRunStatus.FAILURE


@pytest.mark.parametrize("tags", [{}, {PROCESS: process(os.getpid())}, {PROCESS: "another-machine:1:1"}])
def test_slots_of_a_run_that_may_be_going_on_stay_its_own(instance: dg.DagsterInstance, tags: dict[str, str]) -> None:
    other = new_run(instance, tags)
    take_over_slots(instance, new_run(instance, {}))
    assert other in instance.event_log_storage.get_concurrency_run_ids()
    found = instance.get_run_by_id(other)
    assert found is not None
    assert found.status == dg.DagsterRunStatus.STARTED


def test_slots_of_a_run_that_is_over_are_freed(instance: dg.DagsterInstance) -> None:
    over = new_run(instance, {}, is_finished=True)
    take_over_slots(instance, own := new_run(instance, {}))
    assert over not in instance.event_log_storage.get_concurrency_run_ids()
    found = instance.get_run_by_id(own)
    assert found is not None
    assert found.tags[PROCESS] == process(os.getpid())
