"""The queue: who comes next, who holds what, and what became of it. Queries only; callers begin and end the transaction.

Rollouts, builds and prompt optimizations are rows with a lease. Whoever claims one renews its lease until it ends; one whose
worker is dead, or has said nothing for too long, waits again.

Flows of rollouts take turns. A flow is a job, or a deployment outside of jobs; what it adds stands behind its own last one, and
not before the turn that the queue is at, so that a thousand rollouts of one flow let one of another through at once
(start-time fair queuing, Goyal, Vin, Cheng 1996, with all rollouts of equal length).
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Table, and_, func, insert, or_, select, update

from graftline.harbor.contract import FailureCause
from graftline.harbor.executors.base import Execution
from graftline.harbor.leases import is_dead
from graftline.harbor.messages import OPEN_JOBS, OPEN_ROLLOUTS, BuildStatus, JobStatus, RolloutStatus
from graftline.harbor.refusal import not_found
from graftline.harbor.service.http import check_same_request
from graftline.harbor.service.tables import attempts, builds, deployments, jobs, new_id, rollouts

EVALUATION, PROMPT_LEARNING = "evaluation", "prompt_learning"
_SPARE_CANDIDATES = 4
_SHOWN_CHARACTERS = 2000
_JOB_COLUMNS = (
    *(jobs.c.max_concurrent, jobs.c.max_rollouts, jobs.c.max_usd, jobs.c.max_tokens),
    *(jobs.c.spent_rollouts, jobs.c.spent_usd, jobs.c.spent_tokens, jobs.c.unknown_usd, jobs.c.unknown_tokens),
)
_LEASED = (
    # the rows of rollouts before those of jobs, as everywhere: else PostgreSQL meets deadlocks
    (rollouts, (rollouts.c.status == RolloutStatus.RUNNING,), {"status": RolloutStatus.QUEUED, "not_before": 0.0}),
    (builds, (builds.c.status == BuildStatus.BUILDING,), {"status": BuildStatus.PENDING}),
    (jobs, (jobs.c.kind == PROMPT_LEARNING, jobs.c.status == JobStatus.RUNNING), {"status": JobStatus.PENDING}),
)
"""Of each kind, which rows somebody holds, and what such a row becomes when it waits again."""


def claim_oldest(
    connection: Connection, table: Table, owner: str, lease_s: float, *conditions: Any, **values: Any
) -> Row[Any] | None:
    """Take the oldest build or job that waits and fits; from then on it is `owner`'s for as long as the lease is renewed."""
    now = time.time()
    is_free = or_(table.c.lease_until.is_(None), table.c.lease_until <= now)
    query = select(table).where(table.c.status == "pending", is_free, *conditions)
    query = query.order_by(table.c.created_at, table.c.id).limit(1).with_for_update(skip_locked=True)
    row = connection.execute(query).first()
    if row is not None:
        lease = {"lease_owner": owner, "lease_until": now + lease_s}
        connection.execute(update(table).where(table.c.id == row.id).values(**lease, **values))
    return row


def release(connection: Connection, table: Table, row_id: str, owner: str, **values: Any) -> bool:
    """End, or queue again, what `owner` holds; False where it holds it no longer, and then nothing is changed."""
    held = update(table).where(table.c.id == row_id, table.c.lease_owner == owner)
    return connection.execute(held.values(**{"lease_owner": None, "lease_until": None, **values})).rowcount == 1


def renew(connection: Connection, owner: str, lease_s: float) -> set[str]:
    """Say that `owner` is alive, and return which rollouts and jobs that it holds are to end."""
    until = time.time() + lease_s
    for table, _, _ in _LEASED:
        connection.execute(update(table).where(table.c.lease_owner == owner).values(lease_until=until))
    cancelled = select(rollouts.c.id).where(rollouts.c.lease_owner == owner, rollouts.c.is_cancelled)
    stopped = select(jobs.c.id).where(jobs.c.lease_owner == owner, jobs.c.status != JobStatus.RUNNING)
    return {*connection.execute(cancelled).scalars(), *connection.execute(stopped).scalars()}


def lost_rows(connection: Connection, owner: str, held: Collection[str]) -> list[tuple[Table, Row[Any]]]:
    """Return what looks as if it ran, and whose worker is gone; of `owner`, everything but what it says it has `held`."""
    now = time.time()
    lost = []
    for table, conditions, _ in _LEASED:
        for row in connection.execute(select(table).where(*conditions)):
            is_late = row.lease_owner is None or row.lease_until < now
            if row.id not in held if row.lease_owner == owner else is_late or is_dead(row.lease_owner):
                lost.append((table, row))
    return lost


def requeue(connection: Connection, table: Table, row: Row[Any], **values: Any) -> bool:
    """Have a row that somebody held wait again; False where they hold it no longer."""
    waiting = next(waiting for leased, _, waiting in _LEASED if leased is table)
    holder = table.c.lease_owner.is_not_distinct_from(row.lease_owner)
    statement = update(table).where(table.c.id == row.id, holder)
    return (
        connection.execute(statement.values(**{"lease_owner": None, "lease_until": None, **waiting, **values})).rowcount
        == 1
    )


def next_turns(connection: Connection, flow: str, count: int) -> range:
    """Return the turns that the next `count` rollouts of a flow get."""
    is_waiting = rollouts.c.status == RolloutStatus.QUEUED
    now = connection.execute(select(func.min(rollouts.c.turn)).where(is_waiting)).scalar()
    last = connection.execute(select(func.max(rollouts.c.turn)).where(rollouts.c.flow == flow, is_waiting)).scalar()
    first = max(0 if now is None else now, -1 if last is None else last + 1)
    return range(first, first + count)


def count_waiting(connection: Connection, flow: str) -> tuple[int, int]:
    """Return how many rollouts wait, of all flows and of this one."""
    own = func.count().filter(rollouts.c.flow == flow)
    query = select(func.count(), own).select_from(rollouts).where(rollouts.c.status == RolloutStatus.QUEUED)
    total, of_flow = connection.execute(query).one()
    return total, of_flow


@dataclass(frozen=True, slots=True)
class Claim:
    """What a worker has taken, and the jobs of which nothing more may be taken."""

    rollouts: list[Row[Any]]
    used_up: dict[str, str]
    """Why, by the id of the job."""


def claim_rollouts(
    connection: Connection,
    owner: str,
    lease_s: float,
    executor: str,
    limit: int,
    limit_of_deployment: int,
    longest_pause_s: float = 3600.0,
) -> Claim:
    """Take up to `limit` rollouts whose turn it is; from then on they are `owner`'s for as long as the lease is renewed.

    Args:
        limit_of_deployment: How many of one deployment may run at the same time, outside of jobs; a job has its own limit.
        longest_pause_s: What no rollout waits longer than; one that has to was put back before the clock was set back.
    """
    now = time.time()
    claim = Claim([], {})
    query = select(rollouts.c.flow, func.count()).where(rollouts.c.status == RolloutStatus.RUNNING)
    running = Counter({str(row[0]): int(row[1]) for row in connection.execute(query.group_by(rollouts.c.flow))})
    full: set[str] = set()
    batch = limit + _SPARE_CANDIDATES
    # each round takes what the flows have room for; a flow that is full leaves its place to the next
    while len(claim.rollouts) < limit:
        candidates = _candidates(connection, now, longest_pause_s, full, batch)
        for row in candidates:
            if len(claim.rollouts) == limit:
                break
            if (
                running[row.flow] >= (limit_of_deployment if row.job_id is None else row.max_concurrent)
                or row.flow in full
            ):
                full.add(row.flow)
            elif row.job_id is not None and (reason := _find_limit(row, claim) or _count_start(connection, row)):
                claim.used_up[row.job_id] = reason
                full.add(row.flow)
            else:
                running[row.flow] += 1
                _take(connection, row, owner, now + lease_s, executor, now)
                claim.rollouts.append(row)
        if len(candidates) < batch:
            break
    return claim


def _candidates(
    connection: Connection, now: float, longest_pause_s: float, full: Collection[str], limit: int
) -> Sequence[Row[Any]]:
    first, second = builds.alias("first_build"), builds.alias("second_build")
    query = (
        select(rollouts, *_JOB_COLUMNS)
        .select_from(
            rollouts.join(deployments, deployments.c.id == rollouts.c.deployment_id)
            .join(first, first.c.id == deployments.c.build_id)
            .outerjoin(second, second.c.id == deployments.c.verifier_build_id)
            .outerjoin(jobs, jobs.c.id == rollouts.c.job_id)
        )
        .where(
            rollouts.c.status == RolloutStatus.QUEUED,
            or_(rollouts.c.not_before <= now, rollouts.c.not_before > now + longest_pause_s),
            first.c.status == BuildStatus.COMPLETED,
            or_(second.c.id.is_(None), second.c.status == BuildStatus.COMPLETED),
            rollouts.c.flow.not_in(full),
        )
        .order_by(rollouts.c.turn, rollouts.c.id)
        .limit(limit)
    )
    return connection.execute(query.with_for_update(of=rollouts, skip_locked=True)).all()


def _find_limit(row: Row[Any], claim: Claim) -> str:
    """Return which part of a job's budget is used up; empty where none is."""
    started = row.spent_rollouts + sum(1 for rollout in claim.rollouts if rollout.job_id == row.job_id)
    if row.max_rollouts is not None and started >= row.max_rollouts:
        return _all_started(row)
    for unit, limit, spent, unknown in (
        ("USD", row.max_usd, row.spent_usd, row.unknown_usd),
        ("tokens", row.max_tokens, row.spent_tokens, row.unknown_tokens),
    ):
        if limit is not None and unknown:
            return f"{unknown} attempts did not say how many {unit} they used, so that the budget of {limit} cannot be kept"
        if limit is not None and spent >= limit:
            return f"{spent} {unit} are spent, of {limit}"
    return ""


def _count_start(connection: Connection, row: Row[Any]) -> str:
    """Count a rollout against its job before it starts; where another process was faster, return what is used up."""
    has_room = or_(jobs.c.max_rollouts.is_(None), jobs.c.spent_rollouts < jobs.c.max_rollouts)
    statement = update(jobs).where(jobs.c.id == row.job_id, has_room).values(spent_rollouts=jobs.c.spent_rollouts + 1)
    return "" if connection.execute(statement).rowcount == 1 else _all_started(row)


def _all_started(row: Row[Any]) -> str:
    return f"{row.max_rollouts} rollouts were started, which is what the budget allows"


def _take(connection: Connection, row: Row[Any], owner: str, until: float, executor: str, now: float) -> None:
    values = {
        "status": RolloutStatus.RUNNING,
        "lease_owner": owner,
        "lease_until": until,
        "attempts": row.attempts + 1,
        "started_at": now if row.started_at is None else row.started_at,
    }
    connection.execute(update(rollouts).where(rollouts.c.id == row.id).values(**values))
    attempt = {"rollout_id": row.id, "number": row.attempts + 1, "executor": executor}
    connection.execute(insert(attempts).values(**attempt, owner=owner, started_at=now))


def end_attempt(connection: Connection, rollout_id: str, number: int, execution: Execution) -> None:
    """Write down how an attempt ended."""
    is_open = (attempts.c.rollout_id == rollout_id, attempts.c.number == number, attempts.c.finished_at.is_(None))
    values = {
        name: getattr(execution, name)
        for name in ("success_status", "failure_cause", "reward", "agent_s", "verify_s", "cost_usd", "tokens")
    }
    texts = {"error": storable(execution.error)[:_SHOWN_CHARACTERS] or None, "log": storable(execution.log)}
    connection.execute(
        update(attempts)
        .where(*is_open)
        .values(**values, **texts, result=execution.result or None, finished_at=time.time())
    )


def storable(text: str) -> str:
    """Return `text` as every database takes it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def cancel(connection: Connection, condition: Any, reason: str) -> None:
    """End what waits, and have ended what runs, of the rollouts that `condition` names."""
    cancel_waiting(connection, condition, reason)
    running = update(rollouts).where(condition, rollouts.c.status == RolloutStatus.RUNNING)
    connection.execute(running.values(is_cancelled=True))


def cancel_waiting(connection: Connection, condition: Any, reason: str) -> None:
    """End what waits of the rollouts that `condition` names, and leave what runs."""
    values = {"status": RolloutStatus.CANCELLED, "is_cancelled": True, "failure_cause": FailureCause.CANCELLED}
    _end_waiting(connection, condition, {**values, "error": reason})


def fail_waiting(connection: Connection, deployment_ids: Sequence[str], error: str) -> list[str]:
    """End what waits for builds that failed, and return which rollouts those were: none of them has a reward."""
    values = {"status": RolloutStatus.FAILED, "failure_cause": FailureCause.SANDBOX_FAILED}
    condition = rollouts.c.deployment_id.in_(deployment_ids)
    return _end_waiting(connection, condition, {**values, "error": error[:_SHOWN_CHARACTERS]})


def _end_waiting(connection: Connection, condition: Any, values: Mapping[str, Any]) -> list[str]:
    waiting = update(rollouts).where(and_(condition, rollouts.c.status == RolloutStatus.QUEUED))
    statement = waiting.values(**values, success_status="failure", finished_at=time.time()).returning(rollouts.c.id)
    return list(connection.execute(statement).scalars())


def find_job(connection: Connection, job_id: str, kind: str) -> Row[Any]:
    """Return a job of a kind."""
    row = None
    if "\0" not in job_id:
        row = connection.execute(select(jobs).where(jobs.c.id == job_id, jobs.c.kind == kind)).first()
    if row is None:
        raise not_found("job", job_id)
    return row


def find_or_add_job(
    connection: Connection, key: str, request_digest: str, values: Mapping[str, Any]
) -> tuple[Row[Any], bool]:
    """Return the job that was asked for with a key, and whether it is new.

    Raises:
        IntegrityError: another process has just added it.
    """
    row = connection.execute(select(jobs).where(jobs.c.key == key)).first()
    if row is not None:
        check_same_request(row, key, request_digest)
        return row, False
    own = {"id": new_id("job"), "key": key, "request_digest": request_digest, "created_at": time.time()}
    return connection.execute(insert(jobs).values(**own, **values).returning(jobs)).one(), True


def stop_job(connection: Connection, job_id: str, status: JobStatus, error: str | None) -> None:
    """End a job before its rollouts have: what waits is cancelled, what runs is ended."""
    cancel(connection, rollouts.c.job_id == job_id, error if error is not None else "its job was cancelled")
    open_job = update(jobs).where(jobs.c.id == job_id, jobs.c.status.in_(OPEN_JOBS))
    connection.execute(open_job.values(status=status, error=error, finished_at=time.time()))


def stop_beginning(connection: Connection, job_id: str, reason: str) -> None:
    """Begin nothing more of a job: what waits is cancelled, what runs is finished and counts; the job ends after it."""
    cancel_waiting(connection, rollouts.c.job_id == job_id, reason)
    connection.execute(update(jobs).where(jobs.c.id == job_id, jobs.c.status.in_(OPEN_JOBS)).values(error=reason))
    end_if_done(connection, job_id)


def count_spending(connection: Connection, job_id: str, execution: Execution) -> None:
    """Count what an attempt used against its job."""
    usd, tokens = execution.cost_usd, execution.tokens
    values = {
        "spent_usd": jobs.c.spent_usd + (usd or 0.0),
        "spent_tokens": jobs.c.spent_tokens + (tokens or 0),
        "unknown_usd": jobs.c.unknown_usd + int(usd is None),
        "unknown_tokens": jobs.c.unknown_tokens + int(tokens is None),
    }
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def end_if_done(connection: Connection, job_id: str) -> bool:
    """End an evaluation whose rollouts all have ended; return whether it has."""
    # the job first: of two whose rollouts end at the same time, the second has to see the first one's
    job = connection.execute(select(jobs).where(jobs.c.id == job_id).with_for_update()).one()
    if job.status not in OPEN_JOBS:
        return True
    query = select(rollouts.c.status, func.count()).where(rollouts.c.job_id == job_id).group_by(rollouts.c.status)
    counts = {str(row[0]): int(row[1]) for row in connection.execute(query)}
    if any(status in counts for status in OPEN_ROLLOUTS):
        return False
    coverage = counts.get(RolloutStatus.COMPLETED, 0) / max(1, job.total)
    is_whole = job.error is None and coverage >= job.config.get("min_coverage", 1.0)
    status = JobStatus.COMPLETED if is_whole else JobStatus.COMPLETED_WITH_ERRORS
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(status=status, finished_at=time.time()))
    return True


def open_evaluations(connection: Connection) -> list[str]:
    """Return the evaluations that have not ended."""
    query = select(jobs.c.id).where(jobs.c.status.in_(OPEN_JOBS), jobs.c.kind == EVALUATION)
    return list(connection.execute(query).scalars())
