"""Rollouts of the service: what is answered, what is kept, whose turn it is; on both databases where that matters."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from graftline.core.errors import DataError
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import Execution, RolloutSpec
from graftline.harbor.service import queue
from graftline.harbor.service.database import Database
from graftline.harbor.service.tables import rollouts
from tests.harbor_parts import Gate, deployed, half, service, until

AT = "/api/harbor/rollouts"


def rollout(correlation_id: str, seed: int = 0, **more: object) -> dict[str, object]:
    return {"trace_correlation_id": correlation_id, "env": {"seed": seed}, **more}


def ran(client: httpx.Client, at: str = "", **body: object) -> tuple[Any, Any]:
    """Return how a rollout is answered when it has ended, and how it is shown."""
    place = at or f"/api/harbor/deployments/{deployed(client)}/rollout"
    answer = client.post(place, json=body or rollout("a"))
    assert answer.status_code == 200, answer.text
    return answer.json(), client.get(f"{AT}/{answer.json()['metadata']['rollout_id']}").json()


def queued(client: httpx.Client, deployment: str, name: str) -> str:
    """Return the id of a rollout that is queued."""
    return str(client.post(AT, json={**rollout(name), "deployment_id": deployment}).json()["rollout_id"])


def test_a_rollout_is_answered_when_it_has_ended(database_url: str) -> None:
    with service(database_url) as client:
        said, view = ran(client, **rollout("first", 3))
    assert said["reward_info"]["outcome_reward"] == said["metrics"]["reward_mean"] == 0.5
    assert (said["trace_correlation_id"], said["success_status"], said["success"]) == ("first", "success", True)
    assert (said["reward_valid"], said["failure_cause"], said["error"]) == (True, None, None)
    shown = {"status": "completed", "reward": 0.5, "seed": 3, "cost_usd": 0.25, "tokens": 10}
    assert shown.items() <= view.items()
    assert [(one["number"], one["reward"]) for one in view["attempts"]] == [(1, 0.5)]
    assert view["lock"]["limits_requested"]["timeout_s"] == 300


def test_a_box_is_given_what_the_first_runners_read(sqlite_url: str) -> None:
    boxes: list[RolloutSpec] = []

    def keep(box: RolloutSpec) -> Execution:
        boxes.append(box)
        return half(box)

    with service(sqlite_url, keep) as client:
        found = deployed(client, metadata={"agent_type": "codex"}, env_vars={"MODE": "a"})
        policy = {"config": {"model": "m", "inference_url": "http://model"}}
        overrides = [{"override_id": "o", "file_artifacts": {"notes.md": "text"}, "env_vars": {"MODE": "b"}}]
        asked = rollout("first", 3, policy=policy, safety={"max_time_s": 60}, context_overrides=overrides)
        said = client.post(f"/api/harbor/deployments/{found}/rollout", json=asked).json()
        assert said["override_application_results"] == [{"override_id": "o", "status": "applied"}]
        [box] = boxes
        given = {
            name: box.request[name] for name in ("trace_correlation_id", "seed", "task_id", "inference_url", "params")
        }
        assert given == {
            "trace_correlation_id": "first",
            "seed": 3,
            "task_id": "3",
            "inference_url": "http://model",
            "params": {"agent_type": "codex", "model": "m", "inference_url": "http://model"},
        }
        assert (box.request["limits"]["timeout_s"], box.limits.timeout_s) == (60, 60)
        assert (box.files, box.env_vars) == ({"notes.md": "text"}, {"MODE": "a"})
        assert box.overriding_vars == {"MODE": "b"}


def test_the_first_clients_shape_is_the_same_rollout(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        asked = {"deployment_id": deployed(client), "trace_correlation_id": "old", "seed": 2, "params": {"model": "m"}}
        said, view = ran(client, "/api/harbor/rollout", **asked)
    assert (said["metrics"]["reward_mean"], view["seed"]) == (0.5, 2)


def test_a_rollout_that_is_asked_for_twice_runs_once(database_url: str) -> None:
    ran: list[str] = []

    def count(box: RolloutSpec) -> Execution:
        ran.append(box.rollout_id)
        return half(box)

    with service(database_url, count) as client:
        found = deployed(client)
        at = f"/api/harbor/deployments/{found}/rollout"
        with ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(lambda _: client.post(at, json=rollout("same")), range(6)))
        assert [answer.status_code for answer in answers] == [200] * 6
        assert len({answer.json()["metadata"]["rollout_id"] for answer in answers}) == 1
        assert len(ran) == 1


def test_a_key_that_is_used_for_something_else_is_refused(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        found = deployed(client)
        at = f"/api/harbor/deployments/{found}/rollout"
        client.post(at, json=rollout("same", 1))
        answer = client.post(at, json=rollout("same", 2))
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "idempotency_mismatch")
        named = {"Idempotency-Key": "key"}
        assert client.post(at, json=rollout("a", 1), headers=named).status_code == 200
        assert client.post(at, json=rollout("b", 1), headers=named).status_code == 422


def test_what_takes_long_is_answered_by_202_and_read_later(sqlite_url: str) -> None:
    gate = Gate()
    with service(sqlite_url, gate) as client:
        found = deployed(client)
        at = f"/api/harbor/deployments/{found}/rollout"
        for header, name in (("respond-async", "a"), ("wait=0", "b")):
            answer = client.post(at, json=rollout(name), headers={"Prefer": header})
            assert (answer.status_code, answer.json()["response"]) == (202, None)
        created = client.post(AT, json={**rollout("c"), "deployment_id": found})
        assert created.status_code == 202
        gate.is_open.set()
        view = until(client, created.headers["Location"], lambda view: view["status"] == "completed")
        assert view["response"]["reward_info"]["outcome_reward"] == 0.5


def test_events_tell_all_and_go_on_after_the_last_one_seen(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        at = f"{AT}/{ran(client)[1]['rollout_id']}/events"
        kinds = [line for line in client.get(at).text.splitlines() if line.startswith(("id", "event"))]
        later = client.get(at, headers={"Last-Event-ID": "3"}).text
    assert kinds == [
        *("id: 1", "event: queued", "id: 2", "event: attempt.started"),
        *("id: 3", "event: attempt.ended", "id: 4", "event: rollout.completed"),
    ]
    assert [line for line in later.splitlines() if line.startswith("event")] == ["event: rollout.completed"]


@pytest.mark.parametrize("cause", [FailureCause.SANDBOX_FAILED, FailureCause.MODEL_PROVIDER_FAILED])
def test_what_the_machine_failed_is_tried_again_and_all_attempts_are_kept(sqlite_url: str, cause: FailureCause) -> None:
    def third(box: RolloutSpec) -> Execution:
        return half(box) if box.attempt == 3 else Execution(SuccessStatus.RUNTIME_ERROR, None, cause, "no memory")

    with service(sqlite_url, third, backoff_s=0.01) as client:
        said, view = ran(client)
    assert said["reward_info"]["outcome_reward"] == 0.5
    assert [(one["number"], one["failure_cause"], one["reward"]) for one in view["attempts"]] == [
        (1, cause, None),
        (2, cause, None),
        (3, None, 0.5),
    ]


NO_MEMORY = Execution(SuccessStatus.RUNTIME_ERROR, None, FailureCause.SANDBOX_FAILED, "no memory")
LATE = Execution(SuccessStatus.TIMEOUT, 0.0, FailureCause.AGENT_EXHAUSTED_BUDGET, "out of time")


@pytest.mark.parametrize(
    ("end", "reward", "success_status", "cause", "attempts"),
    [
        (NO_MEMORY, None, "runtime_error", "sandbox_failed", 2),
        # what the agent used up counts
        (LATE, 0.0, "timeout", "agent_exhausted_budget", 1),
        (ZeroDivisionError(), None, "failure", "harbor_failed", 2),
        # what cannot be laid over a snapshot is not tried again
        (DataError("file name '../a': leaves its folder"), None, "apply_failed", "unclassified", 1),
    ],
)
def test_how_a_rollout_ends_says_whether_it_has_a_reward(
    sqlite_url: str,
    end: Execution | Exception,
    reward: float | None,
    success_status: str,
    cause: str,
    attempts: int,
) -> None:
    def outcome(box: RolloutSpec) -> Execution:
        if isinstance(end, Exception):
            raise end
        return end

    with service(sqlite_url, outcome, backoff_s=0.01, attempts=2) as client:
        said, view = ran(client)
    assert (said["reward_info"]["outcome_reward"], said["metrics"]["reward_mean"]) == (reward, reward)
    assert (said["success_status"], said["failure_cause"], said["success"]) == (success_status, cause, False)
    assert said["reward_valid"] == (reward is not None)
    status = "failed" if reward is None else "completed"
    assert (view["status"], view["reward"], len(view["attempts"])) == (status, reward, attempts)


def test_a_waiting_rollout_is_cancelled_at_once_and_one_that_runs_soon(database_url: str) -> None:
    gate = Gate()
    with service(database_url, gate, rollouts_at_once=1) as client:
        found = deployed(client)
        running, waiting = (queued(client, found, name) for name in "ab")
        # it is said to run just before its box does
        until(client, f"{AT}/{running}", lambda view: view["status"] == "running" and gate.order == [running])
        assert client.post(f"{AT}/{waiting}/cancel").json()["status"] == "cancelled"
        client.post(f"{AT}/{running}/cancel")
        gate.is_open.set()
        view = until(client, f"{AT}/{running}", lambda view: view["finished_at"] is not None)
        assert view["status"] in ("cancelled", "completed")
        assert gate.order == [running]


def test_a_full_queue_says_when_to_come_again(sqlite_url: str) -> None:
    gate = Gate()
    with service(sqlite_url, gate, rollouts_at_once=1, queued_of_one=2) as client:
        found = deployed(client)
        first = queued(client, found, "first")
        until(client, f"{AT}/{first}", lambda view: view["status"] == "running")
        answers = [client.post(AT, json={**rollout(name), "deployment_id": found}) for name in "abc"]
        assert [answer.status_code for answer in answers] == [202, 202, 429]
        assert answers[2].headers["Retry-After"] == "5"
        gate.is_open.set()


def test_flows_take_turns(database_url: str) -> None:
    gate = Gate()
    with service(database_url, gate, rollouts_at_once=1) as client:
        one, two = deployed(client, name="one"), deployed(client, name="two")
        first = queued(client, one, "first")
        until(client, f"{AT}/{first}", lambda view: view["status"] == "running")
        many = [queued(client, one, f"a{n}") for n in range(5)]
        few = [queued(client, two, f"b{n}") for n in range(2)]
        gate.is_open.set()
        for rollout_id in (*many, *few):
            until(client, f"{AT}/{rollout_id}", lambda view: view["status"] == "completed")
        places = {rollout_id: place for place, rollout_id in enumerate(gate.order)}
        assert max(places[rollout_id] for rollout_id in few) <= 4


def test_what_is_not_there_is_not_found(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        answer = client.post("/api/harbor/rollout", json={"deployment_id": "none", "trace_correlation_id": "a"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert client.get(f"{AT}/none").status_code == client.get(f"{AT}/none/events").status_code == 404


def test_what_a_dead_worker_had_is_run_by_the_next_one(database_url: str) -> None:
    gate = Gate()
    gate.is_open.set()
    with service(database_url, gate) as client:
        found = deployed(client)
    with Database(database_url) as database, service(database_url, gate, rollouts_at_once=1) as client:
        gate.is_open.clear()
        first = queued(client, found, "first")
        until(client, f"{AT}/{first}", lambda view: view["status"] == "running")
        second = queued(client, found, "second")
        # as a worker of another machine would have taken it, and been lost with it
        with database.writing() as connection:
            taken = queue.claim_rollouts(connection, "elsewhere:1:1:1", -1.0, "memory", 1, 8)
        assert [row.id for row in taken.rollouts] == [second]
        gate.is_open.set()
        view = until(client, f"{AT}/{second}", lambda view: view["status"] == "completed")
    assert [(one["number"], one["failure_cause"]) for one in view["attempts"]] == [(1, "harbor_failed"), (2, None)]


def test_who_comes_late_changes_nothing(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        _, view = ran(client)
        with Database(sqlite_url) as database, database.writing() as connection:
            values = {"status": "failed", "reward": 1.0}
            assert not queue.release(connection, rollouts, view["rollout_id"], "elsewhere:1:1:1", **values)
        assert client.get(f"{AT}/{view['rollout_id']}").json()["reward"] == 0.5


def test_rollouts_are_listed_newest_first(database_url: str) -> None:
    with service(database_url) as client:
        found = deployed(client)
        for number in range(5):
            client.post(f"/api/harbor/deployments/{found}/rollout", json=rollout(f"r{number}", number))
            time.sleep(0.002)
        first = client.get(AT, params={"limit": 3, "status": "completed"}).json()
        second = client.get(AT, params={"limit": 3, "cursor": first["next_cursor"], "deployment": found}).json()
        assert [one["seed"] for one in (*first["rollouts"], *second["rollouts"])] == [4, 3, 2, 1, 0]
        assert second["next_cursor"] is None


def test_a_service_that_is_stopped_gives_back_what_it_runs(database_url: str) -> None:
    gate = Gate()
    with service(database_url, gate) as client:
        found = deployed(client)
        given = queued(client, found, "first")
        until(client, f"{AT}/{given}", lambda view: view["status"] == "running")
        threading.Timer(0.2, gate.is_open.set).start()
    with service(database_url) as client:
        view = until(client, f"{AT}/{given}", lambda view: view["status"] == "completed")
        assert view["attempts"][-1]["reward"] == 0.5


def test_a_rollout_whose_end_cannot_be_written_is_run_again(sqlite_url: str) -> None:
    tries: list[int] = []

    def unwritable(box: RolloutSpec) -> Execution:
        tries.append(box.attempt)
        return half(box) if len(tries) > 1 else Execution(SuccessStatus.SUCCESS, 0.5, details={"a": object()})

    with service(sqlite_url, unwritable, lease_s=0.3) as client:
        said, _ = ran(client)
        assert (said["reward_info"]["outcome_reward"], tries) == (0.5, [1, 2])


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"context_overrides": [{"preflight_script": "#!/bin/bash"}]}, "preflight_script"),
        ({"override_bundle_id": "b"}, "override_bundle_id"),
    ],
)
def test_what_would_be_left_out_is_refused(sqlite_url: str, more: dict[str, object], code: str) -> None:
    with service(sqlite_url) as client:
        found = deployed(client)
        answer = client.post(f"/api/harbor/deployments/{found}/rollout", json=rollout("a", **more))
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)
        assert client.get(AT).json()["rollouts"] == []
