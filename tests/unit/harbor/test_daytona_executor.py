"""The executor `daytona`, by Daytona's SDK, against a server that works with folders and processes."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from graftline.core.errors import ConfigError, DataError, HarborError
from graftline.harbor.contract import FailureCause, HarborLimits, SuccessStatus
from graftline.harbor.executors.base import Execution
from graftline.harbor.executors.daytona import DaytonaExecutor, DaytonaExecutorConfig
from tests.daytona_server import DaytonaServer, Sandbox, allow_http
from tests.rollout_specs import FILES, LEFT_LABELS, SECRET, a_graded_script, a_script, a_spec, packed_context

NEVER = bool


def test_a_missing_sdk_is_said_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "daytona", None)
    with pytest.raises(ConfigError) as error:
        DaytonaExecutor(DaytonaExecutorConfig(), SecretStr("key"))
    assert (
        str(error.value)
        == "executor 'daytona': its SDK is missing; .venv/bin/pip install -c constraints.txt -e '.[daytona]'"
    )


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DaytonaServer]:
    pytest.importorskip("daytona", reason="the SDK of Daytona is not installed; pip install 'graftline[daytona]'")
    allow_http(monkeypatch)
    with DaytonaServer() as server:
        yield server


@pytest.fixture
def executor(server: DaytonaServer) -> Iterator[DaytonaExecutor]:
    executor = opened(server)
    yield executor
    executor.close()
    assert server.sandboxes == {}


def opened(server: DaytonaServer, **changes: Any) -> DaytonaExecutor:
    config = DaytonaExecutorConfig(api_url=server.url, target="us", poll_s=0.01, **changes)
    return DaytonaExecutor(config, SecretStr(server.key))


def ran(executor: DaytonaExecutor, lines: str, **changes: object) -> Execution:
    return executor.run(a_spec(executor.build(a_script(lines)).snapshot_id, **changes), NEVER)


def test_a_build_makes_one_snapshot_and_is_not_repeated(server: DaytonaServer, executor: DaytonaExecutor) -> None:
    built = executor.build(packed_context())
    assert list(server.snapshots) == [built.snapshot_id]
    assert built.snapshot_id.startswith("graftline-")
    assert len(built.snapshot_id) == len("graftline-") + 12
    assert executor.has(built.snapshot_id)
    assert executor.build(packed_context()).snapshot_id == built.snapshot_id
    assert server.asked.count("POST api/snapshots") == 1
    asked = server.snapshots[built.snapshot_id].asked
    assert {name: asked[name] for name in ("cpu", "memory", "disk")} == {"cpu": 2, "memory": 4, "disk": 10}


def test_the_log_of_a_build_is_kept(server: DaytonaServer, executor: DaytonaExecutor) -> None:
    server.is_slow_to_build = True
    assert (
        "Step 1/2 : FROM debian:13\nStep 2/2 : WORKDIR /app\n"
        in executor.build(packed_context(dockerfile="FROM debian:13\nWORKDIR /app\n")).log
    )


@pytest.mark.parametrize("state", ["pending", "building", "pulling", "inactive"])
def test_a_snapshot_that_is_on_its_way_is_waited_for(
    server: DaytonaServer, executor: DaytonaExecutor, state: str
) -> None:
    built = executor.build(packed_context())
    snapshot = server.snapshots[built.snapshot_id]
    snapshot.state = state
    looks = iter([state, state])
    seen = type(snapshot).seen

    class Arriving(type(snapshot)):  # type: ignore[misc]
        def seen(self) -> dict[str, Any]:
            if self.state != "active" and next(looks, None) is None:
                self.state = "active"
            return seen(self)

    snapshot.__class__ = Arriving
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


@pytest.mark.parametrize(
    ("dockerfile", "said"),
    [
        ("FROM debian:13\nRUN exit 3\n", "returned a non-zero code: 3"),
        ("FROM debian:13\nCOPY missing /\n", "Path does not exist"),
        ("FROM debian:13\nCOPY ../up /\n", "the Dockerfile does not build"),
        ("", "the context has no Dockerfile"),
    ],
)
def test_a_dockerfile_that_fails_is_an_error_of_the_data(executor: DaytonaExecutor, dockerfile: str, said: str) -> None:
    with pytest.raises(DataError) as error:
        executor.build(packed_context(dockerfile=dockerfile))
    assert said in str(error.value)


def test_a_service_that_fails_a_build_says_nothing_of_the_context(
    server: DaytonaServer, executor: DaytonaExecutor
) -> None:
    server.faults = [("POST api/snapshots", 500, "no runner", {})]
    with pytest.raises(HarborError, match="no runner"):
        executor.build(packed_context())


def test_a_key_that_is_refused_is_said_so(server: DaytonaServer) -> None:
    config = DaytonaExecutorConfig(api_url=server.url, target="us")
    with pytest.raises(HarborError, match=r"cannot list sandboxes.*check DAYTONA_API_KEY"):
        DaytonaExecutor(config, SecretStr("wrong"))


def test_a_call_that_is_refused_for_the_rate_is_made_again(server: DaytonaServer, executor: DaytonaExecutor) -> None:
    snapshot = executor.build(packed_context()).snapshot_id
    slow = {"Retry-After": "0"}
    server.faults = [("POST api/sandbox", 429, "too many", slow), ("process/execute", 429, "too many", slow)]
    assert executor.run(a_spec(snapshot), NEVER).reward == 0.5
    assert (server.faults, len(server.created)) == ([], 1)


def test_a_rate_that_does_not_allow_it_in_time_is_an_error(server: DaytonaServer) -> None:
    executor = opened(server, patience_s=0)
    snapshot = executor.build(packed_context()).snapshot_id
    server.faults = [("POST api/sandbox", 429, "too many", {"Retry-After": "60"})]
    with pytest.raises(HarborError, match="too many; ask for less at a time") as error:
        executor.run(a_spec(snapshot), NEVER)
    assert error.value.status == 429
    executor.close()


def test_a_sandbox_ends_by_itself_and_says_whose_it_is(server: DaytonaServer) -> None:
    executor = opened(server, network="open", owner="mine")
    execution = ran(executor, FILES["run_rollout"], env_vars={"CARD": "df-001"}, limits=HarborLimits(timeout_s=3000))
    sizes = {"timeout_s": 3000, "cpu_cores": 2, "memory_mb": 4096, "disk_mb": 10240}
    assert execution.limits_enforced == {**sizes, "network": "open"}
    (made,) = server.created
    # 3000 s and ten minutes
    wanted = {"autoStopInterval": 60, "ttlMinutes": 60, "autoDeleteInterval": 0, "networkBlockAll": False, "env": {}}
    assert {name: made[name] for name in wanted} == wanted
    labels = {name.removeprefix("graftline.harbor."): value for name, value in made["labels"].items()}
    assert (labels["owner"], labels["rollout"], labels["attempt"], labels["role"]) == ("mine", "r1", "1", "agent")
    executor.close()


def test_a_deployment_that_asks_for_more_than_a_snapshot_has_is_not_run(
    server: DaytonaServer, executor: DaytonaExecutor
) -> None:
    with pytest.raises(HarborError, match="asks for memory_mb 8192, but has 4096; raise the executor's size"):
        ran(executor, "true", limits=HarborLimits(memory_mb=8192))
    assert server.created == []


def test_secrets_are_of_one_command_and_come_back_from_nowhere(
    server: DaytonaServer, executor: DaytonaExecutor
) -> None:
    lines = (
        'echo "key: $API_KEY"; printf \'{"reward_info": {"outcome_reward": 1, "details": {"%s": ["%s"]}}}\''
        ' "$API_KEY" "$API_KEY" > "$4"'
    )
    execution = ran(executor, lines, secrets={"API_KEY": SECRET})
    assert execution.details == {"[secret]": ["[secret]"]}
    assert (execution.log, SECRET in str(execution)) == ("key: [secret]\n", False)
    assert SECRET not in str(server.created)
    assert [command["envs"] for command in server.commands if command.get("envs")] == [{"API_KEY": SECRET}]
    assert all(SECRET not in command["command"] for command in server.commands)


def test_a_box_that_is_out_of_memory_is_the_machines_failure(executor: DaytonaExecutor) -> None:
    lines = (
        'printf \'{"reward_info": {"outcome_reward": 0.0}}\' > "$4"\n'
        "printf 'low 0\\noom 1\\noom_kill 1\\n' > /sys/fs/cgroup/memory.events; kill -9 $$"
    )
    execution = ran(executor, lines)
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
    assert execution.error == "the box ran out of memory; raise memory_mb, which is 4096"


def test_a_box_that_cannot_be_made_is_an_error(server: DaytonaServer, executor: DaytonaExecutor) -> None:
    snapshot = executor.build(packed_context()).snapshot_id
    server.faults = [("bulk-upload", 500, "the disk is full", {})]
    with pytest.raises(HarborError, match="the disk is full"):
        executor.run(a_spec(snapshot), NEVER)
    assert server.sandboxes == {}


def test_a_box_that_breaks_while_it_runs_is_the_machines_failure(
    server: DaytonaServer, executor: DaytonaExecutor
) -> None:
    snapshot = executor.build(packed_context()).snapshot_id
    server.faults = [("bulk-download", 500, "the runner is gone", {})]
    execution = executor.run(a_spec(snapshot), NEVER)
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.SANDBOX_FAILED)


def test_a_verifier_grades_what_travels_in_a_box_the_agent_never_saw(
    server: DaytonaServer, executor: DaytonaExecutor
) -> None:
    agent = "mkdir -p out/deep; printf 0.75 > out/deep/score; ln -s /etc/passwd out/link; echo no > other; echo made"
    verifier = (
        'cat out/deep/score > /logs/verifier/reward.txt; test ! -e other && test ! -e out/link && test -z "$API_KEY"'
        " && echo alone"
    )
    execution = executor.run(a_graded_script(executor, agent, verifier), NEVER)
    assert (execution.success_status, execution.reward, execution.failure_cause) == (SuccessStatus.SUCCESS, 0.75, None)
    assert execution.log == "made\n\nalone\n"
    assert [each["labels"]["graftline.harbor.role"] for each in server.created] == ["agent", "verifier"]
    ways = [each.split("/")[0] for each in server.asked if each == "POST api/sandbox" or "DELETE api/sandbox" in each]
    # the agent's box is gone before there is another
    assert ways == ["POST api", "DELETE api", "POST api", "DELETE api"]


def test_a_reward_that_the_agent_brings_along_is_none(executor: DaytonaExecutor) -> None:
    agent = 'mkdir -p out logs/verifier; printf 1 > logs/verifier/reward.txt; printf \'{"reward": 1}\' > "$4"'
    execution = executor.run(a_graded_script(executor, agent, "true", artifacts=("logs", "out")), NEVER)
    assert (execution.reward, execution.failure_cause) == (None, FailureCause.VERIFIER_FAILED)
    assert execution.error == "the verifier left neither reward.json nor reward.txt"


def test_boxes_that_no_live_run_has_are_removed_at_the_next_start(
    server: DaytonaServer, executor: DaytonaExecutor
) -> None:
    snapshot = server.snapshots[executor.build(packed_context()).snapshot_id]
    for name, each in LEFT_LABELS.items():
        server.sandboxes[name] = Sandbox({"labels": each}, snapshot.image.files, snapshot, id=name)
        server.sandboxes[name].end = lambda: None  # type: ignore[method-assign]  # its files are those of the snapshot
    opened(server).close()
    assert sorted(server.sandboxes) == ["of another machine", "of another owner"]
    server.sandboxes.clear()
