"""Deployments, their builds and instances: the routes, from a message to rows in one transaction, and the answers."""

import base64
import binascii
import time
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from graftline.core.errors import DataError
from graftline.core.hashing import digest, sha256_bytes
from graftline.harbor.archive import ArchiveInfo, check_archive
from graftline.harbor.build_spec import find_faults
from graftline.harbor.contract import MAX_SEED
from graftline.harbor.messages import (
    MAX_PAGE,
    BuildRequest,
    Deployment,
    DeploymentCreate,
    DeploymentPage,
    HarborBuild,
    HarborBuiltInstances,
    HarborDeploymentStatus,
    HarborInstance,
    InstanceBatch,
    InstanceBatchAnswer,
    InstancePage,
    Status,
)
from graftline.harbor.refusal import RequestError, not_found
from graftline.harbor.service.builds import Builds, build_view, builds_of, request_build, status_of
from graftline.harbor.service.database import is_duplicate
from graftline.harbor.service.http import Cursor, Limit, SeedCursor, cursor_after, newest_first, problems
from graftline.harbor.service.state import Service
from graftline.harbor.service.tables import contexts, deployments, new_id
from graftline.harbor.service.tables import instances as instance_table
from graftline.harbor.tar_stream import ArchiveLimits
from graftline.harbor.task_format.packed import HARBOR_TASK

_TRIES = 5
_ROWS_AT_ONCE = 5000
_MOST_NAMES = 1000
"""That are looked at for one close to a name that no deployment has."""
_AT = "/api/harbor/deployments"


def deployment_routes(service: Service) -> APIRouter:
    """Return the routes of deployments and instances."""
    router, database = APIRouter(), service.database
    tags: list[str | Enum] = ["deployments"]

    @router.post(_AT, tags=tags, responses=problems())
    def create(body: DeploymentCreate) -> Deployment:
        """Make a version of a deployment; the same again is the one that is there."""
        return create_deployment(service, body)

    @router.get(_AT, tags=tags, responses=problems())
    def deployment_list(
        name: Annotated[str | None, Query(max_length=128)] = None,
        status: Status | None = None,
        limit: Limit = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        cursor: Cursor = None,
    ) -> DeploymentPage:
        """List deployments, newest first."""
        if status is None:
            return _page(service, name, limit, offset, cursor)
        matches: list[Deployment] = []
        place: str | None = None
        while True:
            page = _page(service, name, MAX_PAGE, 0, place)
            matches += [view for view in page.deployments if view.status is status]
            if (place := page.next_cursor) is None:
                return DeploymentPage(deployments=matches[offset : offset + limit], total=len(matches))

    @router.get(f"{_AT}/{{deployment}}", tags=tags, responses=problems(404))
    def deployment(deployment: str) -> Deployment:
        """Return a deployment by its id, or the newest version of a name."""
        with database.reading() as connection:
            row = find_deployment(connection, deployment)
            return _view(row, builds_of(connection, [row]))

    @router.get(f"{_AT}/{{deployment}}/status", tags=tags, responses=problems(404))
    def status(deployment: str) -> HarborDeploymentStatus:
        """Return what a deployment waits for."""
        with database.reading() as connection:
            row = find_deployment(connection, deployment)
            builds_by_id = builds_of(connection, [row])
        fields = _build_fields(row, builds_by_id)
        return HarborDeploymentStatus.from_row(
            row, **fields, builds=[build_view(build) for build in builds_by_id.values()]
        )

    @router.post(f"{_AT}/{{deployment}}/build", tags=tags, responses=problems(404))
    def build(deployment: str, body: BuildRequest | None = None) -> HarborBuild:
        """Have a deployment built, once."""
        return build_deployment(service, deployment, BuildRequest() if body is None else body)

    @router.post(f"{_AT}/{{deployment}}/instances/batch", tags=["instances"], responses=problems(404))
    def batch(deployment: str, body: InstanceBatch) -> InstanceBatchAnswer:
        """Have instances of seeds; those that are there stay as they are."""
        seeds = _seeds_of(body)
        with database.writing() as connection:
            row = find_deployment(connection, deployment)
            created = _add_instances(connection, row.id, list(zip(seeds, task_ids(row, seeds), strict=True)))
            row = find_deployment(connection, row.id)
            builds_by_id = builds_of(connection, [row])
            query = select(instance_table).where(
                instance_table.c.deployment_id == row.id, instance_table.c.seed.in_(seeds[:MAX_PAGE])
            )
            rows = connection.execute(query.order_by(instance_table.c.seed)).all() if len(seeds) <= MAX_PAGE else ()
        views = [_instance_view(instance, *status_of(row, builds_by_id)) for instance in rows]
        return InstanceBatchAnswer(**_instance_counts(row, builds_by_id), created=created, instances=views)

    @router.get(f"{_AT}/{{deployment}}/instances", tags=["instances"], responses=problems(404))
    def instances(
        deployment: str, status: Status | None = None, limit: Limit = 100, cursor: SeedCursor = None
    ) -> InstancePage:
        """List instances, by seed."""
        with database.reading() as connection:
            row = find_deployment(connection, deployment)
            builds_by_id = builds_of(connection, [row])
            at, error = status_of(row, builds_by_id)
            after = -1 if cursor is None else int(cursor)
            query = select(instance_table).where(
                instance_table.c.deployment_id == row.id, instance_table.c.seed > after
            )
            rows = connection.execute(
                query.order_by(instance_table.c.seed).limit(limit if status in (None, at) else 0)
            ).all()
        views = [_instance_view(instance, at, error) for instance in rows]
        last = str(rows[-1].seed) if len(rows) == limit else None
        return InstancePage(**_instance_counts(row, builds_by_id), instances=views, next_cursor=last)

    @router.post(f"{_AT}/{{deployment}}/instances/build-all", tags=["instances"], responses=problems(404))
    def build_all(deployment: str) -> HarborBuiltInstances:
        """Have what the instances need built, and return at once."""
        build_deployment(service, deployment, BuildRequest())
        with database.reading() as connection:
            row = find_deployment(connection, deployment)
            counts = _instance_counts(row, builds_of(connection, [row]))
        return HarborBuiltInstances(total_instances=counts["total"], ready_count=counts["ready_count"])

    return router


def find_deployment(connection: Connection, id_or_name: str) -> Row[Any]:
    """Return a deployment by its id, or the newest version of a name."""
    if "\0" not in id_or_name:
        for condition in (deployments.c.id == id_or_name, deployments.c.name == id_or_name):
            query = select(deployments).where(condition).order_by(deployments.c.version.desc()).limit(1)
            if (row := connection.execute(query).first()) is not None:
                return row
    names = select(deployments.c.name).distinct().order_by(deployments.c.name).limit(_MOST_NAMES)
    raise not_found("deployment", id_or_name, [*connection.execute(names).scalars()])


def task_ids(deployment: Row[Any], seeds: Sequence[int]) -> list[str]:
    """Return the tasks that seeds stand for; one that stands for none is refused, not counted from the start again."""
    if not deployment.tasks:
        return [str(seed) for seed in seeds]
    tasks = {task["seed"]: task["task_id"] for task in deployment.tasks}
    if unknown := [seed for seed in seeds if seed not in tasks]:
        raise RequestError(
            "unknown_seed",
            f"deployment {deployment.id!r}: seed {unknown[0]} stands for no task; it has {len(tasks)} tasks, of the seeds"
            f" {min(tasks)} to {max(tasks)}",
            {"seeds": unknown[:100]},
        )
    return [tasks[seed] for seed in seeds]


def instance_id(deployment_id: str, seed: int) -> str:
    """Return the id of one seed of a deployment; it is always the same."""
    return f"ins_{deployment_id.partition('_')[2]}_{seed}"


class _Context(NamedTuple):
    """A context that was sent, and is valid."""

    archive: bytes
    sha256: str
    info: ArchiveInfo


def create_deployment(service: Service, body: DeploymentCreate) -> Deployment:
    """Make a version of a deployment, or find the one that is the same, and have it built if that is wanted."""
    context = _decode(service, body.context_tar_base64, "context_tar_base64")
    verifier_context = None
    if body.verifier is not None:
        verifier_context = _decode(service, body.verifier.context_tar_base64, "verifier.context_tar_base64")
    dockerfile = body.dockerfile if body.dockerfile is not None else context.info.dockerfile or ""
    if service.executor.needs_dockerfile and not dockerfile.strip() and body.entrypoint != HARBOR_TASK:
        message = f"dockerfile: executor {service.executor.name!r} builds images, and needs one"
        raise RequestError("no_dockerfile", message)
    values = _deployment_values(body, context, verifier_context, dockerfile)
    for _ in range(_TRIES):
        try:
            with service.database.writing() as connection:
                _add_contexts(connection, [context] if verifier_context is None else [context, verifier_context])
                row = _add_version(connection, values)
                if body.auto_build and row.build_id is None:
                    row = _request_builds(service, connection, row, is_forced=False)
                view = _view(row, builds_of(connection, [row]))
        except IntegrityError as error:
            if not is_duplicate(error):
                raise
            continue
        service.work.set()
        return view
    raise RequestError("conflict", f"deployment {body.name!r}: others write to it all the time; ask again")


def build_deployment(service: Service, id_or_name: str, body: BuildRequest) -> HarborBuild:
    """Have a deployment built: once, whoever asks for it at the same time, and again only by `force`."""
    with service.database.writing() as connection:
        row = find_deployment(connection, id_or_name)
        is_other = body.dockerfile not in (None, row.dockerfile)
        if body.context_tar_base64 is not None:
            context = _decode(service, body.context_tar_base64, "context_tar_base64")
            is_other = is_other or context.sha256 != row.context_digest
        if is_other:
            raise RequestError(
                "other_context",
                f"deployment {row.id!r}: never changes, and this is another context or Dockerfile; create a deployment of"
                f" the name {row.name!r} from it, which is a new version",
            )
        row = _request_builds(service, connection, row, body.force)
        view = build_view(builds_of(connection, [row])[row.build_id])
    service.work.set()
    return view


def _request_builds(service: Service, connection: Connection, row: Row[Any], is_forced: bool) -> Row[Any]:
    digests = {"build_id": row.context_digest, "verifier_build_id": row.verifier_context_digest}
    ids = {
        column: request_build(connection, sha256, row.dockerfile, service.executor.name, is_forced)
        for column, sha256 in digests.items()
        if sha256 is not None
    }
    connection.execute(update(deployments).where(deployments.c.id == row.id).values(**ids))
    return find_deployment(connection, row.id)


def _page(service: Service, name: str | None, limit: int, offset: int, cursor: str | None) -> DeploymentPage:
    is_named = deployments.c.name == name if name is not None else deployments.c.name.is_not(None)
    with service.database.reading() as connection:
        query = newest_first(select(deployments).where(is_named), deployments, cursor).limit(limit).offset(offset)
        rows = connection.execute(query).all()
        total = connection.execute(select(func.count()).select_from(deployments).where(is_named)).scalar_one()
        builds_by_id = builds_of(connection, rows)
    views = [_view(row, builds_by_id) for row in rows]
    return DeploymentPage(deployments=views, total=total, next_cursor=cursor_after(rows, limit))


def _build_fields(row: Row[Any], builds_by_id: Builds) -> dict[str, Any]:
    (status, error), build = status_of(row, builds_by_id), builds_by_id.get(row.build_id)
    return {"status": status, "error": error, "snapshot_id": None if build is None else build.snapshot_id}


def _view(row: Row[Any], builds_by_id: Builds) -> Deployment:
    build = builds_by_id.get(row.build_id)
    latest = None if build is None else build_view(build)
    return Deployment.from_row(row, **_build_fields(row, builds_by_id), latest_build=latest)


def _instance_view(instance: Row[Any], status: Status, error: str | None) -> HarborInstance:
    own_id = instance_id(instance.deployment_id, instance.seed)
    return HarborInstance.from_row(instance, id=own_id, status=status, error=error)


def _instance_counts(row: Row[Any], builds_by_id: Builds) -> dict[str, int]:
    status, total = status_of(row, builds_by_id)[0], row.instance_count
    return {
        "total": total,
        "ready_count": total if status is Status.READY else 0,
        "building_count": total if status in (Status.BUILDING, Status.PENDING) else 0,
        "failed_count": total if status is Status.FAILED else 0,
    }


def _seeds_of(body: InstanceBatch) -> Sequence[int]:
    if (body.count is None) == (body.seeds is None):
        raise RequestError("seeds", "instances: give either count (with start_seed) or seeds")
    if body.count is not None:
        seeds: Sequence[int] = range(body.start_seed, body.start_seed + body.count)
    else:
        seeds = sorted(set(body.seeds or ()))
    if seeds[-1] > MAX_SEED:
        raise RequestError("seeds", f"instances: seed {seeds[-1]} is too large; they end at {MAX_SEED}")
    return seeds


def _add_instances(connection: Connection, deployment_id: str, tasks: Sequence[tuple[int, str]]) -> int:
    """Add the seeds that are not there yet, and return how many those were."""
    now = time.time()
    rows = [{"deployment_id": deployment_id, "seed": seed, "task_id": task, "created_at": now} for seed, task in tasks]
    statement = _insert_if_new(connection, instance_table).returning(instance_table.c.seed)
    count = 0
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        count += len(connection.execute(statement, rows[start : start + _ROWS_AT_ONCE]).all())
    own = update(deployments).where(deployments.c.id == deployment_id)
    connection.execute(own.values(instance_count=deployments.c.instance_count + count))
    return count


def _add_contexts(connection: Connection, sent: Sequence[_Context]) -> None:
    for context in sent:
        present = select(contexts.c.digest).where(contexts.c.digest == context.sha256)
        if connection.execute(present).first() is None:
            row = {"digest": context.sha256, "size_bytes": len(context.archive), "archive": context.archive}
            connection.execute(_insert_if_new(connection, contexts), [{**row, "created_at": time.time()}])


def _insert_if_new(connection: Connection, table: Any) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing()


def _add_version(connection: Connection, values: dict[str, Any]) -> Row[Any]:
    """Add a version after the last one of its name, or return the one with the same digest."""
    is_named = deployments.c.name == values["name"]
    same = connection.execute(select(deployments).where(is_named, deployments.c.digest == values["digest"])).first()
    if same is not None:
        return same
    last = connection.execute(select(func.max(deployments.c.version)).where(is_named)).scalar()
    row = {**values, "id": new_id("dep"), "version": (last or 0) + 1, "created_at": time.time()}
    return connection.execute(insert(deployments).values(**row).returning(deployments)).one()


def _decode(service: Service, text: str, field: str) -> _Context:
    """Return a context that was sent, refused where it is no base64, too large, or an archive that is refused."""
    archive_mb = service.settings.archive_mb
    limit = archive_mb << 20
    if len(text) > limit * 4 // 3 + 4:
        raise RequestError("too_large", f"{field}: is too large; {archive_mb} MB are accepted")
    try:
        archive = base64.b64decode(text, validate=True)
        info = check_archive(archive, ArchiveLimits(archive_bytes=limit))
    except (binascii.Error, ValueError):
        raise RequestError("not_base64", f"{field}: is no base64; send a tar.gz so encoded") from None
    except DataError as error:
        raise RequestError("archive", f"{field}: {error}") from None
    return _Context(archive, sha256_bytes(archive), info)


def _deployment_values(
    body: DeploymentCreate, context: _Context, verifier_context: _Context | None, dockerfile: str
) -> dict[str, Any]:
    texts = {"entrypoint": body.entrypoint, "dockerfile": dockerfile}
    if fault := next(find_faults(body.env_vars, body.metadata, body.tasks, texts), None):
        raise RequestError(*fault)
    fields = {"limits", "tasks", "verifier"}
    values = body.model_dump(mode="json", include=fields, exclude={"verifier": {"context_tar_base64"}})
    values |= {"dockerfile": dockerfile, "entrypoint": body.entrypoint}
    values |= {"env_vars": body.env_vars, "metadata": body.metadata}
    values["entrypoint_mode"] = "stdio" if body.entrypoint_mode == "command" else body.entrypoint_mode
    # what is in the archives, not how it was packed
    contents = [None if sent is None else sent.info.content_sha256 for sent in (context, verifier_context)]
    digests: dict[str, Any] = {"digest": digest([values, contents]), "context_digest": context.sha256}
    digests["verifier_context_digest"] = None if verifier_context is None else verifier_context.sha256
    return {"name": body.name, "description": body.description, **digests, **values}
