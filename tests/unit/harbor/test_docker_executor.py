"""The executor `docker`, against an engine that works with folders and processes."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from graftline.core.errors import DataError, HarborError
from graftline.harbor.contract import FailureCause, HarborLimits, SuccessStatus
from graftline.harbor.executors.base import Execution
from graftline.harbor.executors.docker import DockerExecutor, DockerExecutorConfig
from tests.docker_engine import Container, DockerEngine
from tests.rollout_specs import FILES, LEFT_LABELS, SECRET, a_graded_script, a_script, a_spec, packed_context

NEVER = bool


@pytest.fixture
def engine() -> Iterator[DockerEngine]:
    with DockerEngine() as engine:
        yield engine


@pytest.fixture
def executor(engine: DockerEngine) -> Iterator[DockerExecutor]:
    executor = opened(engine)
    yield executor
    executor.close()
    assert engine.containers == {}


def opened(engine: DockerEngine, **changes: object) -> DockerExecutor:
    return DockerExecutor(DockerExecutorConfig(base_url=engine.url, **changes))


def ran(executor: DockerExecutor, lines: str, **changes: object) -> Execution:
    return executor.run(a_spec(executor.build(a_script(lines)).snapshot_id, **changes), NEVER)


def variables(container: dict[str, list[str]]) -> dict[str, str]:
    return dict(each.partition("=")[::2] for each in container.get("Env", []))


def test_a_build_makes_one_tag_and_is_not_repeated(engine: DockerEngine, executor: DockerExecutor) -> None:
    built = executor.build(packed_context())
    assert list(engine.images) == [built.snapshot_id]
    assert built.snapshot_id.startswith("graftline/harbor:")
    assert len(built.snapshot_id.partition(":")[2]) == 12
    assert "Step 1/4 : FROM debian:13\n" in built.log
    assert executor.has(built.snapshot_id)

    def never() -> bytes:
        raise AssertionError("an image that is there needs no archive")

    assert executor.build(replace(packed_context(), archive=never)).snapshot_id == built.snapshot_id
    assert [each for each in engine.asked if "build" in each] == ["POST build"]


def test_an_image_of_the_same_tag_and_another_context_is_built_anew(
    engine: DockerEngine, executor: DockerExecutor
) -> None:
    built = executor.build(packed_context())
    engine.images[built.snapshot_id].labels["graftline.harbor.context"] = "of somebody else"
    assert executor.build(packed_context()).snapshot_id == built.snapshot_id
    assert [each for each in engine.asked if "build" in each] == ["POST build"] * 2


@pytest.mark.parametrize(
    ("dockerfile", "said"),
    [
        ("FROM debian:13\nRUN echo so far; exit 3\n", "returned a non-zero code: 3"),
        ("FROM debian:13\nRUN false\n", "Step 2/2 : RUN false"),
        ("FROM nobody/nothing\n", "pull access denied for nobody/nothing"),
        ("FROM debian:13\nCOPY missing /\n", "file not found in build context: stat missing"),
        ("FROM debian:13\nRUM ls\n", "dockerfile parse error line 2: unknown instruction: RUM"),
        ("", "the context has no Dockerfile"),
    ],
)
def test_a_dockerfile_that_fails_is_an_error_of_the_data(
    engine: DockerEngine, executor: DockerExecutor, dockerfile: str, said: str
) -> None:
    with pytest.raises(DataError) as error:
        executor.build(packed_context(dockerfile=dockerfile))
    assert said in str(error.value)
    assert engine.images == {}


def test_a_full_disk_says_nothing_of_the_context(executor: DockerExecutor) -> None:
    full = "FROM debian:13\nRUN echo 'write /x: no space left on device' >&2; exit 1\n"
    with pytest.raises(HarborError, match="no space left on device"):
        executor.build(packed_context(dockerfile=full))


def test_an_engine_that_fails_a_build_says_nothing_of_the_context(
    engine: DockerEngine, executor: DockerExecutor
) -> None:
    engine.faults = [("POST build", 500, "the storage driver is broken")]
    with pytest.raises(HarborError, match="cannot build: the storage driver is broken"):
        executor.build(packed_context())


def test_an_engine_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(HarborError, match="cannot reach the engine"):
        DockerExecutor(DockerExecutorConfig(base_url="tcp://127.0.0.1:9"))


def test_an_entrypoint_of_mode_stdio_gets_its_request_on_stdin(executor: DockerExecutor) -> None:
    lines = 'echo noise >&2; printf \'{"metrics": {"reward_mean": 1.0, "details": {"asked": %s}}}\' "$(cat)"'
    long = {"trace_correlation_id": "t1", "text": "x" * 200_000}
    execution = ran(executor, lines, entrypoint="run_rollout --stdio", entrypoint_mode="stdio", request=long)
    assert (execution.reward, execution.details["asked"], execution.log) == (1.0, long, "noise\n")


def test_an_entrypoint_that_does_not_read_its_stdin_is_no_failure(executor: DockerExecutor) -> None:
    lines = 'printf \'{"metrics": {"reward_mean": 1.0}}\''
    long = {"text": "x" * 500_000}
    execution = ran(executor, lines, entrypoint="run_rollout", entrypoint_mode="stdio", request=long)
    assert (execution.success_status, execution.reward) == (SuccessStatus.SUCCESS, 1.0)


def test_a_box_is_made_with_walls_and_limits(engine: DockerEngine, executor: DockerExecutor) -> None:
    limits = HarborLimits(memory_mb=512, cpu_cores=1)
    execution = ran(executor, FILES["run_rollout"], env_vars={"CARD": "df-001"}, limits=limits)
    assert execution.limits_enforced == {
        **limits.model_dump(),
        "memory_killed_at_mb": 768,
        "disk_mb": None,
        "pids": 1024,
        "network": "none",
    }
    (made,) = engine.created
    wanted = {
        "NanoCpus": 1_000_000_000,
        "Memory": 768 << 20,
        "MemorySwap": 768 << 20,
        "MemoryReservation": 512 << 20,
        "PidsLimit": 1024,
        "SecurityOpt": ["no-new-privileges"],
        "CapDrop": ["ALL"],
        "NetworkMode": "none",
    }
    assert {name: made["HostConfig"].get(name) for name in wanted} == wanted
    assert made["Entrypoint"] == ["run_rollout", "--input", "/tmp/rollout.json", "--output", "/tmp/result.json"]
    assert variables(made) == {"CARD": "df-001"}
    labels = {name.removeprefix("graftline.harbor."): value for name, value in made["Labels"].items()}
    assert sorted(labels) == ["attempt", "holder", "lease", "owner", "role", "rollout"]
    assert (labels["owner"], labels["rollout"], labels["attempt"], labels["role"]) == ("graftline", "r1", "1", "agent")


def test_the_disk_is_limited_where_the_engine_can() -> None:
    with DockerEngine(has_disk_limits=True) as engine:
        executor = opened(engine)
        assert ran(executor, FILES["run_rollout"]).limits_enforced["disk_mb"] == 10240
        assert engine.created[0]["HostConfig"]["StorageOpt"] == {"size": "10240m"}
        executor.close()


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", ""])
def test_files_stay_in_the_working_folder(executor: DockerExecutor, path: str) -> None:
    with pytest.raises(HarborError, match="leads out of the working folder"):
        ran(executor, FILES["run_rollout"], files={path: "x"})


def test_secrets_are_in_no_image_and_come_back_from_nowhere(engine: DockerEngine, executor: DockerExecutor) -> None:
    lines = (
        'echo "key: $API_KEY"; printf \'{"reward_info": {"outcome_reward": 1, "details": {"%s": ["%s"]}}}\''
        ' "$API_KEY" "$API_KEY" > "$4"'
    )
    execution = ran(executor, lines, secrets={"API_KEY": SECRET})
    assert execution.reward == 1.0
    assert execution.details == {"[secret]": ["[secret]"]}
    assert execution.log == "key: [secret]\n"
    assert SECRET not in str(execution)
    assert all(SECRET not in str(image) for image in engine.images.values())
    assert variables(engine.created[0]) == {"API_KEY": SECRET}


def test_a_secret_at_the_start_of_the_end_of_a_log_is_cut_out_whole(executor: DockerExecutor) -> None:
    lines = 'i=0; while [ $i -lt 9000 ]; do echo "$API_KEY"; i=$((i+1)); done'
    execution = ran(executor, lines, secrets={"API_KEY": SECRET})
    assert set(execution.log.split("\n")) <= {"[secret]", "", "cret]"}
    assert len(execution.log) <= 64 << 10


def test_a_box_that_is_out_of_memory_is_the_machines_failure(executor: DockerExecutor) -> None:
    lines = 'printf \'{"reward_info": {"outcome_reward": 0.0}}\' > "$4"; exec python3 -c "x = bytes([1]) * (200 << 20); import time; time.sleep(60)"'
    limits = HarborLimits.model_construct(timeout_s=30, cpu_cores=1, memory_mb=64, disk_mb=1024)
    execution = ran(
        executor, lines, limits=limits, entrypoint_mode="stdio", entrypoint="run_rollout a b c /tmp/result.json"
    )
    assert (execution.success_status, execution.failure_cause, execution.reward) == (
        SuccessStatus.RUNTIME_ERROR,
        FailureCause.SANDBOX_FAILED,
        None,
    )
    assert execution.error == "the box ran out of memory; raise memory_mb, which is 64"


@pytest.mark.parametrize(
    ("lines", "cause", "error"),
    [
        ("exit 127", FailureCause.SANDBOX_FAILED, "the entrypoint ended with code 127 and left no result; see the log"),
        ('ln -s /etc/passwd "$4"', FailureCause.UNCLASSIFIED, "the entrypoint's result is not there"),
        ('mkdir "$4"', FailureCause.UNCLASSIFIED, "the entrypoint's result is not there"),
    ],
)
def test_an_entrypoint_without_a_result_has_no_reward(
    executor: DockerExecutor, lines: str, cause: FailureCause, error: str
) -> None:
    execution = ran(executor, lines)
    assert (execution.reward, execution.failure_cause, execution.error) == (None, cause, error)


def test_a_command_that_is_not_in_the_image_is_a_failure_of_the_box(executor: DockerExecutor) -> None:
    execution = ran(executor, "true", entrypoint="no-such-command")
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
    assert 'exec: "no-such-command"' in execution.error


@pytest.mark.parametrize("entrypoint", ["run 'it", "", "  "])
def test_an_entrypoint_that_is_no_command_is_not_run(executor: DockerExecutor, entrypoint: str) -> None:
    with pytest.raises(HarborError, match="entrypoint"):
        ran(executor, "true", entrypoint=entrypoint)


def test_an_image_that_is_gone_is_said_so(engine: DockerEngine, executor: DockerExecutor) -> None:
    built = executor.build(packed_context())
    engine.images.clear()
    assert not executor.has(built.snapshot_id)
    with pytest.raises(HarborError, match="is gone; build the deployment again"):
        executor.run(a_spec(built.snapshot_id), NEVER)


@pytest.mark.parametrize("path", ["/create", "/archive"])
def test_a_box_that_cannot_be_made_is_an_error(engine: DockerEngine, executor: DockerExecutor, path: str) -> None:
    built = executor.build(packed_context())
    engine.faults = [(path, 500, "the driver is broken")]
    with pytest.raises(HarborError, match="the driver is broken"):
        executor.run(a_spec(built.snapshot_id), NEVER)
    assert engine.containers == {}


def test_a_box_that_breaks_while_it_runs_is_the_machines_failure(
    engine: DockerEngine, executor: DockerExecutor
) -> None:
    built = executor.build(packed_context())
    engine.faults = [("/logs", 500, "the driver is broken")]
    execution = executor.run(a_spec(built.snapshot_id), NEVER)
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
    assert execution.error == "docker: cannot read what a container printed: the driver is broken"


def test_a_verifier_grades_what_travels_in_a_box_the_agent_never_saw(
    engine: DockerEngine, executor: DockerExecutor
) -> None:
    agent = "mkdir -p out/deep; printf 0.75 > out/deep/score; ln -s /etc/passwd out/link; echo no > other; echo made"
    verifier = (
        'cat out/deep/score > /logs/verifier/reward.txt; test ! -e other && test ! -e out/link && test -z "$API_KEY"'
        " && echo alone"
    )
    execution = executor.run(a_graded_script(executor, agent, verifier), NEVER)
    assert (execution.success_status, execution.reward, execution.failure_cause) == (SuccessStatus.SUCCESS, 0.75, None)
    assert execution.log == "made\n\nalone\n"
    assert execution.verify_s > 0
    first, second = engine.created
    assert [each["Labels"]["graftline.harbor.role"] for each in (first, second)] == ["agent", "verifier"]
    assert variables(second) == {}
    asked = [
        each.split()[0] for each in engine.asked if each.endswith("create") or each.startswith("DELETE containers")
    ]
    # the agent's box is gone before there is another
    assert [each for each in asked if each != "GET"][-3:] == ["DELETE", "POST", "DELETE"]


def test_a_reward_that_the_agent_brings_along_is_none(executor: DockerExecutor) -> None:
    agent = 'mkdir -p out logs/verifier; printf 1 > logs/verifier/reward.txt; printf \'{"reward": 1}\' > "$4"'
    box = a_graded_script(executor, agent, "true", artifacts=("logs", "out"))
    execution = executor.run(box, NEVER)
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.VERIFIER_FAILED)
    assert execution.error == "the verifier left neither reward.json nor reward.txt"


@pytest.mark.parametrize(
    ("verifier", "error"),
    [
        ("exit 2", "the verifier left neither reward.json nor reward.txt; it ended with code 2, see the log"),
        ("ln -s /etc/hostname /logs/verifier/reward.txt", "the verifier left neither reward.json nor reward.txt"),
    ],
)
def test_a_verifier_that_fails_gives_no_reward(executor: DockerExecutor, verifier: str, error: str) -> None:
    execution = executor.run(a_graded_script(executor, "true", verifier), NEVER)
    assert (execution.reward, execution.failure_cause, execution.error) == (None, FailureCause.VERIFIER_FAILED, error)


def test_boxes_that_no_live_run_has_are_removed_at_the_next_start(engine: DockerEngine) -> None:
    first = opened(engine)
    snapshot = first.build(a_script("sleep 60")).snapshot_id
    for name, each in LEFT_LABELS.items():
        engine.containers[name] = left(engine, name, snapshot, each)
    began = threading.Event()

    def is_cancelled() -> bool:
        if len(engine.created) == 5:
            opened(engine).close()
            began.set()
        return began.is_set()

    assert first.run(a_spec(snapshot), is_cancelled).failure_cause == FailureCause.CANCELLED
    # another start in the middle of it did not take the box that runs
    assert began.is_set()
    assert sorted(engine.containers) == ["of another machine", "of another owner"]
    first.close()


def left(engine: DockerEngine, name: str, snapshot: str, labels: dict[str, str]) -> Container:
    container = engine.create({"Image": snapshot, "Labels": labels})
    del engine.containers[container.id]
    container.id = name
    return container


def test_the_end_of_the_executor_is_the_end_of_its_boxes(engine: DockerEngine) -> None:
    executor = opened(engine)
    box = a_spec(executor.build(a_script("sleep 60")).snapshot_id)
    began = threading.Event()
    ended: list[Execution] = []

    def is_cancelled() -> bool:
        began.set()
        return False

    thread = threading.Thread(target=lambda: ended.append(executor.run(box, is_cancelled)))
    thread.start()
    began.wait()
    while not any(each.state["Running"] for each in list(engine.containers.values())):
        time.sleep(0.005)
    executor.close()
    executor.close()
    thread.join()
    assert ended[0].reward is None
    assert engine.containers == {}
    with pytest.raises(HarborError, match="is closed"):
        executor.run(box, NEVER)


def test_a_folder_that_the_image_has_not_is_said_so(executor: DockerExecutor) -> None:
    with pytest.raises(HarborError, match="folder 'environment' is not in the working folder of the image, /app"):
        ran(executor, "true", agent_files=("environment",))
