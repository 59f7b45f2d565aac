"""What only the executor `docker` does; the contract suites have the rest."""

from collections.abc import Iterator

import pytest

from graftline.core.errors import DataError, HarborError
from graftline.harbor.contract import FailureCause, HarborLimits
from graftline.harbor.executors.docker import DockerExecutor, DockerExecutorConfig
from tests.docker_engine import DockerEngine
from tests.rollout_specs import FILES, SECRET, packed_context, ran_script


@pytest.fixture
def engine() -> Iterator[DockerEngine]:
    with DockerEngine() as engine:
        yield engine


@pytest.fixture
def executor(engine: DockerEngine) -> Iterator[DockerExecutor]:
    executor = engine.open_executor()
    yield executor
    executor.close()
    assert engine.containers == {}


def variables(container: dict[str, list[str]]) -> dict[str, str]:
    return dict(each.partition("=")[::2] for each in container.get("Env", []))


def test_an_image_of_the_same_tag_and_another_context_is_built_anew(
    engine: DockerEngine, executor: DockerExecutor
) -> None:
    built = executor.build(packed_context())
    engine.images[built.snapshot_id].labels["graftline.harbor.context"] = "of somebody else"
    assert executor.build(packed_context()).snapshot_id == built.snapshot_id
    assert [each for each in engine.asked if "build" in each] == ["POST build"] * 2


@pytest.mark.parametrize(
    ("line", "fault"),
    [("RUM ls", "dockerfile parse error line 2: unknown instruction: RUM"), ("RUN false", "Step 2/2 : RUN false")],
)
def test_a_dockerfile_that_fails_is_an_error_with_the_end_of_the_log(
    executor: DockerExecutor, line: str, fault: str
) -> None:
    with pytest.raises(DataError, match=fault):
        executor.build(packed_context(dockerfile=f"FROM debian:13\n{line}\n"))


def test_a_full_disk_says_nothing_of_the_context(executor: DockerExecutor) -> None:
    full = "FROM debian:13\nRUN echo 'write /x: no space left on device' >&2; exit 1\n"
    with pytest.raises(HarborError, match="no space left on device"):
        executor.build(packed_context(dockerfile=full))


def test_an_engine_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(HarborError, match="cannot reach the engine"):
        DockerExecutor(DockerExecutorConfig(base_url="tcp://127.0.0.1:9"))


def test_a_box_is_made_with_walls_and_limits(engine: DockerEngine, executor: DockerExecutor) -> None:
    limits = HarborLimits(memory_mb=512, cpu_cores=1)
    execution = ran_script(executor, FILES["run_rollout"], env_vars={"CARD": "df-001"}, limits=limits)
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
    [labels] = engine.labels()
    assert sorted(labels) == ["attempt", "holder", "lease", "owner", "role", "rollout"]
    assert (labels["owner"], labels["rollout"], labels["attempt"], labels["role"]) == ("graftline", "r1", "1", "agent")


def test_the_disk_is_limited_where_the_engine_can() -> None:
    with DockerEngine(has_disk_limits=True) as engine:
        executor = engine.open_executor()
        assert ran_script(executor, FILES["run_rollout"]).limits_enforced["disk_mb"] == 10240
        assert engine.created[0]["HostConfig"]["StorageOpt"] == {"size": "10240m"}
        executor.close()


def test_secrets_are_variables_of_a_container_and_in_no_image(engine: DockerEngine, executor: DockerExecutor) -> None:
    execution = ran_script(executor, 'echo "key: $API_KEY"', secrets={"API_KEY": SECRET})
    assert execution.log == "key: [secret]\n"
    assert all(SECRET not in str(image) for image in engine.images.values())
    assert variables(engine.created[0]) == {"API_KEY": SECRET}


def test_a_command_that_is_not_in_the_image_is_a_failure_of_the_box(executor: DockerExecutor) -> None:
    execution = ran_script(executor, "true", entrypoint="no-such-command")
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
    assert 'exec: "no-such-command"' in execution.error


def test_a_folder_that_the_image_has_not_is_said_so(executor: DockerExecutor) -> None:
    with pytest.raises(HarborError, match="folder 'environment' is not in the working folder of the image, /app"):
        ran_script(executor, "true", agent_files=("environment",))
