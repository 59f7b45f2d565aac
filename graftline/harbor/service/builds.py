"""Builds: the snapshots that deployments wait for. What makes the same snapshot is built once."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, func, insert, or_, select
from sqlalchemy.exc import IntegrityError

from graftline.core.errors import DataError, GraftlineError
from graftline.core.hashing import digest
from graftline.harbor.executors.base import BuildContext
from graftline.harbor.messages import BuildStatus, HarborBuild, Status
from graftline.harbor.refusal import RequestError
from graftline.harbor.service import queue
from graftline.harbor.service.database import Database, is_duplicate
from graftline.harbor.service.state import Service
from graftline.harbor.service.tables import builds, contexts, deployments, new_id

logger = logging.getLogger(__name__)

_LOG_CHARACTERS = 64 << 10
_TAIL_CHARACTERS = 4000
_OPEN = (BuildStatus.PENDING, BuildStatus.BUILDING)

Builds = Mapping[str, Row[Any]]
"""By id."""


def request_build(connection: Connection, context_digest: str, dockerfile: str, executor: str, is_forced: bool) -> str:
    """Return the id of the build of a context: the one that is there or under way, else a new one."""
    key = digest([context_digest, dockerfile, executor])
    usable = _OPEN if is_forced else (*_OPEN, BuildStatus.COMPLETED)
    query = select(builds.c.id).where(builds.c.key == key, builds.c.status.in_(usable))
    for _ in range(2):
        present = connection.execute(query.order_by(builds.c.created_at.desc()).limit(1)).scalar_one_or_none()
        if present is not None:
            return str(present)
        build: dict[str, Any] = {
            "id": new_id("bld"),
            "key": key,
            "context_digest": context_digest,
            "dockerfile": dockerfile,
        }
        build |= {"executor": executor, "status": BuildStatus.PENDING, "created_at": time.time()}
        try:
            with connection.begin_nested():
                connection.execute(insert(builds).values(**build))
        except IntegrityError as error:
            if not is_duplicate(error):
                raise
            continue  # another process has just asked for the same
        return str(build["id"])
    raise AssertionError("a build that is there already is found")


def builds_of(connection: Connection, rows: Iterable[Row[Any]]) -> Builds:
    """Return the builds that deployments wait for."""
    ids = {build_id for row in rows for build_id in (row.build_id, row.verifier_build_id) if build_id is not None}
    if not ids:
        return {}
    return {row.id: row for row in connection.execute(select(builds).where(builds.c.id.in_(ids)))}


def status_of(deployment: Row[Any], builds_by_id: Builds) -> tuple[Status, str | None]:
    """Return what a deployment is at, by the worst of its builds, and why it cannot be built."""
    own = [builds_by_id[name] for name in (deployment.build_id, deployment.verifier_build_id) if name in builds_by_id]
    statuses = {BuildStatus(build.status) for build in own}
    if not statuses:
        return Status.PENDING, None
    if statuses & {BuildStatus.FAILED, BuildStatus.CANCELLED}:
        return Status.FAILED, next((build.error for build in own if build.error), None)
    if statuses == {BuildStatus.COMPLETED}:
        return Status.READY, None
    return (Status.PENDING if statuses == {BuildStatus.PENDING} else Status.BUILDING), None


def check_runs(connection: Connection, deployment: Row[Any]) -> None:
    """Refuse rollouts of what can never run."""
    status, error = status_of(deployment, builds_of(connection, [deployment]))
    if status is Status.FAILED:
        raise RequestError("build_failed", f"deployment {deployment.id!r}: its build failed ({error}); mend it")
    if deployment.build_id is None:
        raise RequestError("not_built", f"deployment {deployment.id!r}: was never built; POST …/build first")


def build_view(row: Row[Any]) -> HarborBuild:
    """Return a build as it is shown."""
    return HarborBuild.from_row(row, build_id=row.id, error_message=row.error, log_tail=row.log[-_TAIL_CHARACTERS:])


def read_archive(database: Database, context_digest: str) -> Callable[[], bytes]:
    """Return what reads the archive of a context."""

    def read() -> bytes:
        with database.reading() as connection:
            query = select(contexts.c.archive).where(contexts.c.digest == context_digest)
            return bytes(connection.execute(query).scalar_one())

    return read


def claim_build(service: Service, owner: str) -> Row[Any] | None:
    """Take the oldest build that waits."""
    waits = (builds.c.status == BuildStatus.PENDING, builds.c.executor == service.executor.name)
    # mostly there is none, and nobody has to wait for a look
    with service.database.reading() as connection:
        if connection.execute(select(builds.c.id).where(*waits).limit(1)).first() is None:
            return None
    with service.database.writing() as connection:
        values = {"status": BuildStatus.BUILDING, "attempts": builds.c.attempts + 1}
        values["started_at"] = func.coalesce(builds.c.started_at, time.time())
        return queue.claim_oldest(connection, builds, owner, service.settings.lease_s, waits[1], **values)


def make_snapshot(service: Service, build: Row[Any], owner: str) -> list[str]:
    """Make the snapshot of a claimed build, and return the rollouts that ended because it cannot be made."""
    settings, attempt, started = service.settings, build.attempts + 1, time.monotonic()
    context = BuildContext(build.context_digest, read_archive(service.database, build.context_digest), build.dockerfile)
    try:
        snapshot = service.executor.build(context)
    except DataError as error:
        return _fail(service, build.id, owner, str(error))
    except GraftlineError as error:
        if attempt >= settings.attempts:
            return _fail(service, build.id, owner, f"{error} ({attempt} attempts)")
        pause_s = random.uniform(0, min(settings.longest_backoff_s, settings.backoff_s * 2 ** (attempt - 1)))
        values = {"status": BuildStatus.PENDING, "error": str(error)[-_LOG_CHARACTERS:]}
        with service.database.writing() as connection:
            queue.release(connection, builds, build.id, owner, **values, lease_until=time.time() + pause_s)
        return []
    values = {"snapshot_id": snapshot.snapshot_id, "log": snapshot.log[-_LOG_CHARACTERS:]}
    values |= {"status": BuildStatus.COMPLETED}
    with service.database.writing() as connection:
        queue.release(connection, builds, build.id, owner, **values, finished_at=time.time())
    logger.info("build %s: made %s in %.1f s", build.id, snapshot.snapshot_id, time.monotonic() - started)
    return []


def _fail(service: Service, build_id: str, owner: str, error: str) -> list[str]:
    values = {"status": BuildStatus.FAILED, "error": error[-_LOG_CHARACTERS:], "finished_at": time.time()}
    with service.database.writing() as connection:
        if not queue.release(connection, builds, build_id, owner, **values):
            return []
        waits = or_(deployments.c.build_id == build_id, deployments.c.verifier_build_id == build_id)
        ids: list[str] = list(connection.execute(select(deployments.c.id).where(waits)).scalars())
        logger.warning("build %s: failed", build_id)
        return queue.fail_waiting(connection, ids, f"the build of the deployment failed: {error}")
