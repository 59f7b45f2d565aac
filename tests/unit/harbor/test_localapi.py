"""What a task app is made of, the keys it takes, and what becomes of what a handler returns."""

import asyncio
import functools
import socket
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import SecretStr

from graftline.core.errors import ActorError, ConfigError, DataError, HarborError, SandboxError
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.contract import RewardInfo, RolloutRequest, RolloutResponse
from graftline.harbor.instances import HarborInstanceProvider
from graftline.harbor.localapi.app import accepted_keys
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.rollouts import Rollouts, response_of
from graftline.harbor.localapi.served import serve_task_app
from graftline.harbor.refusal import RequestError
from graftline.harbor.web import check_key

REQUEST = RolloutRequest(trace_correlation_id="t-1")
REF = HarborDeploymentRef(deployment_id="d-1", backend_url="https://harbor.example", api_key="sk-service")
PASSED = {"reward_info": {"outcome_reward": 0.25}}


def ended(handler: Any, request: RolloutRequest = REQUEST, **settings: Any) -> RolloutResponse:
    return asyncio.run(Rollouts(handler, **settings).response(request, "the web framework's"))


def shown(response: RolloutResponse) -> tuple[str, str | None, float | None, bool, str | None]:
    reward = response.reward_info.outcome_reward
    return response.success_status, response.failure_cause, reward, response.reward_valid, response.status_detail


# the configuration


def test_the_config_of_an_optimization() -> None:
    provider = HarborInstanceProvider(deployment_ref=REF)
    config = LocalAPIConfig(
        app_id="engine_bench",
        name="EngineBench - Pokemon TCG Card Implementation",
        description="EngineBench evaluates coding agents on Pokemon TCG card implementations in Rust.",
        provide_taskset_description=dict,
        provide_task_instances=lambda seeds: [],
        rollout=lambda request, fastapi_request: PASSED,
        execution_backend="harbor",
        harbor=REF,
        instance_provider=provider,
    )
    assert config.get_task_app_url() == "https://harbor.example/api/harbor/deployments/d-1"
    local = LocalAPIConfig(app_id="a", task_app_url="http://127.0.0.1:8000/", api_key="hunter22")  # type: ignore[arg-type]
    assert (local.name, local.get_task_app_url()) == ("a", "http://127.0.0.1:8000")
    assert "hunter22" not in repr(local)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"execution_backend": "harbor"}, "execution_backend 'harbor' needs the deployment"),
        ({"execution_backend": "daytona"}, "'daytona' is unknown; known: local, harbor"),
        ({"task_app_url": None}, "nobody said where"),
        ({"task_app_url": "127.0.0.1:8000"}, "does not begin with http"),
        *(({"app_id": app_id}, "app_id: ") for app_id in ("", "  ", "a" * 129, 7)),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        LocalAPIConfig(**{"app_id": "a", **settings}).get_task_app_url()


# keys


@pytest.mark.parametrize(
    ("headers", "is_accepted"),
    [
        ({"x-api-key": "old"}, True),
        ({"authorization": "Bearer new"}, True),
        ({"authorization": "bearer own"}, True),
        ({"x-api-key": "wrong", "authorization": "Bearer older"}, True),
        ({"x-api-key": "schlüssel".encode().decode("latin-1")}, True),
        ({}, False),
        ({"x-api-key": ""}, False),
        ({"x-api-key": "ne"}, False),
        ({"x-api-key": "new,"}, False),
        ({"authorization": "Basic new"}, False),
        ({"authorization": "new"}, False),
        ({"x-api-key": "n\xe9w"}, False),
    ],
)
def test_a_key_comes_in_either_header_and_what_is_none_is_not_said_back(
    headers: Mapping[str, str], is_accepted: bool
) -> None:
    environment = {"ENVIRONMENT_API_KEY": "new", "ENVIRONMENT_API_KEY_ALIASES": "old, older,,schlüssel"}
    keys = accepted_keys(SecretStr("own"), environment)
    if is_accepted:
        check_key(headers, keys)
        return
    with pytest.raises(RequestError) as refused:
        check_key(headers, keys)
    assert (refused.value.status, refused.value.code, refused.value.details) == (401, "unauthorized", {})
    assert str(refused.value) == "the key is missing or wrong; send it as X-API-Key or as a bearer token"


def test_an_app_without_any_key_says_so() -> None:
    with pytest.raises(RequestError, match="set ENVIRONMENT_API_KEY where it runs") as refused:
        accepted_keys(None, {"ENVIRONMENT_API_KEY": " "})
    assert refused.value.status == 503


# rollouts


async def _async(request: RolloutRequest) -> dict[str, Any]:
    return PASSED


class _Callable:
    async def __call__(self, request: RolloutRequest, fastapi_request: Any = None) -> dict[str, Any]:
        return {"reward_info": {"outcome_reward": 0.25, "details": {"of": fastapi_request}}}


@pytest.mark.parametrize(
    ("handler", "details"),
    [
        (lambda request: PASSED, {}),
        (_async, {}),
        (lambda request: _async(request), {}),
        (functools.partial(_async), {}),
        (lambda request, fastapi_request: {"reward_info": {"outcome_reward": 0.25, "details": {"a": 1}}}, {"a": 1}),
        (_Callable(), {"of": "the web framework's"}),
        (lambda *arguments: {"reward_info": {"outcome_reward": 0.25, "details": {"n": len(arguments)}}}, {"n": 2}),
        (lambda request: RolloutResponse.model_validate({**PASSED, "trace_correlation_id": "another"}), {}),
    ],
)
def test_a_handler_is_called_as_it_is_written(handler: Any, details: Any) -> None:
    response = ended(handler)
    assert (response.trace_correlation_id, response.reward_info.outcome_reward) == ("t-1", 0.25)
    assert response.reward_info.details == details


@pytest.mark.parametrize("handler", [lambda: PASSED, lambda a, b, c: PASSED])
def test_a_handler_that_cannot_be_called_is_refused_at_once(handler: Any) -> None:
    with pytest.raises(ConfigError, match="it is called with a RolloutRequest"):
        Rollouts(handler)


HIDDEN = "the rollout handler failed ({}); the log of the task app says where"


@pytest.mark.parametrize(
    ("error", "cause", "detail"),
    [
        (ValueError("sk-secret"), "unclassified", HIDDEN.format("ValueError")),
        (TimeoutError(), "unclassified", HIDDEN.format("TimeoutError")),
        (StopIteration("sk-secret"), "unclassified", HIDDEN.format("RuntimeError")),
        (SystemExit(1), "unclassified", HIDDEN.format("RuntimeError")),
        (asyncio.CancelledError(), "unclassified", HIDDEN.format("RuntimeError")),
        (DataError("tasks: there are none; make some"), "unclassified", "tasks: there are none; make some"),
        (SandboxError("no seccomp"), "sandbox_failed", "no seccomp"),
        (ActorError("nobody answered"), "model_provider_failed", "nobody answered"),
        (HarborError("gone"), "harbor_failed", "gone"),
        (DataError("x" * 3000), "unclassified", "x" * 2000),
    ],
)
def test_a_handler_that_raises_has_no_reward(error: BaseException, cause: str, detail: str) -> None:
    def handler(request: RolloutRequest) -> None:
        raise error

    assert shown(ended(handler)) == ("runtime_error", cause, None, False, detail)


def test_an_async_handler_that_exits_does_not_end_the_server() -> None:
    async def handler(request: RolloutRequest) -> None:
        raise SystemExit(1)

    assert shown(ended(handler)) == ("runtime_error", "unclassified", None, False, HIDDEN.format("SystemExit"))


LATE = (
    "timeout",
    "agent_exhausted_budget",
    None,
    False,
    "the rollout was not done within safety.max_time_s of 0.01 s; give it longer",
)
IN_A_HURRY = RolloutRequest.model_validate({"trace_correlation_id": "t-1", "safety": {"max_time_s": 0.01}})


def test_a_handler_that_takes_too_long_is_given_up() -> None:
    async def handler(request: RolloutRequest) -> None:
        await asyncio.Event().wait()

    assert shown(ended(handler, IN_A_HURRY)) == LATE


def test_a_plain_handler_that_takes_too_long_keeps_its_thread_and_nothing_else() -> None:
    go_on = threading.Event()

    def handler(request: RolloutRequest) -> dict[str, Any]:
        if request is IN_A_HURRY:
            go_on.wait(240)
        return PASSED

    async def two() -> list[RolloutResponse]:
        rollouts = Rollouts(handler, most_at_once=1)
        late = await rollouts.response(IN_A_HURRY, None)
        # its thread is busy: the next one waits for it, and waiting is not taken for work
        waiting = asyncio.ensure_future(rollouts.response(REQUEST, None))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        go_on.set()
        return [late, await waiting]

    late, then = asyncio.run(two())
    assert shown(late) == LATE
    assert then.reward_info.outcome_reward == 0.25


def test_a_rollout_elsewhere_has_the_limits_of_that_place() -> None:
    async def handler(request: RolloutRequest) -> dict[str, Any]:
        await asyncio.sleep(0.03)
        return PASSED

    assert ended(handler, IN_A_HURRY, is_timed=False).reward_info.outcome_reward == 0.25


@pytest.mark.parametrize("status", [404, 409, 422])
def test_what_the_service_refuses_is_refused(status: int) -> None:
    def handler(request: RolloutRequest) -> None:
        error = HarborError("no such seed")
        error.status = status
        raise error

    with pytest.raises(RequestError, match="no such seed") as refused:
        ended(handler)
    assert refused.value.status == status


DEEP: Any = functools.reduce(lambda inner, _: [inner], range(300), [])
DEEPER: Any = functools.reduce(lambda inner, _: [inner], range(5000), [])
NOT_JSON = "what the rollout handler returned cannot be written as JSON ({})"


def no_reward(detail: str | None, cause: str = "unclassified", status: str = "runtime_error") -> tuple[Any, ...]:
    return status, cause, None, False, detail


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ({"reward_info": {"outcome_reward": 0.0}}, ("success", None, 0.0, True, None)),
        (
            {"reward_info": {"outcome_reward": float("nan")}},
            no_reward("the entrypoint's result has no reward that is a finite number", "verifier_failed"),
        ),
        # the first runners wrote 0.0 where they had failed
        (
            {"success": False, "error": "no crate", "metrics": {"reward_mean": 0.0}},
            no_reward("no crate", status="failure"),
        ),
        ({"success": True, "metrics": {"reward_mean": 0.0}}, ("success", None, 0.0, True, None)),
        ({"reward_info": {"outcome_reward": 0.5}, "success_status": "runtime_error"}, no_reward(None)),
        (
            {"reward_info": {"outcome_reward": 0.5}, "failure_cause": "agent_exhausted_budget"},
            ("success", "agent_exhausted_budget", 0.5, True, None),
        ),
        (None, no_reward("the rollout handler returned NoneType, not a RolloutResponse or a dictionary of one")),
        ({"reward_info": {"outcome_reward": 1.0}, "trace": object()}, no_reward(NOT_JSON.format("TypeError"))),
        *(
            ({"reward_info": {"outcome_reward": 1.0, "details": {"a": value}}}, no_reward(NOT_JSON.format(kind)))
            for value, kind in (("\ud800", "UnicodeEncodeError"), (DEEP, "ValueError"), (DEEPER, "RecursionError"))
        ),
        (
            RolloutResponse(
                trace_correlation_id="t", reward_info=RewardInfo(outcome_reward=1.0, details={"a": object()})
            ),
            no_reward(NOT_JSON.format("PydanticSerializationError")),
        ),
        (
            {"reward_info": {"outcome_reward": 1.0}, "trace": "words"},
            no_reward("what the rollout handler returned is no RolloutResponse; mend trace"),
        ),
    ],
)
def test_what_a_handler_returns_is_read_with_care(returned: Any, expected: Any) -> None:
    assert shown(response_of(returned, "t-1")) == expected


def test_numbers_beside_a_reward_that_does_not_count_are_not_passed_on() -> None:
    said = {"outcome_reward": 0.5, "outcome_objectives": {"reward": 0.5, "speed": 1.0}}
    response = response_of({"reward_info": said, "failure_cause": "sandbox_failed"}, "t-1")
    assert response.reward_info.outcome_objectives == {}
    assert response.reward_info.details == {"reported_reward": 0.5}


def test_all_else_that_a_handler_returns_is_passed_on() -> None:
    returned = {
        "reward_info": {"outcome_reward": 0.5, "outcome_objectives": {"speed": 1.0}, "event_rewards": [0.5], "more": 1},
        "trace": {"steps": []},
        "inference_url": "http://127.0.0.1:1/v1",
        "artifact": [{"content": "fn main() {}", "content_type": "text/x-rust", "metadata": {"n": 1}}],
        "metadata": {"agent": "codex"},
        "override_application_results": [],
    }
    response = response_of(returned, "t-1").model_dump(mode="json", exclude_defaults=True)
    expected = {**returned, "trace_correlation_id": "t-1", "reward_valid": True}
    assert response == expected


# served


def test_a_task_app_is_served_to_this_machine_only_on_a_port_that_is_free() -> None:
    with pytest.raises(ConfigError, match=r"host '0\.0\.0\.0' would offer"), serve_task_app(None, host="0.0.0.0"):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1"), serve_task_app(None, port=port):
            pass
