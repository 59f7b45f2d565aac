"""The routes of a task app: what they answer, to whom, and what they refuse; over HTTP where that matters."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request
from pydantic import SecretStr

from graftline.core.errors import ConfigError, DataError, HarborError
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.contract import RolloutRequest, TaskDescription, TaskInfo
from graftline.harbor.localapi.app import MAX_BODY_BYTES, create_local_api
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.served import serve_task_app
from graftline.harbor.refusal import RequestError
from tests.harbor_server import Fault, HarborServer, reward

KEY = {"X-API-Key": "env-key"}
ENVIRONMENT = {"ENVIRONMENT_API_KEY": "env-key"}


def instances(seeds: Sequence[int]) -> Iterator[TaskInfo | dict[str, Any]]:
    for seed in seeds:
        if seed < 3:
            yield TaskInfo(task=TaskDescription(id=f"t{seed}", name=f"Task {seed}"), task_metadata={"seed": seed})


async def rollout(request: RolloutRequest, fastapi_request: Request) -> dict[str, Any]:
    if request.seed >= 3:
        raise RequestError("unknown_seed", f"seed {request.seed} stands for no task; there are 0 to 2")
    return {"reward_info": {"outcome_reward": request.seed / 2}, "metadata": {"path": fastapi_request.url.path}}


class Client:
    """Asks an app in this process, as a client without a connection would."""

    def __init__(self, app: FastAPI, headers: Mapping[str, str] | None = None) -> None:
        self._app, self._headers = app, dict(headers or {})

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            headers = {**self._headers, **given.pop("headers", {})}
            async with httpx.AsyncClient(transport=transport, base_url="http://app") as http:
                return await http.request(method, path, headers=headers, **given)

        return asyncio.run(answer())

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.request("POST", path, **given)


def config(**settings: Any) -> LocalAPIConfig:
    given = {
        "app_id": "demo",
        "name": "Demo",
        "description": "Counts.",
        "provide_taskset_description": lambda: {"id": "demo", "num_tasks": 3},
        "provide_task_instances": instances,
        "rollout": rollout,
    }
    return LocalAPIConfig(**{**given, **settings})


def app_of(**settings: Any) -> FastAPI:
    return create_local_api(config(**settings), ENVIRONMENT)


@pytest.fixture(scope="module")
def client() -> Client:
    """Of the demo app, without a key."""
    return Client(app_of())


def problem(response: httpx.Response) -> tuple[int, str, str, Any]:
    body = response.json()
    assert [*body] == ["error"]
    return response.status_code, body["error"]["code"], body["error"]["message"], body["error"]["details"]


TASKS = [
    {
        "task": {"id": f"t{seed}", "name": f"Task {seed}", "description": None, "version": None},
        "dataset": {},
        "inference": {},
        "limits": {},
        "task_metadata": {"seed": seed},
    }
    for seed in range(3)
]


# over HTTP


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of the demo app, started once."""
    with serve_task_app(app_of()) as url:
        yield url


def test_a_rollout_over_http(served: str) -> None:
    body = {"trace_correlation_id": "t-1", "env": {"seed": 1}, "synth_base_url": "kept"}
    response = httpx.post(f"{served}/rollout", json=body, headers=KEY)
    assert response.status_code == 200
    assert response.json() == {
        "trace_correlation_id": "t-1",
        "reward_info": {
            "outcome_reward": 0.5,
            "outcome_objectives": {"reward": 0.5},
            "event_rewards": None,
            "details": {},
        },
        "success_status": "success",
        "status_detail": None,
        "failure_cause": None,
        "reward_valid": True,
        "trace": None,
        "inference_url": None,
        "artifact": None,
        "metadata": {"path": "/rollout"},
    }


def test_rollouts_over_http_go_on_side_by_side() -> None:
    arrived: list[int] = []

    async def meet(request: RolloutRequest) -> dict[str, Any]:
        # each waits for the other
        arrived.append(request.seed)
        while len(arrived) < 2:
            await asyncio.sleep(0)
        return {"reward_info": {"outcome_reward": 1.0}}

    async def both(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, headers=KEY, timeout=20) as http:
            bodies = [{"trace_correlation_id": f"t-{seed}", "env": {"seed": seed}} for seed in range(2)]
            return await asyncio.gather(*(http.post("/rollout", json=body) for body in bodies))

    with serve_task_app(app_of(rollout=meet)) as url:
        assert [response.json()["trace_correlation_id"] for response in asyncio.run(both(url))] == ["t-0", "t-1"]


def test_an_app_that_does_not_start_says_so(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def fails(app: FastAPI) -> AsyncIterator[None]:
        raise DataError("no tasks")
        yield

    with (
        caplog.at_level(logging.CRITICAL, "uvicorn.error"),
        pytest.raises(HarborError, match="the app did not start"),
        serve_task_app(FastAPI(lifespan=fails)),
    ):
        pass


# keys


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/health"), ("GET", "/info"), ("GET", "/task_info"), ("POST", "/rollout"), ("POST", "/done")],
)
def test_every_route_but_the_root_needs_the_key(client: Client, method: str, path: str) -> None:
    response = client.request(method, path, headers={"X-API-Key": "env-ke"}, content=b"no JSON")
    assert problem(response) == (
        401,
        "unauthorized",
        "the key is missing or wrong; send it as X-API-Key or as a bearer token",
        {},
    )
    assert response.headers["www-authenticate"] == "Bearer"
    assert "env-ke" not in response.text


def test_an_app_without_a_key_answers_503_until_it_has_one() -> None:
    environment: dict[str, str] = {}
    client = Client(create_local_api(config(), environment), KEY)
    assert problem(client.get("/health"))[:2] == (503, "no_key")
    environment |= ENVIRONMENT
    assert client.get("/health").status_code == 200


def test_a_key_of_the_config_counts_beside_that_of_the_environment() -> None:
    client = Client(app_of(api_key=SecretStr("own")))
    assert [client.get("/health", headers={"X-API-Key": key}).status_code for key in ("own", "env-key", "x")] == [
        200,
        200,
        401,
    ]


def test_an_app_may_need_no_key() -> None:
    client = Client(create_local_api(config(require_api_key=False), {}))
    assert client.post("/done").json() == {"ok": True, "service": "demo"}


# what there is


def test_what_all_tasks_have_in_common() -> None:
    about = {"task": {"id": "demo", "name": "All"}, "limits": {"max_turns": 5}}
    client = Client(app_of(base_task_info=about), headers=KEY)
    info = client.get("/info").json()
    assert info["service"].pop("version")
    assert info == {
        "service": {
            "app_id": "demo",
            "name": "Demo",
            "description": "Counts.",
            "execution_backend": "local",
            "task": {"id": "demo", "name": "All", "description": None, "version": None},
        },
        "dataset": {},
        "inference": {},
        "limits": {"max_turns": 5},
        "task_metadata": {},
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"taskset": {"id": "demo", "num_tasks": 3}}),
        ("?seed=2", TASKS[2]),
        ("?seeds=0", TASKS[0]),
        ("?seeds=2&seeds=0", [TASKS[2], TASKS[0]]),
        ("?seed=1&seeds=1", [TASKS[1], TASKS[1]]),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_tasks_are_asked_for_by_seed(query: str, expected: Any, is_async: bool) -> None:
    async def description() -> dict[str, Any]:
        return {"id": "demo", "num_tasks": 3}

    async def tasks(seeds: Sequence[int]) -> list[Any]:
        return list(instances(seeds))

    later = {"provide_taskset_description": description, "provide_task_instances": tasks}
    assert Client(app_of(**(later if is_async else {})), KEY).get(f"/task_info{query}").json() == expected


def test_a_seed_that_stands_for_no_task_is_not_taken_for_another(client: Client) -> None:
    status, code, message, _ = problem(client.get("/task_info?seeds=0&seeds=2147483647", headers=KEY))
    assert (status, code) == (404, "unknown_seed")
    assert message == "of 2 seeds, 1 stand for a task; ask for seeds of the taskset"
    body = {"trace_correlation_id": "t", "env": {"seed": 3}}
    expected = (404, "unknown_seed", "seed 3 stands for no task; there are 0 to 2", {})
    assert problem(client.post("/rollout", json=body, headers=KEY)) == expected
    many = "&".join(f"seeds={seed}" for seed in range(1001))
    assert problem(client.get(f"/task_info?{many}", headers=KEY))[0] == 422


@pytest.mark.parametrize("value", ["-1", "2147483648", "1.5", "NaN", "one", "", "0x1", "9" * 5000, "%00", "true"])
@pytest.mark.parametrize("name", ["seed", "seeds"])
def test_what_is_no_seed_is_refused_without_saying_it_back(client: Client, name: str, value: str) -> None:
    status, code, message, details = problem(client.get(f"/task_info?{name}={value}", headers=KEY))
    assert (status, code, message) == (
        422,
        "invalid_request",
        f"the request does not fit at query.{name}.0; see details",
    )
    assert [fault["where"] for fault in details["faults"]] == [f"query.{name}.0"]


def test_an_app_without_providers_describes_itself_and_knows_no_seeds() -> None:
    with pytest.raises(ConfigError, match="task app 'demo': has no way to do rollouts"):
        app_of(rollout=None)
    client = Client(app_of(provide_taskset_description=None, provide_task_instances=None), headers=KEY)
    assert client.get("/task_info").json() == {"taskset": {"id": "demo", "name": "Demo", "description": "Counts."}}
    assert problem(client.get("/task_info?seed=0"))[:2] == (404, "no_tasks")


def test_a_provider_that_fails_is_an_error_that_quotes_only_our_own() -> None:
    def ours(seeds: Sequence[int]) -> list[Any]:
        raise HarborError("deployment 'd': has no instance of seed 0")

    def another(seeds: Sequence[int]) -> list[Any]:
        raise KeyError("sk-secret")

    said = []
    for provider in (ours, another):
        client = Client(app_of(provide_task_instances=provider))
        said.append(problem(client.get("/task_info?seed=0", headers=KEY))[:3])
    assert said == [
        (500, "failed", "deployment 'd': has no instance of seed 0"),
        (500, "failed", "the request failed; the log says where"),
    ]


# rollouts that are refused


@pytest.mark.parametrize(
    ("body", "code", "where"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b"\xff", "invalid_json", None),
        (b"[" * 100_000 + b"]" * 100_000, "invalid_json", None),
        (b'{"trace_correlation_id": "t", "policy": {"config": ' + b'{"a":' * 300 + b"1" + b"}" * 302, "invalid_json", None),
        (b'{"trace_correlation_id": "t", "env": {"config": {"a": NaN}}}', "invalid_json", None),
        (b'{"trace_correlation_id": "\\ud800"}', "invalid_json", None),
        (b"[]", "invalid_request", [""]),
        (b"{}", "invalid_request", ["trace_correlation_id"]),
        (b'{"trace_correlation_id": ""}', "invalid_request", ["trace_correlation_id"]),
        (b'{"trace_correlation_id": "sk-secret\\u0000"}', "invalid_request", ["trace_correlation_id"]),
        (b'{"trace_correlation_id": "t", "env": {"seed": "1"}}', "invalid_request", ["env.seed"]),
        (b'{"trace_correlation_id": "t", "env": {"seed": true}}', "invalid_request", ["env.seed"]),
        (b'{"trace_correlation_id": "t", "env": {"seed": -1}}', "invalid_request", ["env.seed"]),
        (b'{"trace_correlation_id": "t", "env": {"seed": 1e99}}', "invalid_request", ["env.seed"]),
        (b'{"trace_correlation_id": "t", "env": []}', "invalid_request", ["env"]),
        (b'{"trace_correlation_id": "t", "safety": {"max_time_s": 1e9}}', "invalid_request", ["safety.max_time_s"]),
        (b'{"trace_correlation_id": "t", "context_overrides": [{"preflight_script": "x"}]}', "preflight_refused", None),
    ],
)  # fmt: skip
def test_what_asks_for_no_rollout_is_refused_without_saying_it_back(
    client: Client, body: bytes, code: str, where: Any
) -> None:
    response = client.post("/rollout", content=body, headers=KEY)
    status, said, _, details = problem(response)
    assert (status, said) == (422, code)
    assert ([fault["where"] for fault in details["faults"]] if where else None) == where
    assert "sk-secret" not in response.text


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_body_that_is_too_large_is_not_read_to_its_end(client: Client, is_declared: bool) -> None:
    read = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(64):
            read += 1 << 20
            yield b" " * (1 << 20)

    content: Any = b" " * (MAX_BODY_BYTES + 1) if is_declared else pieces()
    response = client.post("/rollout", content=content, headers=KEY)
    assert problem(response) == (413, "too_large", "the body has more than 8388608 bytes; send less", {})
    assert read == (0 if is_declared else MAX_BODY_BYTES + (1 << 20))


@pytest.mark.parametrize("length", ["-1", "many", "9" * 5000, "8388609"])
def test_a_body_that_claims_an_absurd_length_is_not_read(client: Client, length: str) -> None:
    response = client.post("/rollout", content=b"", headers={**KEY, "Content-Length": length})
    assert problem(response)[:2] == (413, "too_large")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [("GET", "/nowhere", (404, "not_found")), ("PUT", "/rollout", (405, "method_not_allowed"))],
)
def test_other_routes_are_refused_in_the_same_form(client: Client, method: str, path: str, expected: Any) -> None:
    assert problem(client.request(method, path, headers=KEY))[:2] == expected


# in front of a deployment


def test_an_app_in_front_of_a_deployment_answers_with_its_rollouts(
    server: HarborServer, ref: HarborDeploymentRef
) -> None:
    server.outcome = lambda seed: reward(None, "sandbox_failed")
    client = Client(app_of(execution_backend="harbor", harbor=ref, rollout=None), KEY)
    # the deployment keeps the time
    body = {"trace_correlation_id": "t", "env": {"seed": 1}, "safety": {"max_time_s": 0.001}}
    ended = client.post("/rollout", json=body).json()
    assert (ended["success_status"], ended["failure_cause"]) == ("runtime_error", "sandbox_failed")
    assert (ended["reward_info"]["outcome_reward"], ended["metadata"]["rollout_id"]) == (None, "rol-1")
    server.fail("POST /api/harbor/rollouts", Fault(status=404))
    status, code, message, _ = problem(client.post("/rollout", json={**body, "env": {"seed": 9}}))
    assert (status, code) == (404, "refused")
    assert message.endswith("as the test has it")


def test_a_route_that_is_added_needs_the_key_too_and_is_refused_in_the_same_form() -> None:
    app = app_of()

    @app.get("/gone")
    async def gone() -> None:
        raise HTTPException(410, "it was here")

    client = Client(app, KEY)
    assert client.get("/gone", headers={"X-API-Key": "x"}).status_code == 401
    assert problem(client.get("/gone")) == (410, "refused", "it was here", {})


def test_the_openapi_document_says_what_is_sent_and_what_is_refused(client: Client) -> None:
    document = client.get("/openapi.json").json()
    answers = {
        f"{method} {path}": sorted(operation["responses"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert answers == {
        "get /": ["200"],
        "head /": ["200"],
        "get /health": ["200", "401", "503"],
        "get /info": ["200", "401", "503"],
        "get /task_info": ["200", "401", "404", "422", "503"],
        "post /rollout": ["200", "401", "404", "413", "422", "503"],
        "post /done": ["200", "401", "503"],
    }
    rollout = document["paths"]["/rollout"]["post"]
    assert rollout["requestBody"]["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/RolloutRequest"}}
    }
    assert (document["security"], document["paths"]["/"]["get"]["security"]) == ([{"bearer": []}, {"key": []}], [])
    wanted = {part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]}
    assert wanted <= {*document["components"]["schemas"]}
