"""A service whose database goes away while it starts, and whose clock is set back while a rollout waits."""

import time
from pathlib import Path

import httpx
from pydantic import SecretStr
from sqlalchemy import select, update

from graftline.harbor.executors.base import MemoryExecutor
from graftline.harbor.localapi.served import serve_task_app
from graftline.harbor.service import queue
from graftline.harbor.service.app import create_service
from graftline.harbor.service.database import Database
from graftline.harbor.service.tables import rollouts
from tests.harbor_parts import KEY, deployed, half, service
from tests.postgres_server import PostgresServer, new_database


def test_a_service_that_starts_while_its_database_is_away_works_when_it_is_back() -> None:
    with PostgresServer() as server, Database(new_database(server.url)) as database:
        app = create_service(database, MemoryExecutor(half), [SecretStr(KEY)])
        server.end()
        with (
            serve_task_app(app) as base,
            httpx.Client(base_url=base, headers={"Authorization": f"Bearer {KEY}"}, timeout=30) as client,
        ):
            server.start()
            asked = {"trace_correlation_id": "after", "env": {"seed": 1}}
            answer = client.post(f"/api/harbor/deployments/{deployed(client)}/rollout", json=asked)
        assert answer.json()["reward_info"]["outcome_reward"] == 0.5


def test_a_rollout_that_was_put_back_while_the_clock_was_ahead_does_not_wait_for_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'harbor.sqlite'}"
    with service(url) as client:
        known = deployed(client)
    with Database(url) as database:
        with service(url, rollouts_at_once=1) as client:
            client.post(
                "/api/harbor/rollouts",
                json={"deployment_id": known, "trace_correlation_id": "one", "env": {"seed": 1}},
            )
            client.post(
                f"/api/harbor/deployments/{known}/rollout", json={"trace_correlation_id": "two", "env": {"seed": 2}}
            )
        with database.writing() as connection:
            ids = connection.execute(select(rollouts.c.id).order_by(rollouts.c.seed)).scalars().all()
            waiting = {"status": "queued", "lease_owner": None}
            for one, later_s in zip(ids, (7200, 20), strict=True):
                values = {**waiting, "not_before": time.time() + later_s}
                connection.execute(update(rollouts).where(rollouts.c.id == one).values(**values))
        with database.writing() as connection:
            claimed = queue.claim_rollouts(connection, "here:1:1:1", 60, "memory", 2, 8, longest_pause_s=30)
    assert [row.id for row in claimed.rollouts] == [ids[0]]
