"""The tables of the service. They are made and changed by the migrations of `service/migrations`, never from here.

Times are seconds since 1970; JSON is ASCII text of our own writing, which every database takes whatever is in it.
"""

import json
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)


class Json(TypeDecorator[Any]):
    """A value of JSON as text; a column that was never set is None."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Id = String(40)
_Digest = String(64)

contexts = Table(
    "contexts",
    metadata,
    Column("digest", _Digest, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("archive", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
)

builds = Table(
    "builds",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("key", _Digest, nullable=False),
    # of context, Dockerfile and executor: what makes the same snapshot
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
    Column("lease_owner", String(128)),
    Column("lease_until", Float),
    Index(None, "status", "created_at"),
    Index(None, "key", "created_at"),
    # one at a time of what makes the same snapshot
    Index(
        "uq_builds_key_open",
        "key",
        unique=True,
        sqlite_where=text("status IN ('pending', 'building')"),
        postgresql_where=text("status IN ('pending', 'building')"),
    ),
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
    Column("verifier", Json),
    # settings without the context
    Column("verifier_context_digest", _Digest, ForeignKey("contexts.digest")),
    Column("build_id", _Id, ForeignKey("builds.id")),
    Column("verifier_build_id", _Id, ForeignKey("builds.id")),
    # counted as they come: to count a hundred thousand rows for every page takes longer than the page
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
    # of optimizations: who carries one out, how far it is, and what it came to
    Column("lease_owner", String(128)),
    Column("lease_until", Float),
    Column("progress", Integer, nullable=False, server_default="0"),
    Column("result", Json),
    Index(None, "status"),
)

job_lines = Table(
    "job_lines",
    metadata,
    Column("job_id", _Id, ForeignKey("jobs.id"), primary_key=True),
    # a line of its journal, or an event; each has numbers of its own
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
    Column("is_cancelled", Boolean, nullable=False, server_default=text("false")),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("lease_owner", String(128)),
    Column("lease_until", Float),
    Column("reward", Float),
    Column("success_status", String(32)),
    Column("failure_cause", String(32)),
    Column("error", Text),
    Column("cost_usd", Float),
    Column("tokens", BigInteger),
    Column("lock", Json),
    Column("response", Json),
    # the proof that nothing runs twice: who sends the same key again finds the first
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
    Column("success_status", String(32)),
    Column("failure_cause", String(32)),
    Column("error", Text),
    Column("reward", Float),
    Column("agent_s", Float),
    Column("verify_s", Float),
    Column("cost_usd", Float),
    Column("tokens", BigInteger),
    Column("log", Text, nullable=False, server_default=""),
    Column("result", Json),
)
