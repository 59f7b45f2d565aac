"""What the rollouts of a job come to: queries over those that `rollout_queue` runs."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, func, or_, select, update

from graftline.harbor.contract import OF_THE_AGENT
from graftline.harbor.executors.base import Execution
from graftline.harbor.service.rollout_queue import OPEN
from graftline.harbor.service.schemas import RolloutStatus
from graftline.harbor.service.tables import jobs, rollouts

_SHOWN = tuple(
    rollouts.c[name]
    for name in (
        *("id", "trace_correlation_id", "seed", "status", "reward", "success_status", "failure_cause", "error"),
        *("cost_usd", "tokens", "started_at", "finished_at"),
    )
)

Found = Row[Any]


def spend(connection: Connection, job_id: str, execution: Execution) -> None:
    """Count what an attempt used against its job."""
    usd, tokens = execution.cost_usd, execution.tokens
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(
            spent_usd=jobs.c.spent_usd + (0.0 if usd is None else usd),
            spent_tokens=jobs.c.spent_tokens + (0 if tokens is None else tokens),
            unknown_usd=jobs.c.unknown_usd + (1 if usd is None else 0),
            unknown_tokens=jobs.c.unknown_tokens + (1 if tokens is None else 0),
        )
    )


def counts_of(connection: Connection, job_id: str) -> dict[RolloutStatus, int]:
    """Return how many rollouts of a job are at what."""
    query = select(rollouts.c.status, func.count()).where(rollouts.c.job_id == job_id).group_by(rollouts.c.status)
    return {RolloutStatus(str(row[0])): int(row[1]) for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class SoFar:
    """What the rollouts of a job come to that have ended."""

    ended: int
    valid: int
    mean_reward: float | None
    cost_usd: float | None
    """None where one did not say."""
    tokens: int | None


def so_far(connection: Connection, job_id: str) -> SoFar:
    """Return what a job comes to, worked out where its rows are."""
    is_valid = and_(
        rollouts.c.reward.is_not(None),
        or_(rollouts.c.failure_cause.is_(None), rollouts.c.failure_cause.in_(OF_THE_AGENT)),
    )
    query = select(
        func.count().label("ended"),
        func.count().filter(is_valid).label("valid"),
        func.avg(rollouts.c.reward).filter(is_valid).label("mean_reward"),
        func.count(rollouts.c.cost_usd).label("priced"),
        func.sum(rollouts.c.cost_usd).label("cost_usd"),
        func.count(rollouts.c.tokens).label("counted"),
        func.sum(rollouts.c.tokens).label("tokens"),
    ).where(rollouts.c.job_id == job_id, rollouts.c.status.not_in(OPEN))
    row = connection.execute(query).one()
    return SoFar(
        row.ended,
        row.valid,
        row.mean_reward,
        row.cost_usd if row.ended and row.priced == row.ended else None,
        int(row.tokens) if row.ended and row.counted == row.ended else None,
    )


def is_open(connection: Connection, job_id: str) -> bool:
    """Return whether a rollout of a job has still to end."""
    query = select(rollouts.c.id).where(rollouts.c.job_id == job_id, rollouts.c.status.in_(OPEN)).limit(1)
    return connection.execute(query).first() is not None


def of_job(connection: Connection, job_id: str) -> list[Found]:
    """Return what is known of all rollouts of a job, by seed; what was asked and answered is left out, for it may be much."""
    query = select(*_SHOWN).where(rollouts.c.job_id == job_id).order_by(rollouts.c.seed, rollouts.c.id)
    return list(connection.execute(query))
