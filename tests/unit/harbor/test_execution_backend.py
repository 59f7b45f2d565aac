import asyncio
from collections.abc import Callable

import pytest

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.client import HarborAPIError
from graftline.harbor.contract import (
    FailureCause,
    RewardInfo,
    RolloutEnv,
    RolloutRequest,
    RolloutResponse,
    SuccessStatus,
    TaskDescription,
    TaskInfo,
)
from graftline.harbor.execution import HarborExecutionBackend
from graftline.harbor.instances import create_harbor_instances
from graftline.harbor.localapi.app import create_local_api
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.served import serve_task_app
from graftline.harbor.task_app_client import create_task_app_client
from tests.harbor_server import Fault, HarborServer, reward

ROLLOUTS = "POST /api/harbor/rollouts"


def asked(seed: int = 0, id: str = "r-1") -> RolloutRequest:
    return RolloutRequest(trace_correlation_id=id, env=RolloutEnv(seed=seed))


def test_a_rollout_is_asked_for_and_looked_at_until_it_has_ended(
    server: HarborServer, ref: HarborDeploymentRef
) -> None:
    server.looks = 3
    server.outcome = lambda seed: reward(0.5, cost_usd=0.25, tokens=10)

    found = asyncio.run(HarborExecutionBackend(deployment_ref=ref)(asked(seed=7), None))

    assert (found.trace_correlation_id, found.reward_info.outcome_reward, found.reward_valid) == ("r-1", 0.5, True)
    assert found.metadata == {
        "rollout_id": "rol-1",
        "instance_id": "ins-7",
        "cost_usd": 0.25,
        "tokens": 10,
        "attempts": 1,
    }
    assert [asked.method for asked in server.asked] == ["POST", "GET", "GET", "GET"]
    assert server.asked[0].headers["idempotency-key"] == "r-1"


def test_the_service_ends_a_rollout_before_the_client_stops_waiting(
    server: HarborServer, ref: HarborDeploymentRef
) -> None:
    HarborExecutionBackend(ref, timeout=120.0).execute(asked())

    assert server.asked[0].body["safety"]["max_time_s"] == 120.0


def test_a_rollout_whose_answers_are_lost_runs_once(server: HarborServer, ref: HarborDeploymentRef) -> None:
    server.fail(ROLLOUTS, Fault(torn=True, is_carried_out=True), Fault(status=429, retry_after="0"))
    server.fail("GET /api/harbor/rollouts/rol-1", Fault(torn=True))
    server.looks = 1

    found = HarborExecutionBackend(ref).execute(asked())

    assert (found.reward_info.outcome_reward, len(server.rollouts), len(server.of(ROLLOUTS))) == (1.0, 1, 3)


def test_a_rollout_that_is_at_work_already_is_taken_up(server: HarborServer, ref: HarborDeploymentRef) -> None:
    HarborExecutionBackend(ref).execute(asked())
    at_work = b'{"error": {"code": "in_progress", "message": "is at work", "details": {"rollout_id": "rol-1"}}}'
    server.fail(ROLLOUTS, Fault(status=409, content=at_work))

    assert HarborExecutionBackend(ref).execute(asked()).metadata["rollout_id"] == "rol-1"


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (reward(None, "sandbox_failed", error="no box"), FailureCause.SANDBOX_FAILED),
        (reward(None, "harbor_failed"), FailureCause.HARBOR_FAILED),
        (reward(None, "a_cause_of_later", response=None), FailureCause.UNCLASSIFIED),
        (reward(None, None, response=None, status="failed"), FailureCause.HARBOR_FAILED),
        (reward(None, None, response=None, status="cancelled"), FailureCause.CANCELLED),
    ],
)
def test_a_failure_has_no_reward_and_its_cause(
    server: HarborServer, ref: HarborDeploymentRef, outcome: dict, cause: FailureCause
) -> None:
    server.outcome = lambda seed: outcome

    found = HarborExecutionBackend(ref).execute(asked())

    assert (found.reward_info.outcome_reward, found.reward_valid, found.failure_cause) == (None, False, cause)


def test_a_service_that_fails_has_no_reward_either(server: HarborServer, ref: HarborDeploymentRef) -> None:
    server.fail(ROLLOUTS, Fault(status=500), Fault(status=500))

    found = HarborExecutionBackend(ref, max_retries=1).execute(asked())

    assert found.success_status is SuccessStatus.NETWORK_ERROR
    assert (found.reward_info.outcome_reward, found.failure_cause) == (None, FailureCause.HARBOR_FAILED)
    assert found.status_detail == (
        f"POST {server.url}/api/harbor/rollouts: answers 500 Internal Server Error: as the test has it"
    )


def test_a_service_that_is_started_again_is_waited_for(server: HarborServer, ref: HarborDeploymentRef) -> None:
    server.looks = 1
    server.fail("GET /api/harbor/rollouts/rol-1", Fault(status=500), Fault(torn=True))

    found = HarborExecutionBackend(ref, max_retries=0).execute(asked())

    assert found.reward_info.outcome_reward == 1.0


def test_what_the_caller_has_to_mend_is_an_error(server: HarborServer) -> None:
    backend = HarborExecutionBackend(HarborDeploymentRef("none", server.url, server.key))

    with pytest.raises(HarborAPIError, match="deployment 'none': there is none"):
        backend.execute(asked())


def test_a_rollout_that_takes_too_long_is_cancelled_and_has_no_reward(
    server: HarborServer, ref: HarborDeploymentRef
) -> None:
    server.looks = 1000

    found = HarborExecutionBackend(ref, timeout=0.01, grace_s=0.0).execute(asked())

    assert (found.success_status, found.failure_cause) == (SuccessStatus.TIMEOUT, FailureCause.HARBOR_FAILED)
    assert found.reward_info == RewardInfo(outcome_reward=None)
    assert server.rollouts["r-1"]["status"] == "cancelled"


def test_a_rollout_that_is_cancelled_here_is_cancelled_there(server: HarborServer, ref: HarborDeploymentRef) -> None:
    server.looks = 1000

    async def impatient() -> None:
        work = asyncio.create_task(HarborExecutionBackend(ref).execute_async(asked()))
        while not server.of("GET /api/harbor/rollouts/rol-1"):
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(impatient())

    assert server.rollouts["r-1"]["status"] == "cancelled"


def test_a_deployment_is_ready_or_says_what_it_is(server: HarborServer, ref: HarborDeploymentRef) -> None:
    assert HarborExecutionBackend(ref).check_deployment_ready().snapshot_id == "snap-1"

    server.looks = 5
    with pytest.raises(HarborError, match="deployment 'dep-1': is 'building'; wait until it is 'ready'"):
        HarborExecutionBackend(ref).check_deployment_ready()


def tasks_of(seeds: list[int]) -> list[TaskInfo]:
    return [TaskInfo(task=TaskDescription(id=f"task-{seed}", name=f"Task {seed}")) for seed in seeds]


def run_rollout(request: RolloutRequest, fastapi_request: object) -> RolloutResponse:
    return RolloutResponse(
        trace_correlation_id=request.trace_correlation_id, reward_info=RewardInfo(outcome_reward=request.seed / 10)
    )


def local_app(**more: object) -> LocalAPIConfig:
    return LocalAPIConfig(app_id="tests", rollout=run_rollout, provide_task_instances=tasks_of, api_key="k", **more)


def test_a_task_app_is_asked_the_same_way_as_a_deployment_here_and_at_a_url(
    server: HarborServer, ref: HarborDeploymentRef
) -> None:
    create_harbor_instances("dep-1", 3, server.url, server.key)
    server.outcome = lambda seed: reward(seed / 10)

    async def answers(make: Callable[[], object]) -> tuple[object, ...]:
        client = make()
        found = await client.rollout(asked(seed=2))
        infos = await client.task_info([2, 1])
        return found.reward_info.outcome_reward, [info.task.id for info in infos], bool(await client.health())

    expected = (0.2, ["task-2", "task-1"], True)
    behind = LocalAPIConfig(app_id="tests", execution_backend="harbor", harbor=ref)
    assert asyncio.run(answers(lambda: create_task_app_client(behind))) == expected
    assert asyncio.run(answers(lambda: create_task_app_client(ref.task_app_url, server.key))) == expected
    assert asyncio.run(answers(lambda: create_task_app_client(local_app()))) == expected
    with serve_task_app(create_local_api(local_app())) as url:
        assert asyncio.run(answers(lambda: create_task_app_client(url, "k"))) == expected


def test_task_apps_say_where_they_are(ref: HarborDeploymentRef) -> None:
    behind = LocalAPIConfig(app_id="tests", execution_backend="harbor", harbor=ref)

    assert create_task_app_client(behind).url == ref.task_app_url == behind.get_task_app_url()
    assert create_task_app_client(local_app()).url == ""
    assert create_task_app_client(local_app(task_app_url="http://127.0.0.1:1/")).url == "http://127.0.0.1:1"
    assert create_task_app_client("http://127.0.0.1:1/").url == "http://127.0.0.1:1"


def test_a_task_app_at_a_url_that_refuses_the_key_is_an_error() -> None:
    with (
        serve_task_app(create_local_api(local_app())) as url,
        pytest.raises(HarborAPIError, match=r"answers 401 Unauthorized.*check the key"),
    ):
        asyncio.run(create_task_app_client(url, "wrong").rollout(asked()))


ZERO = b'{"reward_info": {"outcome_reward": 0.0}, "success_status": "network_error"}'


@pytest.mark.parametrize(
    ("fault", "status", "cause"),
    [
        (Fault(torn=True), SuccessStatus.NETWORK_ERROR, FailureCause.HARBOR_FAILED),
        (Fault(status=500), SuccessStatus.NETWORK_ERROR, FailureCause.HARBOR_FAILED),
        (Fault(status=200, content=b"{}"), SuccessStatus.RUNTIME_ERROR, FailureCause.VERIFIER_FAILED),
        (Fault(status=200, content=b"[]"), SuccessStatus.RUNTIME_ERROR, FailureCause.UNCLASSIFIED),
        # some task apps say 0.0 where nothing is known
        (Fault(status=200, content=ZERO), SuccessStatus.NETWORK_ERROR, FailureCause.MODEL_PROVIDER_FAILED),
    ],
)
def test_a_task_app_at_a_url_that_fails_is_asked_once_and_has_no_reward(
    server: HarborServer, fault: Fault, status: SuccessStatus, cause: FailureCause
) -> None:
    server.fail("POST /rollout", fault)

    found = asyncio.run(create_task_app_client(server.url, "k").rollout(asked()))

    assert (found.reward_info.outcome_reward, found.failure_cause) == (None, cause)
    assert (found.success_status, len(server.asked)) == (status, 1)


def test_tasks_that_a_task_app_does_not_know_are_an_error() -> None:
    config = LocalAPIConfig(app_id="tests", rollout=run_rollout, provide_task_instances=lambda seeds: [])

    with pytest.raises(HarborError, match="task app 'tests': was asked for the tasks of 1 seeds and has 0 of them"):
        asyncio.run(create_task_app_client(config).task_info([1]))


def test_a_task_app_that_can_run_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="task app 'tests': has nothing that runs a rollout"):
        create_task_app_client(LocalAPIConfig(app_id="tests"))
