"""Rows of the service that several transactions want at once: none waits for one that waits for it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Table, insert, select, text, update
from sqlalchemy.types import LargeBinary, String

from graftline.harbor.messages import BuildStatus, JobStatus, RolloutStatus
from graftline.harbor.service import queue
from graftline.harbor.service.attempts import AttemptRunner
from graftline.harbor.service.database import Database
from graftline.harbor.service.state import Service, ServiceSettings
from graftline.harbor.service.tables import Json, attempts, builds, contexts, deployments, jobs, rollouts
from tests.postgres_server import new_database, postgres_server

OWNER, WITHIN_S = "a-worker", 240.0
WAITING = text("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield url


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
    job = {"status": JobStatus.RUNNING, "kind": queue.EVALUATION, "total": 1, "config": {}}
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


def test_a_rollout_that_ends_while_leases_are_renewed_and_its_job_is_looked_at_waits_and_no_more(server: str) -> None:
    executor: Any = None  # of a rollout that was cancelled before it began nothing is asked
    with Database(new_database(server)) as database, ThreadPoolExecutor(1) as pool:
        runner = AttemptRunner(Service(database, executor, ServiceSettings(), {}), OWNER)
        rollout, cancelled = prepare(database), threading.Event()
        cancelled.set()
        deadline = time.monotonic() + WITHIN_S
        with database.writing() as connection:
            queue.renew(connection, OWNER, 60)
            ending = pool.submit(runner.run, rollout, cancelled, lambda: False)
            while not waiting(database):
                assert not ending.done(), ending.result()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert not queue.end_if_done(connection, "job")
        assert ending.result(WITHIN_S)
        with database.reading() as connection:
            found = connection.execute(select(rollouts.c.status, jobs.c.status).join(jobs)).one()
        assert found[0] == RolloutStatus.CANCELLED
        assert found[1] not in (JobStatus.PENDING, JobStatus.RUNNING)


def test_of_two_services_that_claim_at_once_no_more_begins_than_the_budget_allows(server: str) -> None:
    with Database(new_database(server)) as database, ThreadPoolExecutor(1) as pool:
        prepare(database)
        with database.writing() as connection:
            build = {"id": "build", "status": BuildStatus.COMPLETED}
            connection.execute(insert(builds).values(**row(builds, **build)))
            connection.execute(update(deployments).values(build_id="build"))
            connection.execute(update(jobs).values(max_rollouts=1, max_concurrent=9))
            connection.execute(update(rollouts).values(status=RolloutStatus.COMPLETED))
            queued = {"deployment_id": "deployment", "job_id": "job", "flow": "job", "status": RolloutStatus.QUEUED}
            for name in map(str, range(9)):  # more than one claim looks at
                connection.execute(insert(rollouts).values(**row(rollouts, id=name, key=name, **queued)))

        def claim(owner: str) -> queue.Claim:
            with database.writing() as connection:
                return queue.claim_rollouts(connection, owner, 60, "local", 1, 1)

        deadline = time.monotonic() + WITHIN_S
        with database.writing() as connection:
            first = queue.claim_rollouts(connection, "first", 60, "local", 1, 1)
            second = pool.submit(claim, "second")
            while not waiting(database):
                assert not second.done(), second.result()
                assert time.monotonic() < deadline
                time.sleep(0.02)
        claimed = second.result(WITHIN_S)
        assert (len(first.rollouts), claimed.rollouts) == (1, [])
        assert claimed.used_up == {"job": "1 rollouts were started, which is what the budget allows"}
