"""Prompt optimizations that the service carries out, on its own deployments."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graftline.core.secrets import open_secrets
from graftline.harbor.contract import SuccessStatus
from graftline.harbor.executors.base import Execution, RolloutSpec
from graftline.prompts.service_optimizer import ServiceOptimizer
from tests.harbor_parts import deployed, service, until
from tests.optimized_app import helped, wanted

AT = "/api/prompt-learning/online/jobs"
_ENDED = ("completed", "failed", "cancelled")


class Asked:
    """Rewards boxes by their prompt; from a number of them on, it keeps them until it is let go."""

    def __init__(self, waits_from: int | None = None) -> None:
        self.pairs: list[tuple[str, int]] = []
        self.may_go, self.is_waiting = threading.Event(), threading.Event()
        self.waits_from = waits_from

    def __call__(self, box: RolloutSpec) -> Execution:
        prompt, seed = box.request["policy"]["config"]["prompt"], box.request["env"]["seed"]
        if self.waits_from is not None and len(self.pairs) >= self.waits_from:
            self.is_waiting.set()
            assert self.may_go.wait(240)
        self.pairs.append((prompt, seed))
        details = {"feedback": f"The pattern `x{seed}` matches nothing."}
        return Execution(SuccessStatus.SUCCESS, helped(prompt, seed), details=details, cost_usd=0.001, tokens=10)

    def twice(self) -> list[tuple[str, int]]:
        return [pair for pair, times in Counter(self.pairs).items() if times > 1]


@pytest.fixture
def optimizer(tmp_path: Path) -> ServiceOptimizer:
    return ServiceOptimizer(open_secrets({}, tmp_path))


def body(deployment: str, **more: Any) -> dict[str, Any]:
    table = wanted(more.pop("gepa", None), harbor={"deployment_id": deployment}, **more).body("")
    return {"algorithm": "gepa", "auto_start": True, "config_body": {"prompt_learning": table}}


def kinds(text: str) -> list[str]:
    return [line.removeprefix("event: prompt_learning.") for line in text.splitlines() if line.startswith("event")]


# on both databases below, where one also goes on
def test_the_service_carries_out_an_optimization_and_tells_what_it_found(
    sqlite_url: str, optimizer: ServiceOptimizer
) -> None:
    asked = Asked()
    with service(sqlite_url, asked, optimizer, rollouts_at_once=8) as client:
        job = client.post(AT, json=body(deployed(client))).json()
        at = f"{AT}/{job['job_id']}"
        view = until(client, at, lambda view: view["status"] in _ENDED)
        outcome = client.get(f"{at}/results").json()["outcome"]
        told = kinds(client.get(f"{at}/events/stream").text)

    assert (view["status"], view["error"]) == ("completed", None)
    assert view["num_completed"] == outcome["rollouts"] == len(asked.pairs)
    assert asked.twice() == []
    best = outcome["prompts"][outcome["best"]]
    assert view["best_prompt"] == best["texts"]
    assert view["mean_reward"] == pytest.approx(sum(best["validation"].values()) / 6)
    assert (told[0], told[1], told[-1]) == ("created", "running", "succeeded")
    assert told.count("candidate.evaluated") == len(outcome["prompts"]) > 1


def test_a_cancelled_optimization_goes_on_where_it_was(sqlite_url: str, optimizer: ServiceOptimizer) -> None:
    asked = Asked(waits_from=30)
    with service(sqlite_url, asked, optimizer, rollouts_at_once=4) as client:
        job = client.post(AT, json=body(deployed(client))).json()
        at = f"{AT}/{job['job_id']}"
        assert asked.is_waiting.wait(240)
        assert client.post(f"{at}/cancel").json()["status"] == "cancelled"
        asked.may_go.set()
        asked.waits_from = None
        # the worker lets go of it first, and tells of nothing more
        until(client, f"{at}/results", lambda view: view["outcome"] is not None)
        assert kinds(client.get(f"{at}/events/stream").text)[-1] == "cancelled"
        paid = set(asked.pairs[:30])

        assert client.post(f"{at}/resume").json()["status"] in ("pending", "running")
        view = until(client, at, lambda view: view["status"] in _ENDED)

    assert (view["status"], view["error"]) == ("completed", None)
    assert [pair for pair in asked.twice() if pair in paid] == []


def test_a_service_that_starts_again_goes_on_and_pays_nothing_twice(
    database_url: str, optimizer: ServiceOptimizer
) -> None:
    first = Asked(waits_from=25)
    with service(database_url, first, optimizer, rollouts_at_once=4) as client:
        at = f"{AT}/{client.post(AT, json=body(deployed(client))).json()['job_id']}"
        assert first.is_waiting.wait(240)
        threading.Timer(0.3, first.may_go.set).start()
    second = Asked()
    with service(database_url, second, optimizer, rollouts_at_once=8) as client:
        view = until(client, at, lambda view: view["status"] in _ENDED)
        told = kinds(client.get(f"{at}/events/stream").text)

    assert (view["status"], view["error"]) == ("completed", None)
    assert not set(first.pairs[:25]) & set(second.pairs)
    assert second.twice() == []
    assert (told.count("created"), told.count("running"), told.count("succeeded")) == (1, 1, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gepa": {"evaluation": {"train_seeds": []}}}, "names no train_seeds"),
        ({"initial_prompt": {"messages": []}}, "has no messages"),
        ({"gepa": {"proposer_type": "gepa"}}, "the service has none; take 'offline'"),
        (
            {"gepa": {"proposer_type": "gepa", "proposer": {"base_url": "http://10.0.0.1/v1", "model": "m"}}},
            "names a model by its address",
        ),
        ({"harbor": None, "task_app_url": "http://127.0.0.1:1/app"}, "names no deployment of this service"),
        ({"gepa": {"rollout": {"bugdet": 1}}}, "did you mean 'budget'"),
    ],
)
def test_a_job_that_the_service_cannot_carry_out_is_refused(
    sqlite_url: str, optimizer: ServiceOptimizer, change: dict[str, Any], said: str
) -> None:
    with service(sqlite_url, Asked(), optimizer) as client:
        sent = body(deployed(client))
        table = sent["config_body"]["prompt_learning"]
        for key, value in change.items():
            if key == "gepa":
                for part, values in value.items():
                    table["gepa"][part] = (
                        {**table["gepa"].get(part, {}), **values} if isinstance(values, dict) else values
                    )
            elif value is None:
                del table[key]
            else:
                table[key] = value
        answer = client.post(AT, json=sent)

        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "prompt_learning")
        assert said in answer.json()["error"]["message"]
        assert client.get("/api/harbor/rollouts").json()["rollouts"] == []


def test_a_deployment_that_is_not_there_is_not_found(sqlite_url: str, optimizer: ServiceOptimizer) -> None:
    with service(sqlite_url, Asked(), optimizer) as client:
        assert client.post(AT, json=body("none")).status_code == 404
