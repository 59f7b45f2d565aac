"""Prompt optimizations as rows: taken by one worker at a time, with their journal and their events."""

import time
from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import Connection, Row, func, insert, select, update

from graftline.harbor.leases import is_dead
from graftline.harbor.service.job_schemas import JobStatus
from graftline.harbor.service.jobs import PROMPT_LEARNING
from graftline.harbor.service.tables import job_lines, jobs

LineKind = Literal["journal", "event"]
_IS_ONE = jobs.c.kind == PROMPT_LEARNING


def claim(connection: Connection, owner: str, lease_s: float) -> Row[Any] | None:
    """Take the oldest one that waits, or whose worker is gone; None where there is none."""
    now = time.time()
    query = select(jobs).where(_IS_ONE, jobs.c.status.in_((JobStatus.PENDING, JobStatus.RUNNING)))
    for job in connection.execute(query.order_by(jobs.c.created_at, jobs.c.id)):
        if not job.config.get("auto_start", True) or not _is_free(job, owner, now):
            continue
        taken = (
            update(jobs)
            .where(
                jobs.c.id == job.id,
                jobs.c.status == job.status,
                jobs.c.lease_owner.is_not_distinct_from(job.lease_owner),
            )
            .values(status=JobStatus.RUNNING, lease_owner=owner, lease_until=now + lease_s)
        )
        if connection.execute(taken).rowcount:
            return job
    return None


def renew(connection: Connection, owner: str, lease_s: float) -> set[str]:
    """Keep what `owner` has for so much longer, and return it."""
    own = jobs.c.lease_owner == owner
    connection.execute(update(jobs).where(_IS_ONE, own).values(lease_until=time.time() + lease_s))
    query = select(jobs.c.id).where(_IS_ONE, own, jobs.c.status == JobStatus.RUNNING)
    return set(connection.execute(query).scalars())


def give_back(connection: Connection, job_id: str, owner: str) -> None:
    """Leave one to whoever comes next."""
    own = update(jobs).where(jobs.c.id == job_id, jobs.c.lease_owner == owner)
    connection.execute(own.values(lease_owner=None, lease_until=None))


def note_progress(connection: Connection, job_id: str, owner: str, done: int, total: int) -> None:
    """Say how far one is."""
    own = update(jobs).where(jobs.c.id == job_id, jobs.c.lease_owner == owner)
    connection.execute(own.values(progress=done, total=total))


def settle(
    connection: Connection, job_id: str, owner: str, status: JobStatus, error: str | None, result: Mapping[str, Any]
) -> bool:
    """Say what one came to, and return whether it was still its worker's to say; a cancelled one keeps its status."""
    job = connection.execute(select(jobs).where(jobs.c.id == job_id).with_for_update()).one()
    if job.lease_owner != owner:
        return False
    values: dict[str, Any] = {"result": dict(result), "lease_owner": None, "lease_until": None}
    if job.status == JobStatus.RUNNING:
        values |= {"status": status, "error": error, "finished_at": time.time()}
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))
    return bool(job.status == JobStatus.RUNNING)


def reopen(connection: Connection, job_id: str) -> None:
    """Have one that ended gone on with."""
    values = {"status": JobStatus.PENDING, "error": None, "finished_at": None}
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def append(connection: Connection, job_id: str, kind: LineKind, line: Mapping[str, Any]) -> None:
    """Add a line."""
    query = select(func.coalesce(func.max(job_lines.c.number), 0)).where(
        job_lines.c.job_id == job_id, job_lines.c.kind == kind
    )
    number = connection.execute(query).scalar_one() + 1
    connection.execute(insert(job_lines).values(job_id=job_id, kind=kind, number=number, line=dict(line)))


def lines(connection: Connection, job_id: str, kind: LineKind) -> list[dict[str, Any]]:
    """Return the lines of one kind, in their order."""
    query = select(job_lines.c.line).where(job_lines.c.job_id == job_id, job_lines.c.kind == kind)
    return list(connection.execute(query.order_by(job_lines.c.number)).scalars())


def _is_free(job: Row[Any], owner: str, now: float) -> bool:
    if job.lease_owner is None:
        return True
    return bool(job.lease_owner != owner and (job.lease_until < now or is_dead(job.lease_owner)))
