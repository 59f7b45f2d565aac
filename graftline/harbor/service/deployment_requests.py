"""What the routes of deployments call: from a message to rows, in one transaction each, and the answer from them."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row
from sqlalchemy.exc import IntegrityError

from graftline.core.errors import ConfigError, DataError
from graftline.core.hashing import digest, sha256_bytes
from graftline.harbor.archive import ArchiveInfo, check_archive
from graftline.harbor.build_spec import TaskSeed
from graftline.harbor.contract import MAX_SEED
from graftline.harbor.refusal import RequestError
from graftline.harbor.secret_finds import finds_in, is_secret_name
from graftline.harbor.service import deployments as stored
from graftline.harbor.service import views
from graftline.harbor.service.database import is_taken
from graftline.harbor.service.lookups import (
    Parts,
    cursor_after,
    deployment_of,
    place_of,
    task_ids,
)
from graftline.harbor.service.schemas import (
    MAX_PAGE,
    BatchView,
    BuildRequest,
    BuildView,
    DeploymentCreate,
    DeploymentPage,
    DeploymentStatusView,
    DeploymentView,
    InstanceBatch,
    InstancePage,
    Status,
)
from graftline.harbor.tar_stream import ArchiveLimits
from graftline.sandbox.file_names import path_of

_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Context:
    """A context that was sent, and found to be sound."""

    archive: bytes
    sha256: str
    info: ArchiveInfo


class Deployments:
    """Deployments, their builds and instances; safe to be called from many threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def create(self, asked: DeploymentCreate) -> DeploymentView:
        """Make a version of a deployment, or find the one that is the same, and have it built if that is asked for."""
        context = self._archive(asked.context_tar_base64, "context_tar_base64")
        verifier_context = None
        if asked.verifier is not None:
            verifier_context = self._archive(asked.verifier.context_tar_base64, "verifier.context_tar_base64")
        dockerfile = asked.dockerfile if asked.dockerfile is not None else context.info.dockerfile or ""
        if self._parts.needs_dockerfile and not dockerfile.strip():
            raise RequestError(
                "no_dockerfile", f"dockerfile: executor {self._parts.executor!r} builds images, and needs one"
            )
        row = _deployment_row(asked, context, verifier_context, dockerfile)
        for _ in range(_TRIES):
            try:
                return self._add(asked, row, [context, verifier_context])
            except IntegrityError as error:
                if not is_taken(error):
                    raise
        raise RequestError("conflict", f"deployment {asked.name!r}: others write to it all the time; ask again")

    def _add(self, asked: DeploymentCreate, row: Mapping[str, Any], sent: Sequence[_Context | None]) -> DeploymentView:
        with self._parts.database.writing() as connection:
            for context in sent:
                if context is not None:
                    stored.add_context(connection, context.sha256, context.archive)
            deployment = stored.add_deployment(connection, row)
            if asked.auto_build and deployment.build_id is None:
                deployment = self._build(connection, deployment, is_forced=False)
            view = views.deployment_view(deployment, stored.builds_of(connection, [deployment]))
        self._parts.workers.wake()
        return view

    def _build(self, connection: Connection, deployment: Row[Any], is_forced: bool) -> Row[Any]:
        """Have a deployment built, and return it as it is then."""
        first = stored.ask_for_build(
            connection, deployment.context_digest, deployment.dockerfile, self._parts.executor, is_forced
        )
        second = None
        if deployment.verifier_context_digest is not None:
            second = stored.ask_for_build(
                connection, deployment.verifier_context_digest, deployment.dockerfile, self._parts.executor, is_forced
            )
        stored.set_builds(connection, deployment.id, first, second)
        found = stored.find_deployment(connection, deployment.id)
        assert found is not None
        return found

    def get(self, id_or_name: str) -> DeploymentView:
        """Return a deployment by its id, or the newest version of a name."""
        with self._parts.database.reading() as connection:
            found = deployment_of(connection, id_or_name)
            return views.deployment_view(found, stored.builds_of(connection, [found]))

    def status(self, id_or_name: str) -> DeploymentStatusView:
        """Return what a deployment waits for."""
        with self._parts.database.reading() as connection:
            found = deployment_of(connection, id_or_name)
            return views.deployment_status_view(found, stored.builds_of(connection, [found]))

    def page(
        self, name: str | None, status: Status | None, limit: int, offset: int, cursor: str | None
    ) -> DeploymentPage:
        """Return deployments, newest first, and how many there are; those of a status are looked for among all."""
        if status is not None:
            return self._page_of_status(name, status, limit, offset)
        with self._parts.database.reading() as connection:
            found, total = stored.deployment_page(connection, name, limit, offset, place_of(cursor))
            known = stored.builds_of(connection, found)
        shown = [views.deployment_view(one, known) for one in found]
        last = found[-1] if len(found) == limit else None
        return DeploymentPage(deployments=shown, total=total, next_cursor=cursor_after(last))

    def _page_of_status(self, name: str | None, status: Status, limit: int, offset: int) -> DeploymentPage:
        chosen: list[DeploymentView] = []
        cursor: str | None = None
        while True:
            page = self.page(name, None, MAX_PAGE, 0, cursor)
            chosen += [one for one in page.deployments if one.status is status]
            if (cursor := page.next_cursor) is None:
                return DeploymentPage(deployments=chosen[offset : offset + limit], total=len(chosen))

    def build(self, id_or_name: str, asked: BuildRequest) -> BuildView:
        """Have a deployment built: once, whoever asks for it at the same time, and again only by `force`."""
        with self._parts.database.writing() as connection:
            found = deployment_of(connection, id_or_name)
            self._check_same_context(found, asked)
            built = self._build(connection, found, asked.force)
            view = views.build_view(stored.builds_of(connection, [built])[built.build_id])
        self._parts.workers.wake()
        return view

    def _check_same_context(self, deployment: Row[Any], asked: BuildRequest) -> None:
        is_other = asked.dockerfile is not None and asked.dockerfile != deployment.dockerfile
        if asked.context_tar_base64 is not None:
            context = self._archive(asked.context_tar_base64, "context_tar_base64")
            is_other = is_other or context.sha256 != deployment.context_digest
        if is_other:
            raise RequestError(
                "other_context",
                f"deployment {deployment.id!r}: never changes, and this is another context or Dockerfile; create a"
                f" deployment of the name {deployment.name!r} from it, which is a new version",
            )

    def add_instances(self, id_or_name: str, asked: InstanceBatch) -> BatchView:
        """Have instances of seeds; those that are there stay as they are."""
        if (asked.count is None) == (asked.seeds is None):
            raise RequestError("seeds", "instances: give either count (with start_seed) or seeds")
        if asked.seeds is not None:
            seeds: Sequence[int] = sorted(set(asked.seeds))
        else:
            assert asked.count is not None
            seeds = range(asked.start_seed, asked.start_seed + asked.count)
        if seeds[-1] > MAX_SEED:
            raise RequestError("seeds", f"instances: seed {seeds[-1]} is too large; they end at {MAX_SEED}")
        with self._parts.database.writing() as connection:
            deployment = deployment_of(connection, id_or_name)
            tasks = task_ids(deployment, seeds)
            created = stored.add_instances(connection, deployment.id, zip(seeds, tasks, strict=True))
            shown = (
                stored.instance_page(connection, deployment.id, -1, MAX_PAGE, list(seeds))
                if len(seeds) <= MAX_PAGE
                else []
            )
            counts, status, error = _instance_counts(connection, deployment_of(connection, deployment.id))
        views_of = [views.instance_view(one, status, error) for one in shown]
        return BatchView(**counts, created=created, instances=views_of)

    def instances(self, id_or_name: str, status: Status | None, limit: int, cursor: str | None) -> InstancePage:
        """Return instances by seed."""
        after = -1 if cursor is None else int(cursor)
        with self._parts.database.reading() as connection:
            deployment = deployment_of(connection, id_or_name)
            counts, at, error = _instance_counts(connection, deployment)
            found = (
                stored.instance_page(connection, deployment.id, after, limit) if status is None or status is at else []
            )
        shown = [views.instance_view(one, at, error) for one in found]
        return InstancePage(**counts, instances=shown, next_cursor=str(found[-1].seed) if len(found) == limit else None)

    def build_all(self, id_or_name: str) -> tuple[int, int]:
        """Have what instances need built, and return how many there are, and how many are ready."""
        self.build(id_or_name, BuildRequest())
        with self._parts.database.reading() as connection:
            counts, _, _ = _instance_counts(connection, deployment_of(connection, id_or_name))
        return counts["total"], counts["ready_count"]

    def _archive(self, text: str, where: str) -> _Context:
        """Return an archive that was sent, and what is in it.

        Raises:
            RequestError: it is no base64, too large, or an archive that is refused.
        """
        most = self._parts.settings.archive_mb << 20
        if len(text) > most * 4 // 3 + 4:
            raise RequestError("too_large", f"{where}: is too large; {self._parts.settings.archive_mb} MB are accepted")
        try:
            archive = base64.b64decode(text, validate=True)
            info = check_archive(archive, ArchiveLimits(archive_bytes=most))
        except (binascii.Error, ValueError):
            raise RequestError("not_base64", f"{where}: is no base64; send a tar.gz so encoded") from None
        except DataError as error:
            raise RequestError("archive", f"{where}: {error}") from None
        return _Context(archive, sha256_bytes(archive), info)


def _deployment_row(
    asked: DeploymentCreate, context: _Context, verifier_context: _Context | None, dockerfile: str
) -> dict[str, Any]:
    seeds = [task.seed for task in asked.tasks]
    if len(set(seeds)) < len(seeds):
        raise RequestError("tasks", "tasks: two of them have the same seed")
    for task in asked.tasks:
        _check_folders(task)
    verifier = None
    if asked.verifier is not None:
        verifier = asked.verifier.model_dump(mode="json", exclude={"context_tar_base64"})
    for name in asked.env_vars:
        if not name.isidentifier():
            raise RequestError("env_vars", f"env_vars: {name[:80]!r} is no name of a variable")
    _check_secrets(asked, dockerfile)
    values = {
        "dockerfile": dockerfile,
        "entrypoint": asked.entrypoint,
        "entrypoint_mode": "stdio" if asked.entrypoint_mode == "command" else asked.entrypoint_mode,
        "limits": asked.limits.model_dump(),
        "env_vars": asked.env_vars,
        "metadata": asked.metadata,
        "tasks": [task.model_dump(mode="json") for task in asked.tasks],
        "verifier": verifier,
    }
    # what is in the archives, not how it was packed
    contents = [None if one is None else one.info.content_sha256 for one in (context, verifier_context)]
    try:
        sha256 = digest([values, contents])
    except ValueError as error:
        raise RequestError("not_json", f"the deployment holds what JSON cannot say ({error})") from None
    return {
        "name": asked.name,
        "digest": sha256,
        "description": asked.description,
        "context_digest": context.sha256,
        "verifier_context_digest": None if verifier_context is None else verifier_context.sha256,
        **values,
    }


def _check_secrets(asked: DeploymentCreate, dockerfile: str) -> None:
    """Refuse secrets, which would be in a database and in images: boxes get them when they run (`pass_on`)."""
    named = next((name for name in asked.env_vars if is_secret_name(name)), None)
    told = {"env_vars": asked.env_vars, "metadata": asked.metadata, "entrypoint": asked.entrypoint}
    try:
        found = next(finds_in({**told, "dockerfile": dockerfile}, "deployment"), None)
    except ValueError as error:
        raise RequestError("not_json", str(error)) from None
    if named is not None or found is not None:
        what = str(found) if found is not None else f"env_vars: {named!r} is the name of a secret"
        raise RequestError("secret", f"{what}; leave it out, and have the service pass it on to boxes")


def _check_folders(task: TaskSeed) -> None:
    for name in (*task.agent_files, *task.verifier_files):
        try:
            path_of(name)
        except (DataError, ConfigError) as error:
            raise RequestError("tasks", f"task {task.task_id!r}: {error}") from None


def _instance_counts(connection: Connection, deployment: Row[Any]) -> tuple[dict[str, int], Status, str | None]:
    known = stored.builds_of(connection, [deployment])
    status = stored.status_of(deployment, known)
    total = deployment.instance_count
    counts = {
        "total": total,
        "ready_count": total if status is Status.READY else 0,
        "building_count": total if status in (Status.BUILDING, Status.PENDING) else 0,
        "failed_count": total if status is Status.FAILED else 0,
    }
    return counts, status, views.error_of(deployment, known)
