"""Queries over deployments, their contexts, builds and instances. Who calls them opens and ends the transaction."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from graftline.core.hashing import digest
from graftline.harbor.service.database import is_taken
from graftline.harbor.service.schemas import BuildStatus, Status
from graftline.harbor.service.tables import builds, contexts, deployments, instances

OPEN_BUILDS = (BuildStatus.PENDING, BuildStatus.BUILDING)
_ROWS_AT_ONCE = 5000

Found = Row[Any]


def new_id(kind: str) -> str:
    """Return an id that nothing has yet."""
    return f"{kind}_{uuid4().hex[:24]}"


def instance_id(deployment_id: str, seed: int) -> str:
    """Return the id of one seed of a deployment; it is always the same."""
    return f"ins_{deployment_id.partition('_')[2]}_{seed}"


def add_context(connection: Connection, sha256: str, archive: bytes) -> None:
    """Keep an archive; one that is there already is the same."""
    known = connection.execute(select(contexts.c.digest).where(contexts.c.digest == sha256)).first()
    if known is None:
        row = {"digest": sha256, "size_bytes": len(archive), "archive": archive, "created_at": time.time()}
        connection.execute(_insert_if_new(connection, contexts), [row])


def archive_of(connection: Connection, sha256: str) -> bytes:
    """Return the bytes of an archive."""
    return bytes(connection.execute(select(contexts.c.archive).where(contexts.c.digest == sha256)).scalar_one())


def find_deployment(connection: Connection, id_or_name: str) -> Found | None:
    """Return a deployment by its id, or the newest version of a name."""
    by_id = connection.execute(select(deployments).where(deployments.c.id == id_or_name)).first()
    if by_id is not None:
        return by_id
    named = select(deployments).where(deployments.c.name == id_or_name)
    return connection.execute(named.order_by(deployments.c.version.desc()).limit(1)).first()


def same_deployment(connection: Connection, name: str, sha256: str) -> Found | None:
    """Return the version of `name` with this digest."""
    query = select(deployments).where(deployments.c.name == name, deployments.c.digest == sha256)
    return connection.execute(query).first()


def add_deployment(connection: Connection, row: Mapping[str, Any]) -> Found:
    """Add a version after the last one of its name, or return the one with the same digest.

    Raises:
        IntegrityError: somebody else has just added one; ask again.
    """
    if (known := same_deployment(connection, row["name"], row["digest"])) is not None:
        return known
    last = connection.execute(
        select(func.max(deployments.c.version)).where(deployments.c.name == row["name"])
    ).scalar_one_or_none()
    values = {**row, "id": new_id("dep"), "version": (last or 0) + 1, "created_at": time.time()}
    connection.execute(insert(deployments).values(**values))
    added = find_deployment(connection, values["id"])
    assert added is not None
    return added


def deployment_page(
    connection: Connection, name: str | None, limit: int, offset: int, before: tuple[float, str] | None
) -> tuple[list[Found], int]:
    """Return deployments, newest first, and how many there are."""
    query = select(deployments)
    count = select(func.count()).select_from(deployments)
    if name is not None:
        query, count = query.where(deployments.c.name == name), count.where(deployments.c.name == name)
    if before is not None:
        at, last = before
        query = query.where(
            or_(deployments.c.created_at < at, (deployments.c.created_at == at) & (deployments.c.id < last))
        )
    query = query.order_by(deployments.c.created_at.desc(), deployments.c.id.desc()).limit(limit).offset(offset)
    return list(connection.execute(query)), connection.execute(count).scalar_one()


def ask_for_build(connection: Connection, context_digest: str, dockerfile: str, executor: str, is_forced: bool) -> str:
    """Return the id of the build of a context: the one that is there or under way, else a new one."""
    key = digest([context_digest, dockerfile, executor])
    wanted = (*OPEN_BUILDS,) if is_forced else (*OPEN_BUILDS, BuildStatus.COMPLETED)
    query = select(builds.c.id).where(builds.c.key == key, builds.c.status.in_(wanted))
    for _ in range(2):
        found = connection.execute(query.order_by(builds.c.created_at.desc()).limit(1)).scalar_one_or_none()
        if found is not None:
            return str(found)
        build = {
            "id": new_id("bld"),
            "key": key,
            "context_digest": context_digest,
            "dockerfile": dockerfile,
            "executor": executor,
            "status": BuildStatus.PENDING,
            "created_at": time.time(),
        }
        try:
            with connection.begin_nested():
                connection.execute(insert(builds).values(**build))
        except IntegrityError as error:
            if not is_taken(error):
                raise
            continue  # another process has just asked for the same
        return str(build["id"])
    raise AssertionError("a build that is taken is found")


def set_builds(connection: Connection, deployment_id: str, build_id: str, verifier_build_id: str | None) -> None:
    """Have a deployment wait for these builds."""
    connection.execute(
        update(deployments)
        .where(deployments.c.id == deployment_id)
        .values(build_id=build_id, verifier_build_id=verifier_build_id)
    )


def builds_of(connection: Connection, found: Iterable[Found]) -> dict[str, Found]:
    """Return the builds that deployments wait for, by id."""
    wanted = {one for row in found for one in (row.build_id, row.verifier_build_id) if one is not None}
    if not wanted:
        return {}
    return {row.id: row for row in connection.execute(select(builds).where(builds.c.id.in_(wanted)))}


def status_of(deployment: Found, known: Mapping[str, Found]) -> Status:
    """Return what a deployment is at: its worst build decides."""
    wanted = [known[one] for one in (deployment.build_id, deployment.verifier_build_id) if one in known]
    found = {BuildStatus(build.status) for build in wanted}
    if not found:
        return Status.PENDING
    if found & {BuildStatus.FAILED, BuildStatus.CANCELLED}:
        return Status.FAILED
    if found == {BuildStatus.COMPLETED}:
        return Status.READY
    return Status.BUILDING if BuildStatus.BUILDING in found or BuildStatus.COMPLETED in found else Status.PENDING


def add_instances(connection: Connection, deployment_id: str, tasks: Iterable[tuple[int, str]]) -> int:
    """Add the seeds that are not there yet, and return how many those were."""
    now = time.time()
    rows = [{"deployment_id": deployment_id, "seed": seed, "task_id": task, "created_at": now} for seed, task in tasks]
    statement = _insert_if_new(connection, instances).returning(instances.c.seed)
    count = 0
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        count += len(connection.execute(statement, rows[start : start + _ROWS_AT_ONCE]).all())
    own = deployments.c.id == deployment_id
    connection.execute(update(deployments).where(own).values(instance_count=deployments.c.instance_count + count))
    return count


def _insert_if_new(connection: Connection, table: Any) -> Any:
    kind = postgresql if connection.dialect.name == "postgresql" else sqlite
    return kind.insert(table).on_conflict_do_nothing()


def instance_page(
    connection: Connection, deployment_id: str, after: int, limit: int, seeds: Sequence[int] | None = None
) -> list[Found]:
    """Return instances by seed, from the one after `after` on; of `seeds`, where they are given."""
    query = select(instances).where(instances.c.deployment_id == deployment_id, instances.c.seed > after)
    if seeds is not None:
        query = query.where(instances.c.seed.in_(seeds))
    return list(connection.execute(query.order_by(instances.c.seed).limit(limit)))
