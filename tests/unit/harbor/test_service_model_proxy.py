"""Rollouts whose agents ask their model by the proxy of the service: keys, cost, budgets, trajectories, rows."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from graftline.core.errors import ConfigError, HarborError
from graftline.core.secrets import Secrets
from graftline.harbor.client import HarborClient
from graftline.harbor.contract import SuccessStatus
from graftline.harbor.executors.base import Execution, MemoryExecutorConfig, RolloutSpec
from graftline.harbor.messages import EvalResultsAnswer
from graftline.harbor.model_proxy.calls import read_calls
from graftline.harbor.model_proxy.exports import export_rollouts
from graftline.harbor.model_proxy.proxy import ModelProxyConfig, serve_model_proxy
from graftline.harbor.model_proxy.trajectories import training_rows
from graftline.harbor.service.serve import HarborSettings, serve_in_thread
from graftline.llm.fleet import Actor, Fleet, Price
from tests.harbor_parts import KEY, WITHIN_S, deployed, service, until
from tests.streaming_model import StreamingModel

PRICE = Price(prompt_usd=1_000_000, completion_usd=10_000_000)
TOOL_CALL = {"name": "run", "arguments": '{"command": "ls"}'}
ASKED = [{"role": "system", "content": "Work"}, {"role": "user", "content": "Fix it"}]
Outcome = Callable[[RolloutSpec], Execution]


def ask(spec: RolloutSpec, messages: list[Any], **more: Any) -> httpx.Response:
    """Ask as an agent in a box does, by what the box has."""
    key = spec.secrets["OPENAI_API_KEY"]
    assert spec.overriding_vars["OPENAI_BASE_URL"] == spec.request["inference_url"]
    body = {"model": spec.request["params"]["model"], "messages": messages, **more}
    url = f"{spec.request['inference_url']}/chat/completions"
    return httpx.post(url, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=WITHIN_S, trust_env=False)


def two_turns(spec: RolloutSpec) -> Execution:
    """An agent that calls a tool, and answers once it has seen what came of it."""
    answer = ask(spec, ASKED).json()["choices"][0]["message"]
    ask(spec, [*ASKED, answer, {"role": "tool", "tool_call_id": "call-1", "content": "a.py"}], stream=True)
    return Execution(SuccessStatus.SUCCESS, 0.5)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[httpx.Client, str]]]:
    with ExitStack() as stack:

        def serve_outcomes(
            outcomes: Outcome, model: StreamingModel | None = None, proxy: Mapping[str, Any] = {}, **settings: Any
        ) -> tuple[httpx.Client, str]:
            served = stack.enter_context(model or StreamingModel(tool_call=TOOL_CALL))
            fleet = Fleet(engine="vllm", model="m", price=PRICE, actors=(Actor(name="a", url=served.url),))
            config = ModelProxyConfig(fleet="f", **proxy)
            proxied = stack.enter_context(serve_model_proxy(config, fleet, None, tmp_path / "calls"))
            url = f"sqlite:///{tmp_path / 'harbor.sqlite'}"
            client = stack.enter_context(service(url, outcomes, proxy=proxied, **settings))
            return client, deployed(client, metadata={"agent": "codex"})

        yield serve_outcomes


def rollout(client: httpx.Client, deployment: str, name: str = "r", **policy: Any) -> dict[str, Any]:
    body = {"trace_correlation_id": name, "env": {"seed": 0}, "policy": {"config": policy}, "deployment_id": deployment}
    created = client.post("/api/harbor/rollouts", json=body).json()
    ended = ("completed", "failed", "cancelled")
    view: dict[str, Any] = until(
        client, f"/api/harbor/rollouts/{created['rollout_id']}", lambda view: view["status"] in ended
    )
    return view


def test_a_rollout_costs_what_the_proxy_counted_and_leaves_a_trajectory(serve: Any) -> None:
    client, deployment = serve(two_turns)
    view = rollout(client, deployment)
    assert (view["status"], view["reward"], view["error"]) == ("completed", 0.5, None)
    # twice 3 tokens asked and 2 answered, at 1 and 10 USD
    assert (view["tokens"], view["cost_usd"]) == (10, 46.0)
    assert view["lock"]["agent"]["model"] == "m"
    assert "sk-that-no-box-may-see" not in json.dumps(view)
    trace = view["response"]["trace"]
    assert trace["schema_version"] == "ATIF-v1.8"
    assert trace["agent"]["name"] == "codex"
    assert [step["source"] for step in trace["steps"]] == ["system", "user", "agent", "agent"]
    assert [step["step_id"] for step in trace["steps"]] == [1, 2, 3, 4]
    first, second = trace["steps"][2:]
    assert first["tool_calls"] == [{"tool_call_id": "call-1", "function_name": "run", "arguments": {"command": "ls"}}]
    assert first["observation"] == {"results": [{"source_call_id": "call-1", "content": "a.py"}]}
    assert first["metrics"]["completion_token_ids"] == [21, 22]
    assert first["metrics"]["logprobs"] == [-0.5, -0.5]
    assert (second["message"], second["llm_call_count"]) == ("Hello", 1)
    assert trace["final_metrics"] == {
        "total_prompt_tokens": 6,
        "total_completion_tokens": 4,
        "total_cached_tokens": 0,
        "total_cost_usd": 46.0,
        "total_steps": 4,
    }


def test_the_calls_of_a_rollout_are_rows_to_train_on(serve: Any) -> None:
    client, deployment = serve(two_turns)
    view = rollout(client, deployment)
    rows = client.get(f"/api/harbor/rollouts/{view['rollout_id']}/calls").json()["calls"]
    calls = [*read_calls(rows, "the service")]
    first, second = training_rows(calls, view)
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant"]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert (second["reward"], second["teacher"], second["step"], second["attempt"]) == (0.5, "codex", 2, 1)
    assert (second["token_ids"], second["logprobs"]) == ((21, 22), (-0.5, -0.5))
    unknown = [row["reward"] for row in training_rows(calls, {**view, "reward_valid": False})]
    assert unknown == [None, None]
    assert client.get("/api/harbor/rollouts/rol_none/calls").status_code == 404


def test_an_outage_of_the_model_is_tried_again_and_never_a_zero(serve: Any) -> None:
    model = StreamingModel(["Hi"])
    model.dies_after = 0
    attempts: list[int] = []

    def give_up(spec: RolloutSpec) -> Execution:
        attempts.append(spec.attempt)
        if spec.attempt == 2:
            model.dies_after = None
        with pytest.raises(httpx.RemoteProtocolError) if spec.attempt == 1 else ExitStack():
            ask(spec, ASKED, stream=True)
        return Execution(SuccessStatus.SUCCESS, 0.0)

    client, deployment = serve(give_up, model, backoff_s=0.001)
    view = rollout(client, deployment)
    assert attempts == [1, 2]
    first, second = view["attempts"]
    assert (first["reward"], first["failure_cause"]) == (None, "model_provider_failed")
    assert "broke the connection off" in first["error"]
    assert (second["reward"], view["reward"], view["reward_valid"]) == (0.0, 0.0, True)


def test_a_model_that_is_not_served_is_refused_before_a_box_is_made(serve: Any) -> None:
    client, deployment = serve(two_turns)
    view = rollout(client, deployment, model="gpt-4o-mini")
    assert (view["status"], view["failure_cause"]) == ("failed", "unclassified")
    assert view["error"] == "the model 'gpt-4o-mini' is not served here; served: m"


def test_a_budget_ends_the_rollouts_that_run_when_it_is_used_up(serve: Any) -> None:
    def ask_on(spec: RolloutSpec) -> Execution:
        while ask(spec, ASKED).status_code == 200:
            pass
        return Execution(SuccessStatus.SUCCESS, 1.0)

    client, deployment = serve(ask_on)
    body = {"deployment_id": deployment, "seeds": [0, 1], "max_concurrent": 1, "budget": {"max_tokens": 12}}
    job = client.post("/api/eval/jobs", json=body).json()["job_id"]
    open_statuses = ("pending", "running")
    content = until(client, f"/api/eval/jobs/{job}/results", lambda view: view["status"] not in open_statuses)
    results = EvalResultsAnswer.model_validate(content).results
    assert [(result.status, result.reward) for result in results] == [("cancelled", None), ("cancelled", None)]
    assert results[0].error == "its budget is used up: the job has used 15 tokens, of 12"
    assert results[0].tokens == 15


def test_the_budget_of_a_rollout_ends_the_agent_and_what_it_left_counts(serve: Any) -> None:
    def ask_on(spec: RolloutSpec) -> Execution:
        while ask(spec, ASKED).status_code == 200:
            pass
        return Execution(SuccessStatus.SUCCESS, 0.25)

    client, deployment = serve(ask_on, proxy={"limits": {"max_calls": 2}})
    view = rollout(client, deployment)
    assert (view["status"], view["reward"], view["failure_cause"]) == ("completed", 0.25, "agent_exhausted_budget")
    assert view["error"] == "the rollout has used 2 calls, of 2"


def test_an_evaluation_is_exported_as_trials_and_rows(serve: Any, tmp_path: Path) -> None:
    client, deployment = serve(two_turns)
    job = client.post("/api/eval/jobs", json={"deployment_id": deployment, "seeds": [0, 1]}).json()["job_id"]
    until(client, f"/api/eval/jobs/{job}", lambda view: view["status"] == "completed")
    folders = export_rollouts(HarborClient(str(client.base_url), KEY), job, tmp_path / "out")
    assert all((folder / "agent" / "trajectory.json").is_file() for folder in folders)
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text("utf-8").splitlines()]
    assert [(row["rollout_id"], row["step"]) for row in rows] == [
        (folder.name, step) for folder in folders for step in (1, 2)
    ]
    assert [row["logprobs"] for row in rows] == [[-0.5, -0.5]] * 4


def test_a_rollout_whose_calls_were_not_to_be_had_can_be_exported_again(serve: Any, tmp_path: Path) -> None:
    class Broken(HarborClient):
        def request(self, method: str, path: str, *args: Any, **more: Any) -> Any:
            if path.endswith("/calls"):
                raise HarborError("the service is away")
            return super().request(method, path, *args, **more)

    client, deployment = serve(two_turns)
    rollout_id = rollout(client, deployment)["rollout_id"]
    with pytest.raises(HarborError, match="is away"):
        export_rollouts(Broken(str(client.base_url), KEY), rollout_id, tmp_path)
    [folder] = export_rollouts(HarborClient(str(client.base_url), KEY), rollout_id, tmp_path)
    assert (folder.name, len((tmp_path / "rows.jsonl").read_bytes().splitlines())) == (rollout_id, 2)


def test_a_service_serves_the_proxy_of_a_fleet_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "vllm_actors.yaml").write_text(
        "fleets:\n  f:\n    engine: service\n    model: m\n    actors:\n      - {name: a, url: 'http://127.0.0.1:9'}\n",
        "utf-8",
    )
    settings = HarborSettings(port=0, executor=MemoryExecutorConfig(), proxy=ModelProxyConfig(fleet="f"))
    with serve_in_thread(settings, tmp_path / "files", Secrets([]), configs=tmp_path):
        pass
    unknown = settings.model_copy(update={"proxy": ModelProxyConfig(fleet="g")})
    with pytest.raises(ConfigError, match="fleet 'g' is unknown; known: f"):
        serve_in_thread(unknown, tmp_path / "files", Secrets([]), configs=tmp_path).__enter__()
    with pytest.raises(ConfigError, match="there is no configs/vllm_actors"):
        serve_in_thread(settings, tmp_path / "files", Secrets([])).__enter__()
