"""Evaluations and prompt optimizations as jobs of the service."""

from typing import Any

import httpx
import pytest

from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import Execution, RolloutSpec
from tests.harbor_parts import Gate, deployed, half, service, until

AT = "/api/eval/jobs"
ENDED = ("completed", "completed_with_errors", "failed", "cancelled")


def finished(client: httpx.Client, **body: object) -> dict[str, Any]:
    """Return an evaluation of a deployment once it has ended, with its results."""
    job_id = client.post(AT, json={"deployment_id": deployed(client), **body}).json()["job_id"]
    until(client, f"{AT}/{job_id}", lambda view: view["status"] in ENDED)
    results: dict[str, Any] = client.get(f"{AT}/{job_id}/results").json()
    return results


def by_seed(box: RolloutSpec) -> Execution:
    """Reward a seed by a tenth of it."""
    return Execution(SuccessStatus.SUCCESS, box.request["seed"] / 10, cost_usd=0.25, tokens=10)


def test_an_evaluation_runs_every_seed_once(database_url: str) -> None:
    with service(database_url, by_seed) as client:
        found = deployed(client)
        url = f"http://harbor/api/harbor/deployments/{found}"
        asked = {
            "task_app_url": url,
            "seeds": [0, 1, 2, 3],
            "policy": {"model": "m"},
            "task_app_api_key": "secret-word",
        }
        job_id = client.post(AT, json=asked).json()["job_id"]
        view = until(client, f"{AT}/{job_id}", lambda view: view["status"] in ENDED)
        assert (view["status"], view["num_completed"], view["num_total"]) == ("completed", 4, 4)
        assert view["summary"]["mean_reward"] == pytest.approx(0.15)
        counts = {"n_valid": 4, "n_infra": 0, "n_total": 4, "coverage": 1.0, "total_cost_usd": 1.0, "total_tokens": 40}
        assert counts.items() <= view["summary"].items()
        results = client.get(f"{AT}/{job_id}/results").json()["results"]
        assert [(one["seed"], one["reward"]) for one in results] == [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3)]
        assert "secret-word" not in client.get(f"{AT}/{job_id}/results").text
        told = client.get(f"{AT}/{job_id}/events/stream").text.splitlines()
        assert [line for line in told if line.startswith(("id", "event"))] == [
            *("id: 5", "event: eval.progress", "id: 6", "event: eval.completed"),
        ]


def test_seeds_without_a_reward_are_left_out_of_the_mean_and_told_of(sqlite_url: str) -> None:
    def even(box: RolloutSpec) -> Execution:
        if box.request["seed"] % 2:
            return Execution(SuccessStatus.RUNTIME_ERROR, None, FailureCause.UNCLASSIFIED, "it broke")
        return Execution(SuccessStatus.SUCCESS, 1.0)

    with service(sqlite_url, even) as client:
        view = finished(client, seeds=[0, 1, 2, 3])
    assert view["status"] == "completed_with_errors"
    assert {"mean_reward": 1.0, "coverage": 0.5, "n_infra": 2, "total_cost_usd": None}.items() <= view[
        "summary"
    ].items()


def test_an_evaluation_never_runs_more_at_once_than_it_may(sqlite_url: str) -> None:
    gate = Gate()
    with service(sqlite_url, gate, rollouts_at_once=4) as client:
        found = deployed(client)
        job_id = client.post(AT, json={"deployment_id": found, "seeds": [0, 1, 2], "max_concurrent": 1}).json()[
            "job_id"
        ]
        until(client, f"{AT}/{job_id}", lambda view: len(gate.order) > 0)
        # what is taken next, when all of the job had been there to take
        other = {"trace_correlation_id": "other", "env": {"seed": 9}, "deployment_id": found}
        client.post("/api/harbor/rollouts", json=other)
        until(client, "/api/harbor/rollouts?status=running", lambda page: "other" in str(page))
        assert len(client.get("/api/harbor/rollouts?status=running").json()["rollouts"]) == 2
        gate.is_open.set()
        until(client, f"{AT}/{job_id}", lambda view: view["status"] == "completed")


@pytest.mark.parametrize(
    ("budget", "reason", "spent"),
    [
        ({"max_rollouts": 2}, "2 rollouts were started, which is what the budget allows", 2),
        ({"max_usd": 0.5}, "0.5 USD are spent, of 0.5", 2),
        ({"max_tokens": 25}, "30 tokens are spent, of 25", 3),
    ],
)
def test_a_job_ends_when_its_budget_is_used_up(
    sqlite_url: str, budget: dict[str, float], reason: str, spent: int
) -> None:
    with service(sqlite_url, by_seed) as client:
        view = finished(client, seeds=list(range(9)), budget=budget, max_concurrent=1)
    assert (view["status"], view["error"]) == ("completed_with_errors", f"its budget is used up: {reason}")
    assert [one["status"] for one in view["results"]] == ["completed"] * spent + ["cancelled"] * (9 - spent)
    assert {one["reward"] for one in view["results"][spent:]} == {None}


def test_a_budget_of_rollouts_begins_exactly_as_many_and_finishes_them(database_url: str) -> None:
    gate = Gate()
    with service(database_url, gate, rollouts_at_once=8) as client:
        asked = {"deployment_id": deployed(client), "seeds": list(range(10)), "budget": {"max_rollouts": 3}}
        job_id = client.post(AT, json=asked).json()["job_id"]
        # the budget is used up while all that it paid for runs
        until(client, f"{AT}/{job_id}", lambda view: view["error"] and len(gate.order) == 3)
        assert client.get(f"{AT}/{job_id}").json()["status"] == "running"
        gate.is_open.set()
        view = until(client, f"{AT}/{job_id}", lambda view: view["status"] in ENDED)
        reason = "its budget is used up: 3 rollouts were started, which is what the budget allows"
        assert (view["status"], view["error"]) == ("completed_with_errors", reason)
        assert (view["summary"]["n_valid"], view["summary"]["mean_reward"]) == (3, 0.5)
        results = client.get(f"{AT}/{job_id}/results").json()["results"]
        assert [(one["status"], one["reward"]) for one in results] == [("completed", 0.5)] * 3 + [
            ("cancelled", None)
        ] * 7
        assert len(gate.order) == 3


@pytest.mark.parametrize("budget", [{"max_usd": 0.25}, {"max_tokens": 10}])
def test_what_runs_when_a_budget_is_spent_is_finished_and_counted(sqlite_url: str, budget: dict[str, float]) -> None:
    second = Gate()

    def outcomes(box: RolloutSpec) -> Execution:
        return half(box) if box.request["seed"] == 0 else second(box)

    with service(sqlite_url, outcomes, rollouts_at_once=2) as client:
        asked = {"deployment_id": deployed(client), "seeds": list(range(5)), "budget": budget, "max_concurrent": 2}
        job_id = client.post(AT, json=asked).json()["job_id"]
        assert until(client, f"{AT}/{job_id}", lambda view: view["error"])["status"] == "running"
        second.is_open.set()
        view = until(client, f"{AT}/{job_id}", lambda view: view["status"] in ENDED)
        results = client.get(f"{AT}/{job_id}/results").json()["results"]
        assert [one["status"] for one in results] == ["completed"] * 2 + ["cancelled"] * 3
        assert (view["status"], view["summary"]["n_valid"]) == ("completed_with_errors", 2)


def test_a_cost_that_nobody_says_ends_a_job_with_a_budget(sqlite_url: str) -> None:
    with service(sqlite_url, lambda box: Execution(SuccessStatus.SUCCESS, 1.0)) as client:
        view = finished(client, seeds=[0, 1, 2], budget={"max_usd": 5.0}, max_concurrent=1)
    assert "1 attempts did not say how many USD they used" in view["error"]
    assert view["summary"]["n_valid"] == 1


def test_a_cancelled_evaluation_keeps_what_has_ended(database_url: str) -> None:
    gate = Gate()
    with service(database_url, gate, rollouts_at_once=1) as client:
        found = deployed(client)
        job_id = client.post(AT, json={"deployment_id": found, "seeds": [0, 1, 2]}).json()["job_id"]
        # a rollout is said to run just before its box does
        until(client, "/api/harbor/rollouts?status=running", lambda page: len(page["rollouts"]) == len(gate.order) == 1)
        assert client.post(f"{AT}/{job_id}/cancel").json()["status"] == "cancelled"
        gate.is_open.set()
        until(client, "/api/harbor/rollouts?status=running", lambda page: not page["rollouts"])
        results = client.get(f"{AT}/{job_id}/results").json()["results"]
        assert [one["status"] for one in results[1:]] == ["cancelled", "cancelled"]
        assert len(gate.order) == 1


def test_the_same_key_is_the_same_job(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        found = deployed(client)
        asked = {"deployment_id": found, "seeds": [0], "idempotency_key": "key"}
        first, again = (client.post(AT, json=asked).json()["job_id"] for _ in range(2))
        assert first == again
        answer = client.post(AT, json={**asked, "seeds": [1]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "idempotency_mismatch")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"seeds": [1, 1]}, 422, "seeds"),
        ({"deployment_id": None, "task_app_url": "http://elsewhere/app"}, 422, "task_app_url"),
        ({"deployment_id": "none"}, 404, "not_found"),
    ],
)
def test_an_evaluation_that_does_not_fit_is_refused(
    sqlite_url: str, change: dict[str, object], status: int, code: str
) -> None:
    with service(sqlite_url, half) as client:
        found = deployed(client)
        answer = client.post(AT, json={"deployment_id": found, "seeds": [0], **change})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert client.get("/api/harbor/rollouts").json()["rollouts"] == []


def test_a_prompt_optimization_is_kept_until_it_is_taken_or_cancelled(sqlite_url: str) -> None:
    at = "/api/prompt-learning/online/jobs"
    with service(sqlite_url) as client:
        body = {"prompt_learning": {"algorithm": "gepa"}}
        job = client.post(at, json={"algorithm": "gepa", "auto_start": True, "config_body": body}).json()
        assert client.get(f"{at}/{job['job_id']}").json()["status"] == "pending"
        assert client.post(f"{at}/{job['job_id']}/cancel").json()["status"] == "cancelled"
        told = client.get(f"{at}/{job['job_id']}/events/stream", headers={"Last-Event-ID": "1"}).text
        assert [line for line in told.splitlines() if line.startswith("event")] == ["event: prompt_learning.cancelled"]
        refused = client.post(at, json={"config_body": {}})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
        assert client.get(f"{AT}/{job['job_id']}").status_code == 404
