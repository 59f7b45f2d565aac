"""What executors do that have their containers elsewhere: against engines that work with folders and processes.

`test_executor_contract.py` has what all executors do. What only one engine has is in `tests/unit/harbor`.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import pytest

from graftline.core.errors import DataError, HarborError
from graftline.harbor.contract import FailureCause, HarborLimits, SuccessStatus
from graftline.harbor.executors.engines import ContainerExecutor
from tests.container_engine import ContainerEngine
from tests.daytona_server import DaytonaServer
from tests.docker_engine import DockerEngine
from tests.rollout_specs import (
    LEFT_LABELS,
    SECRET,
    a_graded_script,
    a_script,
    a_spec,
    never,
    packed_context,
    ran_script,
)

ENGINES = {"docker": DockerEngine, "daytona": DaytonaServer}
HALF = 'printf \'{"reward_info": {"outcome_reward": 0.0}}\' > "$4"\n'
OUT_OF_MEMORY = {
    "docker": f'{HALF}exec python3 -c "x = bytes([1]) * (200 << 20); import time; time.sleep(60)"',
    "daytona": f"{HALF}printf 'low 0\\noom 1\\noom_kill 1\\n' > /sys/fs/cgroup/memory.events; kill -9 $$",
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[ContainerEngine]:
    if request.param == "daytona":
        pytest.importorskip("daytona", reason="the SDK of Daytona is not installed; pip install 'graftline[daytona]'")
    with ENGINES[request.param]() as engine:
        yield engine


@pytest.fixture
def executor(engine: ContainerEngine) -> Iterator[ContainerExecutor]:
    executor = engine.open_executor()
    yield executor
    executor.close()
    assert engine.containers == {}


def test_a_build_makes_one_snapshot_and_is_not_repeated(engine: ContainerEngine, executor: ContainerExecutor) -> None:
    built = executor.build(packed_context(dockerfile="FROM debian:13\nWORKDIR /app\n"))
    assert built.snapshot_id.startswith(("graftline/harbor:", "graftline-"))
    assert len(built.snapshot_id.replace(":", "-").rpartition("-")[2]) == 12
    assert executor.has(built.snapshot_id)

    def asked() -> bytes:
        raise AssertionError("a snapshot that is there needs no archive")

    again = replace(packed_context(dockerfile="FROM debian:13\nWORKDIR /app\n"), archive=asked)
    assert executor.build(again).snapshot_id == built.snapshot_id
    assert engine.asked.count(engine.build_path) == 1


def test_the_log_of_a_build_is_kept(engine: ContainerEngine, executor: ContainerExecutor) -> None:
    engine.is_slow_to_build = True
    log = executor.build(packed_context(dockerfile="FROM debian:13\nWORKDIR /app\n")).log
    assert "Step 1/2 : FROM debian:13\nStep 2/2 : WORKDIR /app\n" in log


@pytest.mark.parametrize(
    ("dockerfile", "fault"),
    [
        ("FROM debian:13\nRUN echo so far; exit 3\n", "returned a non-zero code: 3"),
        ("FROM nobody/nothing\n", "pull access denied for nobody/nothing"),
        ("FROM debian:13\nCOPY missing /\n", "file not found in build context: stat missing|Path does not exist"),
        ("FROM debian:13\nCOPY ../up /\n", "the Dockerfile does not build"),
        ("", "the context has no Dockerfile"),
    ],
)
def test_a_dockerfile_that_fails_is_an_error_of_the_data(
    executor: ContainerExecutor, dockerfile: str, fault: str
) -> None:
    with pytest.raises(DataError, match=fault):
        executor.build(packed_context(dockerfile=dockerfile))


def test_an_engine_that_fails_a_build_says_nothing_of_the_context(
    engine: ContainerEngine, executor: ContainerExecutor
) -> None:
    engine.faults = [(engine.build_path, 500, "the storage driver is broken")]
    with pytest.raises(HarborError, match="the storage driver is broken"):
        executor.build(packed_context())


def test_a_snapshot_that_is_gone_is_told(engine: ContainerEngine, executor: ContainerExecutor) -> None:
    snapshot = executor.build(packed_context()).snapshot_id
    engine.forget_images()
    assert not executor.has(snapshot)
    with pytest.raises(HarborError, match="is gone; build the deployment again"):
        executor.run(a_spec(snapshot), never)


@pytest.mark.parametrize("place", ["create_path", "write_path"])
def test_a_box_that_cannot_be_made_is_an_error(
    engine: ContainerEngine, executor: ContainerExecutor, place: str
) -> None:
    snapshot = executor.build(packed_context()).snapshot_id
    engine.faults = [(getattr(engine, place), 500, "the driver is broken")]
    with pytest.raises(HarborError, match="the driver is broken"):
        executor.run(a_spec(snapshot), never)
    assert engine.containers == {}


def test_a_box_that_breaks_while_it_runs_is_the_machines_failure(
    engine: ContainerEngine, executor: ContainerExecutor
) -> None:
    snapshot = executor.build(packed_context()).snapshot_id
    engine.faults = [(engine.read_path, 500, "the driver is broken")]
    execution = executor.run(a_spec(snapshot), never)
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
    assert execution.error.startswith(f"{executor.name}: cannot read")


def test_a_box_that_is_out_of_memory_is_the_machines_failure(executor: ContainerExecutor) -> None:
    limits = HarborLimits.model_construct(timeout_s=30, cpu_cores=1, memory_mb=64, disk_mb=1024)
    execution = ran_script(executor, OUT_OF_MEMORY[executor.name], limits=limits)
    assert (execution.success_status, execution.reward) == (SuccessStatus.RUNTIME_ERROR, None)
    assert execution.failure_cause is FailureCause.SANDBOX_FAILED
    assert execution.error == "the box ran out of memory; raise memory_mb, which is 64"


@pytest.mark.parametrize("path", ["../x", "/x", ""])
def test_files_stay_in_the_working_folder(executor: ContainerExecutor, path: str) -> None:
    with pytest.raises(HarborError, match="leads out of the working folder"):
        ran_script(executor, "true", files={path: "x"})


@pytest.mark.parametrize(
    ("lines", "cause", "error"),
    [
        ("exit 127", FailureCause.SANDBOX_FAILED, "the entrypoint ended with code 127 and left no result; see the log"),
        ('ln -s /etc/passwd "$4"', FailureCause.UNCLASSIFIED, "the entrypoint's result "),
        ('mkdir "$4"', FailureCause.UNCLASSIFIED, "the entrypoint's result "),
    ],
)
def test_an_entrypoint_without_a_result_has_no_reward(
    executor: ContainerExecutor, lines: str, cause: FailureCause, error: str
) -> None:
    execution = ran_script(executor, lines)
    assert (execution.reward, execution.failure_cause) == (None, cause)
    assert execution.error.startswith(error)


def test_a_secret_at_the_start_of_the_end_of_a_log_is_cut_out_whole(executor: ContainerExecutor) -> None:
    lines = 'i=0; while [ $i -lt 9000 ]; do echo "$API_KEY"; i=$((i+1)); done'
    execution = ran_script(executor, lines, secrets={"API_KEY": SECRET})
    assert set(execution.log.split("\n")) <= {"[secret]", "", "cret]"}
    assert len(execution.log) <= 64 << 10


def test_a_verifier_grades_what_travels_in_a_box_the_agent_never_saw(
    engine: ContainerEngine, executor: ContainerExecutor
) -> None:
    agent = "mkdir -p out/deep; printf 0.75 > out/deep/score; ln -s /etc/passwd out/link; echo no > other; echo made"
    verifier = (
        'cat out/deep/score > /logs/verifier/reward.txt; test ! -e other && test ! -e out/link && test -z "$API_KEY"'
        " && echo alone"
    )
    execution = executor.run(a_graded_script(executor, agent, verifier), never)
    assert (execution.success_status, execution.reward, execution.failure_cause) == (SuccessStatus.SUCCESS, 0.75, None)
    assert execution.log == "made\n\nalone\n"
    assert execution.verify_s > 0
    assert [labels["role"] for labels in engine.labels()] == ["agent", "verifier"]
    # the agent's box is gone before there is another; what the engine has no limit for is asked for twice
    ways = ("POST containers/create", "POST api/sandbox", "DELETE")
    methods = [each.split()[0] for each in engine.asked if each.startswith(ways)]
    assert [method for method, _ in groupby(methods)] == ["POST", "DELETE"] * 2


def test_a_reward_that_the_agent_brings_along_is_none(executor: ContainerExecutor) -> None:
    agent = 'mkdir -p out logs/verifier; printf 1 > logs/verifier/reward.txt; printf \'{"reward": 1}\' > "$4"'
    execution = executor.run(a_graded_script(executor, agent, "true", artifacts=("logs", "out")), never)
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.VERIFIER_FAILED)
    assert execution.error == "the verifier left neither reward.json nor reward.txt"


def test_boxes_that_no_live_run_has_are_removed_at_the_next_start(engine: ContainerEngine) -> None:
    first = engine.open_executor()
    snapshot = first.build(a_script("sleep 60")).snapshot_id
    for name, labels in LEFT_LABELS.items():
        engine.leave_container(name, snapshot, labels)
    starts: list[int] = []

    def is_cancelled() -> bool:
        if engine.created and not starts:
            # another start in the middle of it does not take the box that runs
            engine.open_executor().close()
            starts.append(len(engine.containers))
        return bool(starts)

    assert first.run(a_spec(snapshot), is_cancelled).failure_cause == FailureCause.CANCELLED
    assert starts == [3]
    assert sorted(engine.containers) == ["of another machine", "of another owner"]
    first.close()
