"""The queue of rollouts: who comes next, who holds what, and what became of it. Queries only.

Flows take turns. A flow is a job, or a deployment outside of jobs; what it adds stands behind its own last one, and not
before the turn that the queue is at, so that a thousand rollouts of one flow let one of another through at once
(start-time fair queuing, Goyal, Vin, Cheng 1996, with all rollouts of equal length).
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, or_, select, update

from graftline.harbor.contract import FailureCause
from graftline.harbor.executors.base import Execution
from graftline.harbor.service.schemas import BuildStatus, RolloutStatus
from graftline.harbor.service.tables import attempts, builds, deployments, jobs, rollouts

_SPARE = 4
_MOST_SHOWN = 2000
_OF_JOBS = (
    *("max_concurrent", "max_rollouts", "max_usd", "max_tokens"),
    *("spent_rollouts", "spent_usd", "spent_tokens", "unknown_usd", "unknown_tokens"),
)
OPEN = (RolloutStatus.QUEUED, RolloutStatus.RUNNING)

Found = Row[Any]


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a worker has taken, and the jobs of which nothing more may be taken."""

    rollouts: list[Found]
    used_up: dict[str, str]
    """Why, by the id of the job."""


def next_turns(connection: Connection, flow: str, count: int) -> range:
    """Return the turns that the next `count` rollouts of a flow get."""
    waiting = select(func.min(rollouts.c.turn)).where(rollouts.c.status == RolloutStatus.QUEUED)
    own = select(func.max(rollouts.c.turn)).where(rollouts.c.flow == flow, rollouts.c.status == RolloutStatus.QUEUED)
    found: Any = connection.execute(select(waiting.scalar_subquery(), own.scalar_subquery())).one()
    now, last = found
    first = max(0 if now is None else now, -1 if last is None else last + 1)
    return range(first, first + count)


def add_one(connection: Connection, row: Mapping[str, Any]) -> Found:
    """Put a rollout at its place in the queue, and return it.

    Raises:
        IntegrityError: another one has its key.
    """
    return connection.execute(insert(rollouts).values(**row).returning(rollouts)).one()


def add(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put rollouts at their places in the queue.

    Raises:
        IntegrityError: one of them has the key of another one.
    """
    connection.execute(insert(rollouts), [dict(row) for row in rows])


def counts_of_waiting(connection: Connection, flow: str) -> tuple[int, int]:
    """Return how many rollouts wait, of all flows and of this one."""
    own = func.count().filter(rollouts.c.flow == flow)
    everyone, of_flow = connection.execute(
        select(func.count(), own).select_from(rollouts).where(rollouts.c.status == RolloutStatus.QUEUED)
    ).one()
    return everyone, of_flow


def status_of(connection: Connection, rollout_id: str) -> RolloutStatus:
    """Return what a rollout that is there is at."""
    query = select(rollouts.c.status).where(rollouts.c.id == rollout_id)
    return RolloutStatus(connection.execute(query).scalar_one())


def find(connection: Connection, rollout_id: str) -> Found | None:
    """Return a rollout by its id."""
    return connection.execute(select(rollouts).where(rollouts.c.id == rollout_id)).first()


def find_key(connection: Connection, deployment_id: str, key: str) -> Found | None:
    """Return the rollout of a deployment that was asked for with this key."""
    query = select(rollouts).where(rollouts.c.deployment_id == deployment_id, rollouts.c.key == key)
    return connection.execute(query).first()


def attempts_at(connection: Connection, rollout_id: str) -> list[Found]:
    """Return all attempts at a rollout, oldest first."""
    query = select(attempts).where(attempts.c.rollout_id == rollout_id).order_by(attempts.c.number)
    return list(connection.execute(query))


def page(
    connection: Connection,
    limit: int,
    before: tuple[float, str] | None,
    deployment_id: str | None = None,
    status: RolloutStatus | None = None,
) -> list[Found]:
    """Return rollouts, newest first."""
    query = select(rollouts)
    if deployment_id is not None:
        query = query.where(rollouts.c.deployment_id == deployment_id)
    if status is not None:
        query = query.where(rollouts.c.status == status)
    if before is not None:
        at, last = before
        query = query.where(or_(rollouts.c.created_at < at, and_(rollouts.c.created_at == at, rollouts.c.id < last)))
    query = query.order_by(rollouts.c.created_at.desc(), rollouts.c.id.desc()).limit(limit)
    return list(connection.execute(query))


def claim(
    connection: Connection,
    owner: str,
    lease_s: float,
    executor: str,
    most: int,
    of_one: int,
    longest_pause_s: float = 3600.0,
) -> Claimed:
    """Take up to `most` rollouts whose turn it is; from then on they are `owner`'s for as long as it says so.

    Args:
        of_one: How many of one deployment may run at the same time, outside of jobs; a job has a figure of its own.
        longest_pause_s: What no rollout waits longer than; one that has to was put back before the clock was set back.
    """
    now = time.time()
    claimed = Claimed([], {})
    running = _running(connection)
    full: set[str] = set()
    looked_at = most + _SPARE
    # each round takes what the flows have room for; a flow that is full leaves its place to the next
    while len(claimed.rollouts) < most:
        found = _candidates(connection, now, longest_pause_s, full, looked_at)
        for row in found:
            if len(claimed.rollouts) == most:
                break
            if running[row.flow] >= (of_one if row.job_id is None else row.max_concurrent) or row.flow in full:
                full.add(row.flow)
            elif row.job_id is not None and (reason := _used_up(row, claimed) or _begin_in_job(connection, row)):
                claimed.used_up[row.job_id] = reason
                full.add(row.flow)
            else:
                running[row.flow] += 1
                _take(connection, row, owner, now + lease_s, executor, now)
                claimed.rollouts.append(row)
        if len(found) < looked_at:
            break
    return claimed


def _running(connection: Connection) -> Counter[str]:
    """Return of every flow how many of it run."""
    query = select(rollouts.c.flow, func.count()).where(rollouts.c.status == RolloutStatus.RUNNING)
    return Counter({str(row[0]): int(row[1]) for row in connection.execute(query.group_by(rollouts.c.flow))})


def _used_up(row: Found, claimed: Claimed) -> str:
    """Return which part of a job's budget is used up; empty where there is some left."""
    started = row.spent_rollouts + sum(1 for one in claimed.rollouts if one.job_id == row.job_id)
    if row.max_rollouts is not None and started >= row.max_rollouts:
        return _all_started(row)
    for unit, most, spent, unknown in (
        ("USD", row.max_usd, row.spent_usd, row.unknown_usd),
        ("tokens", row.max_tokens, row.spent_tokens, row.unknown_tokens),
    ):
        if most is not None and unknown:
            return (
                f"{unknown} attempts did not say how many {unit} they used, so that the budget of {most} cannot be kept"
            )
        if most is not None and spent >= most:
            return f"{spent} {unit} are spent, of {most}"
    return ""


def _begin_in_job(connection: Connection, row: Found) -> str:
    """Count a rollout against its job before it starts; where another process was faster, return what is used up."""
    has_room = or_(jobs.c.max_rollouts.is_(None), jobs.c.spent_rollouts < jobs.c.max_rollouts)
    spent = jobs.c.spent_rollouts + 1
    counted = connection.execute(update(jobs).where(jobs.c.id == row.job_id, has_room).values(spent_rollouts=spent))
    return "" if counted.rowcount == 1 else _all_started(row)


def _all_started(row: Found) -> str:
    return f"{row.max_rollouts} rollouts were started, which is what the budget allows"


def _candidates(
    connection: Connection, now: float, longest_pause_s: float, full: Collection[str], most: int
) -> list[Found]:
    first, second = builds.alias("first_build"), builds.alias("second_build")
    query = (
        select(rollouts, *(jobs.c[name] for name in _OF_JOBS))
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
        )
    )
    if full:
        query = query.where(rollouts.c.flow.not_in(full))
    query = query.order_by(rollouts.c.turn, rollouts.c.id).limit(most)
    return list(connection.execute(query.with_for_update(of=rollouts, skip_locked=True)))


def _take(connection: Connection, row: Found, owner: str, until: float, executor: str, now: float) -> None:
    connection.execute(
        update(rollouts)
        .where(rollouts.c.id == row.id)
        .values(
            status=RolloutStatus.RUNNING,
            lease_owner=owner,
            lease_until=until,
            attempts=row.attempts + 1,
            started_at=now if row.started_at is None else row.started_at,
        )
    )
    attempt = {
        "rollout_id": row.id,
        "number": row.attempts + 1,
        "executor": executor,
        "owner": owner,
        "started_at": now,
    }
    connection.execute(insert(attempts).values(**attempt))


def end_attempt(connection: Connection, rollout_id: str, number: int, execution: Execution) -> None:
    """Write down how an attempt ended."""
    connection.execute(
        update(attempts)
        .where(attempts.c.rollout_id == rollout_id, attempts.c.number == number, attempts.c.finished_at.is_(None))
        .values(
            finished_at=time.time(),
            success_status=execution.success_status,
            failure_cause=execution.failure_cause,
            error=plain(execution.error)[:_MOST_SHOWN] or None,
            reward=execution.reward,
            agent_s=execution.agent_s,
            verify_s=execution.verify_s,
            cost_usd=execution.cost_usd,
            tokens=execution.tokens,
            log=plain(execution.log),
            result=execution.result or None,
        )
    )


def plain(text: str) -> str:
    """Return `text` as every database takes it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def settle(connection: Connection, rollout_id: str, owner: str, values: Mapping[str, Any]) -> bool:
    """End a rollout; False where it is no longer `owner`'s, and then nothing is changed."""
    changed = connection.execute(
        update(rollouts)
        .where(rollouts.c.id == rollout_id, rollouts.c.status == RolloutStatus.RUNNING, rollouts.c.lease_owner == owner)
        .values(finished_at=time.time(), lease_owner=None, lease_until=None, **values)
    )
    return changed.rowcount == 1


def put_back(connection: Connection, rollout_id: str, owner: str, not_before: float) -> bool:
    """Queue a rollout again, at its old place; False where it is no longer `owner`'s."""
    changed = connection.execute(
        update(rollouts)
        .where(rollouts.c.id == rollout_id, rollouts.c.status == RolloutStatus.RUNNING, rollouts.c.lease_owner == owner)
        .values(status=RolloutStatus.QUEUED, lease_owner=None, lease_until=None, not_before=not_before)
    )
    return changed.rowcount == 1


def renew(connection: Connection, owner: str, lease_s: float) -> None:
    """Say that `owner` is alive."""
    until = time.time() + lease_s
    for table in (rollouts, builds):
        connection.execute(update(table).where(table.c.lease_owner == owner).values(lease_until=until))


def cancelled_of(connection: Connection, owner: str) -> set[str]:
    """Return which of `owner`'s rollouts somebody wants ended."""
    query = select(rollouts.c.id).where(rollouts.c.lease_owner == owner, rollouts.c.is_cancelled)
    return set(connection.execute(query).scalars())


def held(connection: Connection) -> list[Found]:
    """Return all rollouts that somebody has."""
    return list(connection.execute(select(rollouts).where(rollouts.c.status == RolloutStatus.RUNNING)))


def cancel(connection: Connection, where: Any, reason: str) -> int:
    """End what waits, and have ended what runs, of the rollouts that `where` names; return how many that were."""
    waiting = cancel_waiting(connection, where, reason)
    running = connection.execute(
        update(rollouts).where(where, rollouts.c.status == RolloutStatus.RUNNING).values(is_cancelled=True)
    )
    return waiting + running.rowcount


def cancel_waiting(connection: Connection, where: Any, reason: str) -> int:
    """End what waits of the rollouts that `where` names, and leave what runs; return how many that were."""
    waiting = connection.execute(
        update(rollouts)
        .where(where, rollouts.c.status == RolloutStatus.QUEUED)
        .values(
            status=RolloutStatus.CANCELLED,
            is_cancelled=True,
            finished_at=time.time(),
            failure_cause=FailureCause.CANCELLED,
            success_status="failure",
            error=reason,
        )
    )
    return waiting.rowcount


def fail_of_deployments(connection: Connection, deployment_ids: Sequence[str], error: str) -> list[str]:
    """End what waits for builds that failed, and return which rollouts those were: none of them has a reward."""
    where = and_(rollouts.c.deployment_id.in_(deployment_ids), rollouts.c.status == RolloutStatus.QUEUED)
    ids: list[str] = list(connection.execute(select(rollouts.c.id).where(where)).scalars())
    connection.execute(
        update(rollouts)
        .where(where)
        .values(
            status=RolloutStatus.FAILED,
            finished_at=time.time(),
            failure_cause=FailureCause.SANDBOX_FAILED,
            success_status="failure",
            error=error[:_MOST_SHOWN],
        )
    )
    return ids
