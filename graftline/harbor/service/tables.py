"""The tables of the service, as version 0.1.0 has them; whoever changes one adds a step to `migrations/`.

Times are seconds since 1970; JSON is ASCII text of our own writing, which every database takes whatever is in it.
"""

import json
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)


class Json(sa.TypeDecorator[Any]):
    """A value of JSON as text; a column that was never set is None."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        return None if value is None else json.loads(value)


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Id = String(40)
_Digest = String(64)


def new_id(kind: str) -> str:
    """Return an id that nothing has yet."""
    return f"{kind}_{uuid4().hex[:24]}"


def _lease() -> tuple[Column[Any], ...]:
    """Return who holds a row, and until when; of a row that waits, when it may be held again."""
    return Column("lease_owner", String(128)), Column("lease_until", Float)


def _outcome() -> tuple[Column[Any], ...]:
    return (
        Column("success_status", String(32)),
        Column("failure_cause", String(32)),
        Column("error", Text),
        Column("reward", Float),
        Column("cost_usd", Float),
        Column("tokens", BigInteger),
    )


contexts = Table(
    "contexts",
    metadata,
    Column("digest", _Digest, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("archive", sa.LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
)

_OPEN_BUILD = text("status IN ('pending', 'building')")
builds = Table(
    "builds",
    metadata,
    Column("id", _Id, primary_key=True),
    # of context, Dockerfile and executor: what makes the same snapshot
    Column("key", _Digest, nullable=False),
    Column("context_digest", _Digest, nullable=False),
    Column("dockerfile", Text, nullable=False),
    Column("executor", String(64), nullable=False),
    Column("status", String(16), nullable=False),
    Column("snapshot_id", String(255)),
    Column("error", Text),
    Column("log", Text, nullable=False, server_default=""),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    *_lease(),
    Index(None, "status", "created_at"),
    Index(None, "key", "created_at"),
    # of what makes the same snapshot, one build at a time
    Index("uq_builds_key_open", "key", unique=True, sqlite_where=_OPEN_BUILD, postgresql_where=_OPEN_BUILD),
)

deployments = Table(
    "deployments",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", String(128), nullable=False),
    Column("version", Integer, nullable=False),
    Column("digest", _Digest, nullable=False),
    Column("description", Text),
    Column("context_digest", _Digest, ForeignKey("contexts.digest"), nullable=False),
    Column("dockerfile", Text, nullable=False),
    Column("entrypoint", Text, nullable=False),
    Column("entrypoint_mode", String(16), nullable=False),
    Column("limits", Json, nullable=False),
    Column("env_vars", Json, nullable=False),
    Column("metadata", Json, nullable=False),
    Column("tasks", Json, nullable=False),
    # settings without the context
    Column("verifier", Json),
    Column("verifier_context_digest", _Digest, ForeignKey("contexts.digest")),
    Column("build_id", _Id, ForeignKey("builds.id")),
    Column("verifier_build_id", _Id, ForeignKey("builds.id")),
    # kept up to date: to count a hundred thousand rows for every page takes longer than the page
    Column("instance_count", Integer, nullable=False, server_default="0"),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("name", "version"),
    UniqueConstraint("name", "digest"),
    Index(None, "created_at", "id"),
    Index(None, "build_id"),
    Index(None, "verifier_build_id"),
)

instances = Table(
    "instances",
    metadata,
    Column("deployment_id", _Id, ForeignKey("deployments.id"), primary_key=True),
    Column("seed", Integer, primary_key=True),
    Column("task_id", String(256), nullable=False),
    Column("created_at", Float, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("key", String(255), nullable=False, unique=True),
    Column("request_digest", _Digest, nullable=False),
    Column("config", Json, nullable=False),
    Column("status", String(32), nullable=False),
    Column("error", Text),
    Column("max_concurrent", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("max_rollouts", BigInteger),
    Column("max_usd", Float),
    Column("max_tokens", BigInteger),
    Column("spent_rollouts", BigInteger, nullable=False, server_default="0"),
    Column("spent_usd", Float, nullable=False, server_default="0"),
    Column("spent_tokens", BigInteger, nullable=False, server_default="0"),
    # attempts that did not say what they cost: a sum over them would be a guess
    Column("unknown_usd", BigInteger, nullable=False, server_default="0"),
    Column("unknown_tokens", BigInteger, nullable=False, server_default="0"),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    # of prompt optimizations: who carries one out, how far it is, and what it came to
    *_lease(),
    Column("progress", Integer, nullable=False, server_default="0"),
    Column("result", Json),
    Index(None, "status"),
)

job_lines = Table(
    "job_lines",
    metadata,
    Column("job_id", _Id, ForeignKey("jobs.id"), primary_key=True),
    # `journal` or `event`; each has numbers of its own
    Column("kind", String(16), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("line", Json, nullable=False),
)

rollouts = Table(
    "rollouts",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("deployment_id", _Id, ForeignKey("deployments.id"), nullable=False),
    Column("job_id", _Id, ForeignKey("jobs.id")),
    Column("key", String(255), nullable=False),
    Column("request_digest", _Digest, nullable=False),
    Column("trace_correlation_id", String(255), nullable=False),
    Column("seed", Integer, nullable=False),
    Column("task_id", String(256), nullable=False),
    Column("request", Json, nullable=False),
    Column("status", String(16), nullable=False),
    # whose turn it is: those of one flow (a job, or a deployment) stand in line, flows take turns
    Column("flow", _Id, nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("not_before", Float, nullable=False, server_default="0"),
    Column("is_cancelled", sa.Boolean, nullable=False, server_default=text("false")),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    *_lease(),
    *_outcome(),
    Column("lock", Json),
    Column("response", Json),
    # the proof that nothing runs twice: whoever sends the same key again gets the first
    UniqueConstraint("deployment_id", "key"),
    Index(None, "status", "turn", "id"),
    Index(None, "flow", "status", "turn"),
    Index(None, "deployment_id", "created_at", "id"),
    Index(None, "job_id", "status"),
    Index(None, "created_at", "id"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("rollout_id", _Id, ForeignKey("rollouts.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("executor", String(64), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("started_at", Float, nullable=False),
    Column("finished_at", Float),
    *_outcome(),
    Column("agent_s", Float),
    Column("verify_s", Float),
    Column("log", Text, nullable=False, server_default=""),
    Column("result", Json),
)
