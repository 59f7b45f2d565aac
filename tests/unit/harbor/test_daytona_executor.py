"""What only the executor `daytona` does, by Daytona's SDK; the contract suites have the rest."""

import sys
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.contract import HarborLimits
from graftline.harbor.executors.daytona import DaytonaExecutor, DaytonaExecutorConfig
from tests.daytona_server import DaytonaServer
from tests.rollout_specs import FILES, SECRET, a_spec, never, packed_context, ran_script


def test_a_missing_sdk_is_said_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "daytona", None)
    with pytest.raises(ConfigError, match=r"^executor 'daytona': its SDK is missing; .*\[daytona\]'$"):
        DaytonaExecutor(DaytonaExecutorConfig(), SecretStr("key"))


@pytest.fixture
def server() -> Iterator[DaytonaServer]:
    pytest.importorskip("daytona", reason="the SDK of Daytona is not installed; pip install 'graftline[daytona]'")
    with DaytonaServer() as server:
        yield server


@pytest.fixture
def executor(server: DaytonaServer) -> Iterator[DaytonaExecutor]:
    executor = server.open_executor()
    yield executor
    executor.close()
    assert server.containers == {}


@pytest.mark.parametrize("state", ["pending", "building", "pulling", "inactive"])
def test_a_snapshot_that_is_on_its_way_is_waited_for(
    server: DaytonaServer, executor: DaytonaExecutor, state: str
) -> None:
    built = executor.build(packed_context())
    asked = server.snapshots[built.snapshot_id].asked
    assert {name: asked[name] for name in ("cpu", "memory", "disk")} == {"cpu": 2, "memory": 4, "disk": 10}
    snapshot = server.snapshots[built.snapshot_id]
    snapshot.state, snapshot.looks = state, 3
    assert executor.build(packed_context()) == type(built)(built.snapshot_id)
    assert snapshot.state == "active"
    assert server.asked.count("POST api/snapshots") == 1


@pytest.mark.parametrize("state", ["error", "build_failed"])
def test_a_snapshot_that_failed_is_built_anew(server: DaytonaServer, executor: DaytonaExecutor, state: str) -> None:
    built = executor.build(packed_context())
    server.snapshots[built.snapshot_id].state = state
    assert not executor.has(built.snapshot_id)
    assert executor.build(packed_context()).snapshot_id == built.snapshot_id
    assert server.snapshots[built.snapshot_id].state == "active"
    assert server.asked.count("POST api/snapshots") == 2


def test_a_key_that_is_refused_is_said_so(server: DaytonaServer) -> None:
    server.faults = [("GET api/sandbox", 401, "Unauthorized")]
    with pytest.raises(HarborError, match=r"cannot list sandboxes.*check DAYTONA_API_KEY"):
        server.open_executor()


def test_a_call_that_is_refused_for_the_rate_is_made_again(server: DaytonaServer, executor: DaytonaExecutor) -> None:
    snapshot = executor.build(packed_context()).snapshot_id
    slow = {"Retry-After": "0"}
    server.faults = [("POST api/sandbox", 429, "too many", slow), ("process/execute", 429, "too many", slow)]
    assert executor.run(a_spec(snapshot), never).reward == 0.5
    assert (server.faults, len(server.created)) == ([], 1)


def test_a_rate_that_does_not_allow_it_in_time_is_an_error(server: DaytonaServer) -> None:
    executor = server.open_executor(patience_s=0)
    snapshot = executor.build(packed_context()).snapshot_id
    server.faults = [("POST api/sandbox", 429, "too many", {"Retry-After": "60"})]
    with pytest.raises(HarborError, match="too many; ask for less at a time") as error:
        executor.run(a_spec(snapshot), never)
    assert error.value.status == 429
    executor.close()


def test_a_sandbox_ends_by_itself_and_says_whose_it_is(server: DaytonaServer) -> None:
    executor = server.open_executor(network="open", owner="mine")
    execution = ran_script(
        executor, FILES["run_rollout"], env_vars={"CARD": "df-001"}, limits=HarborLimits(timeout_s=3000)
    )
    sizes = {"timeout_s": 3000, "cpu_cores": 2, "memory_mb": 4096, "disk_mb": 10240}
    assert execution.limits_enforced == {**sizes, "network": "open"}
    (made,) = server.created
    # 3000 s and ten minutes
    wanted = {"autoStopInterval": 60, "ttlMinutes": 60, "autoDeleteInterval": 0, "networkBlockAll": False, "env": {}}
    assert {name: made[name] for name in wanted} == wanted
    [labels] = server.labels()
    assert (labels["owner"], labels["rollout"], labels["attempt"], labels["role"]) == ("mine", "r1", "1", "agent")
    executor.close()


def test_a_deployment_that_asks_for_more_than_a_snapshot_has_is_not_run(
    server: DaytonaServer, executor: DaytonaExecutor
) -> None:
    with pytest.raises(HarborError, match="asks for memory_mb 8192, but has 4096; raise the executor's size"):
        ran_script(executor, "true", limits=HarborLimits(memory_mb=8192))
    assert server.created == []


def test_secrets_are_of_one_command(server: DaytonaServer, executor: DaytonaExecutor) -> None:
    execution = ran_script(executor, 'echo "key: $API_KEY"', secrets={"API_KEY": SECRET})
    assert execution.log == "key: [secret]\n"
    assert SECRET not in str(server.created)
    assert [command["envs"] for command in server.commands if command.get("envs")] == [{"API_KEY": SECRET}]
    assert all(SECRET not in command["command"] for command in server.commands)
