"""What requests name, found or refused: deployments, their tasks, places in lists, archives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from graftline.harbor.refusal import RequestError, not_found
from graftline.harbor.service import deployments as stored
from graftline.harbor.service import jobs as stored_jobs
from graftline.harbor.service import views
from graftline.harbor.service.database import Database
from graftline.harbor.service.schemas import Status
from graftline.harbor.service.settings import ServiceSettings
from graftline.harbor.service.workers import Workers

RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What requests work with."""

    database: Database
    workers: Workers
    settings: ServiceSettings
    executor: str
    needs_dockerfile: bool


def deployment_of(connection: Connection, id_or_name: str) -> Row[Any]:
    """Return a deployment by its id, or the newest version of a name."""
    found = None if "\0" in id_or_name else stored.find_deployment(connection, id_or_name)
    if found is None:
        raise not_found("deployment", id_or_name)
    return found


def job_of(connection: Connection, job_id: str, kind: str) -> Row[Any]:
    """Return a job of a kind."""
    found = None if "\0" in job_id else stored_jobs.find(connection, job_id, kind)
    if found is None:
        raise not_found("job", job_id)
    return found


def task_ids(deployment: Row[Any], seeds: Sequence[int]) -> list[str]:
    """Return the tasks that seeds stand for; one that stands for none is refused, not counted from the start again."""
    if not deployment.tasks:
        return [str(seed) for seed in seeds]
    known = {task["seed"]: task["task_id"] for task in deployment.tasks}
    if unknown := [seed for seed in seeds if seed not in known]:
        raise RequestError(
            "unknown_seed",
            f"deployment {deployment.id!r}: seed {unknown[0]} stands for no task; it has {len(known)} tasks, of the seeds"
            f" {min(known)} to {max(known)}",
            {"seeds": unknown[:100]},
        )
    return [known[seed] for seed in seeds]


def check_runs(connection: Connection, deployment: Row[Any]) -> None:
    """Refuse rollouts of what can never run."""
    known = stored.builds_of(connection, [deployment])
    status = stored.status_of(deployment, known)
    if status is Status.FAILED:
        error = views.error_of(deployment, known)
        raise RequestError("build_failed", f"deployment {deployment.id!r}: its build failed ({error}); mend it")
    if deployment.build_id is None:
        raise RequestError("not_built", f"deployment {deployment.id!r}: was never built; POST …/build first")


def mismatch(key: str) -> RequestError:
    """Return the refusal of a key that was used for something else."""
    return RequestError(
        "idempotency_mismatch",
        f"key {key[:80]!r}: was used for another request; send the same body, or take a new key",
    )


def place_of(cursor: str | None) -> tuple[float, str] | None:
    """Return where in a list of the newest a page begins; the route sees to the form of `cursor`."""
    if cursor is None:
        return None
    at, _, last = cursor.partition("~")
    return float.fromhex(at), last


def cursor_after(row: Row[Any] | None) -> str | None:
    """Return what names the place after a row."""
    return None if row is None else f"{row.created_at.hex()}~{row.id}"
