"""Rows of the service that several transactions want at once: none waits for one that waits for it."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Table, insert, select, text
from sqlalchemy.types import LargeBinary, String

from graftline.harbor.service import jobs as stored_jobs
from graftline.harbor.service import rollout_queue
from graftline.harbor.service.database import Database
from graftline.harbor.service.job_schemas import JobStatus
from graftline.harbor.service.rollout_workers import RolloutWorker
from graftline.harbor.service.schemas import RolloutStatus
from graftline.harbor.service.settings import ServiceSettings
from graftline.harbor.service.tables import Json, attempts, contexts, deployments, jobs, rollouts
from tests.postgres_server import new_database, postgres_server

OWNER, WITHIN_S = "a-worker", 20.0
WAITING = text("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")


def row(table: Table, **given: Any) -> dict[str, Any]:
    """Return a row with something in every column that needs it."""
    needed = [one for one in table.columns if not one.nullable and one.server_default is None]
    return {**{one.name: something(one.type) for one in needed}, **given}


def something(kind: Any) -> Any:
    if isinstance(kind, Json):
        return {}
    return b"" if isinstance(kind, LargeBinary) else "x" if isinstance(kind, String) else 0


def prepare(database: Database) -> Any:
    """Store a job of one rollout that runs, and return the rollout as it was claimed."""
    job = {"status": JobStatus.RUNNING, "kind": stored_jobs.EVALUATION, "total": 1, "config": {}}
    running = {"status": RolloutStatus.RUNNING, "lease_owner": OWNER, "lease_until": time.time() + 60, "attempts": 1}
    with database.writing() as connection:
        connection.execute(insert(contexts).values(**row(contexts, digest="d")))
        connection.execute(insert(deployments).values(**row(deployments, id="deployment", context_digest="d")))
        connection.execute(insert(jobs).values(**row(jobs, id="job", **job)))
        connection.execute(
            insert(rollouts).values(**row(rollouts, id="one", deployment_id="deployment", job_id="job", **running))
        )
        connection.execute(insert(attempts).values(**row(attempts, rollout_id="one", number=2)))
        return connection.execute(select(rollouts)).one()


def waiting(database: Database) -> int:
    """Return how many wait for a lock; what one transaction is told of that stays the same while it lasts."""
    with database.reading() as connection:
        return int(connection.execute(WAITING).scalar_one())


def test_a_rollout_that_ends_while_leases_are_renewed_and_its_job_is_looked_at_waits_and_no_more() -> None:
    executor: Any = None  # of a rollout that was cancelled before it began nothing is asked
    with postgres_server() as server, Database(new_database(server)) as database, ThreadPoolExecutor(1) as pool:
        worker, rollout = RolloutWorker(database, executor, ServiceSettings(), OWNER, {}), prepare(database)
        deadline = time.monotonic() + WITHIN_S
        with database.writing() as connection:
            rollout_queue.renew(connection, OWNER, 60)
            ending = pool.submit(worker.run, rollout, lambda: True, lambda: False)
            while not waiting(database):
                assert not ending.done(), ending.result()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert not stored_jobs.end_if_done(connection, "job")
        assert ending.result(WITHIN_S)
        with database.reading() as connection:
            found = connection.execute(select(rollouts.c.status, jobs.c.status).join(jobs)).one()
        assert found[0] == RolloutStatus.CANCELLED
        assert found[1] not in (JobStatus.PENDING, JobStatus.RUNNING)
