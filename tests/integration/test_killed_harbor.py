"""Rollouts survive whatever happens to the process that runs them."""

import time
from pathlib import Path

import pytest
from sqlalchemy import select

from graftline.harbor.service.database import Database
from graftline.harbor.service.tables import attempts, rollouts
from tests.harbor_parts import deployment
from tests.killed_service import REWARD, KilledService
from tests.postgres_server import new_database, postgres_server

ROLLOUTS, KILLS_AFTER = 90, (10, 35, 60)
WITHIN_S = 400.0


def completed(service: KilledService, job_id: str) -> int:
    return int(service.client.get(f"/api/eval/jobs/{job_id}").json()["num_completed"])


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def test_a_service_that_is_killed_three_times_loses_nothing_and_counts_nothing_twice(tmp_path: Path, kind: str) -> None:
    if kind == "sqlite":
        check_survival(tmp_path, f"sqlite:///{tmp_path / 'harbor.sqlite'}")
        return
    with postgres_server() as server:
        check_survival(tmp_path, new_database(server))


def check_survival(tmp_path: Path, url: str) -> None:
    at_once = 2
    with KilledService(tmp_path, {"service": {"rollouts_at_once": at_once}}, url) as service:
        asked = service.client.post("/api/harbor/deployments", json=deployment(text=REWARD))
        body = {"deployment_id": asked.json()["id"], "seeds": list(range(ROLLOUTS)), "idempotency_key": "survival"}
        job_id = service.client.post("/api/eval/jobs", json=body).json()["job_id"]
        deadline = time.monotonic() + WITHIN_S
        for count in KILLS_AFTER:
            while completed(service, job_id) < count:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            service.kill()
            service.start()
            # who asks again after it was away finds what it asked for
            assert service.client.post("/api/eval/jobs", json=body).json()["job_id"] == job_id
        while service.client.get(f"/api/eval/jobs/{job_id}").json()["status"] == "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = service.client.get(f"/api/eval/jobs/{job_id}/results").json()
        assert (found["status"], found["summary"]["n_valid"]) == ("completed", ROLLOUTS)
        assert [(one["seed"], one["reward"]) for one in found["results"]] == [(n, n / 1000) for n in range(ROLLOUTS)]
    with Database(url) as database, database.reading() as connection:
        rows = connection.execute(select(attempts.c.rollout_id, attempts.c.reward, attempts.c.failure_cause)).all()
        known = connection.execute(select(rollouts.c.id)).scalars().all()
    rewarded = [row.rollout_id for row in rows if row.reward is not None]
    assert sorted(rewarded) == sorted(known)
    lost = [row for row in rows if row.reward is None]
    assert len(lost) <= len(KILLS_AFTER) * at_once
    assert {row.failure_cause for row in lost} <= {"harbor_failed"}
