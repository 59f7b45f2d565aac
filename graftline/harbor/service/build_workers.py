"""Builds: claimed one by one, in slots of their own, each by one worker at a time."""

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, func, or_, select, update

from graftline.core.errors import DataError, GraftlineError
from graftline.harbor.executors.base import BuildContext, Executor
from graftline.harbor.service import deployments as stored
from graftline.harbor.service import rollout_queue
from graftline.harbor.service.database import Database
from graftline.harbor.service.schemas import BuildStatus
from graftline.harbor.service.settings import ServiceSettings
from graftline.harbor.service.tables import builds, deployments

logger = logging.getLogger(__name__)

_KEPT_LOG = 64 << 10


class BuildWorker:
    """Makes snapshots. Who starts it calls `take` and `make`; every build is its own until it has ended."""

    def __init__(self, database: Database, executor: Executor, settings: ServiceSettings, owner: str) -> None:
        self._database, self._executor = database, executor
        self._settings, self._owner = settings, owner

    def take(self) -> str | None:
        """Take the oldest build that waits, and return its id."""
        now = time.time()
        waiting = (
            select(builds.c.id)
            .where(
                builds.c.status == BuildStatus.PENDING,
                builds.c.executor == self._executor.name,
                or_(builds.c.lease_until.is_(None), builds.c.lease_until <= now),
            )
            .order_by(builds.c.created_at)
            .limit(1)
        )
        # mostly there is none, and nobody has to wait for a look
        with self._database.reading() as connection:
            if connection.execute(waiting).first() is None:
                return None
        with self._database.writing() as connection:
            found = connection.execute(waiting.with_for_update(skip_locked=True))
            build_id: str | None = found.scalar_one_or_none()
            if build_id is not None:
                connection.execute(
                    update(builds)
                    .where(builds.c.id == build_id)
                    .values(
                        status=BuildStatus.BUILDING,
                        attempts=builds.c.attempts + 1,
                        started_at=func.coalesce(builds.c.started_at, now),
                        lease_owner=self._owner,
                        lease_until=now + self._settings.lease_s,
                    )
                )
        return build_id

    def make(self, build_id: str) -> list[str]:
        """Make the snapshot of a build, and return the rollouts that ended because it cannot be made."""
        with self._database.reading() as connection:
            build = connection.execute(select(builds).where(builds.c.id == build_id)).one()
        started = time.monotonic()
        try:
            made = self._executor.build(
                BuildContext(build.context_digest, self._archive(build.context_digest), build.dockerfile)
            )
        except DataError as error:
            return self._failed(build, str(error))
        except GraftlineError as error:
            if build.attempts < self._settings.attempts:
                self._again(build, str(error))
                return []
            return self._failed(build, f"{error} ({build.attempts} attempts)")
        values = {"status": BuildStatus.COMPLETED, "snapshot_id": made.snapshot_id, "log": made.log[-_KEPT_LOG:]}
        with self._database.writing() as connection:
            self._end(connection, build_id, values)
        logger.info("build %s: made %s in %.1f s", build_id, made.snapshot_id, time.monotonic() - started)
        return []

    def _archive(self, digest: str) -> Callable[[], bytes]:
        def read() -> bytes:
            with self._database.reading() as connection:
                return stored.archive_of(connection, digest)

        return read

    def _failed(self, build: Row[Any], error: str) -> list[str]:
        with self._database.writing() as connection:
            values = {"status": BuildStatus.FAILED, "error": error[-_KEPT_LOG:]}
            if not self._end(connection, build.id, values):
                return []
            waits = or_(deployments.c.build_id == build.id, deployments.c.verifier_build_id == build.id)
            ids: list[str] = list(connection.execute(select(deployments.c.id).where(waits)).scalars())
            logger.warning("build %s: failed", build.id)
            return rollout_queue.fail_of_deployments(connection, ids, f"the build of the deployment failed: {error}")

    def _again(self, build: Row[Any], error: str) -> None:
        """Have it built again, not before a while."""
        longest = min(self._settings.longest_backoff_s, self._settings.backoff_s * 2 ** (build.attempts - 1))
        with self._database.writing() as connection:
            connection.execute(
                update(builds)
                .where(builds.c.id == build.id, builds.c.lease_owner == self._owner)
                .values(
                    status=BuildStatus.PENDING,
                    error=error[-_KEPT_LOG:],
                    lease_owner=None,
                    lease_until=time.time() + random.uniform(0, longest),
                )
            )

    def _end(self, connection: Connection, build_id: str, values: Mapping[str, Any]) -> bool:
        ended = connection.execute(
            update(builds)
            .where(builds.c.id == build_id, builds.c.lease_owner == self._owner)
            .values(finished_at=time.time(), lease_owner=None, lease_until=None, **values)
        )
        return ended.rowcount == 1
