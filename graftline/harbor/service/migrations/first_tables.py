"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "builds",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("context_digest", sa.String(length=64), nullable=False),
        sa.Column("dockerfile", sa.Text(), nullable=False),
        sa.Column("executor", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("snapshot_id", sa.String(length=255), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("log", sa.Text(), server_default="", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("lease_owner", sa.String(length=128), nullable=True),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
    )
    op.create_index(op.f("ix_builds_key_created_at"), "builds", ["key", "created_at"], unique=False)
    op.create_index(op.f("ix_builds_status_created_at"), "builds", ["status", "created_at"], unique=False)
    op.create_index(
        "uq_builds_key_open",
        "builds",
        ["key"],
        unique=True,
        sqlite_where=sa.text("status IN ('pending', 'building')"),
        postgresql_where=sa.text("status IN ('pending', 'building')"),
    )
    op.create_table(
        "contexts",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("archive", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_contexts")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("max_concurrent", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("max_rollouts", sa.BigInteger(), nullable=True),
        sa.Column("max_usd", sa.Float(), nullable=True),
        sa.Column("max_tokens", sa.BigInteger(), nullable=True),
        sa.Column("spent_rollouts", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("spent_usd", sa.Float(), server_default="0", nullable=False),
        sa.Column("spent_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("unknown_usd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("unknown_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("key", name=op.f("uq_jobs_key")),
    )
    op.create_index(op.f("ix_jobs_status"), "jobs", ["status"], unique=False)
    op.create_table(
        "deployments",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("context_digest", sa.String(length=64), nullable=False),
        sa.Column("dockerfile", sa.Text(), nullable=False),
        sa.Column("entrypoint", sa.Text(), nullable=False),
        sa.Column("entrypoint_mode", sa.String(length=16), nullable=False),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("env_vars", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("tasks", sa.Text(), nullable=False),
        sa.Column("verifier", sa.Text(), nullable=True),
        sa.Column("verifier_context_digest", sa.String(length=64), nullable=True),
        sa.Column("build_id", sa.String(length=40), nullable=True),
        sa.Column("verifier_build_id", sa.String(length=40), nullable=True),
        sa.Column("instance_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], name=op.f("fk_deployments_build_id")),
        sa.ForeignKeyConstraint(["context_digest"], ["contexts.digest"], name=op.f("fk_deployments_context_digest")),
        sa.ForeignKeyConstraint(["verifier_build_id"], ["builds.id"], name=op.f("fk_deployments_verifier_build_id")),
        sa.ForeignKeyConstraint(
            ["verifier_context_digest"], ["contexts.digest"], name=op.f("fk_deployments_verifier_context_digest")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployments")),
        sa.UniqueConstraint("name", "digest", name=op.f("uq_deployments_name_digest")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_deployments_name_version")),
    )
    op.create_index(op.f("ix_deployments_build_id"), "deployments", ["build_id"], unique=False)
    op.create_index(op.f("ix_deployments_created_at_id"), "deployments", ["created_at", "id"], unique=False)
    op.create_index(op.f("ix_deployments_verifier_build_id"), "deployments", ["verifier_build_id"], unique=False)
    op.create_table(
        "instances",
        sa.Column("deployment_id", sa.String(length=40), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["deployment_id"], ["deployments.id"], name=op.f("fk_instances_deployment_id")),
        sa.PrimaryKeyConstraint("deployment_id", "seed", name=op.f("pk_instances")),
    )
    op.create_table(
        "rollouts",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("deployment_id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("trace_correlation_id", sa.String(length=255), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.String(length=256), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("flow", sa.String(length=40), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("not_before", sa.Float(), server_default="0", nullable=False),
        sa.Column("is_cancelled", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("lease_owner", sa.String(length=128), nullable=True),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("success_status", sa.String(length=32), nullable=True),
        sa.Column("failure_cause", sa.String(length=32), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("lock", sa.Text(), nullable=True),
        sa.Column("response", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["deployment_id"], ["deployments.id"], name=op.f("fk_rollouts_deployment_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_rollouts_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
        sa.UniqueConstraint("deployment_id", "key", name=op.f("uq_rollouts_deployment_id_key")),
    )
    op.create_index(op.f("ix_rollouts_created_at_id"), "rollouts", ["created_at", "id"], unique=False)
    op.create_index(
        op.f("ix_rollouts_deployment_id_created_at_id"), "rollouts", ["deployment_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_rollouts_flow_status_turn"), "rollouts", ["flow", "status", "turn"], unique=False)
    op.create_index(op.f("ix_rollouts_job_id_status"), "rollouts", ["job_id", "status"], unique=False)
    op.create_index(op.f("ix_rollouts_status_turn_id"), "rollouts", ["status", "turn", "id"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("rollout_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("executor", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("success_status", sa.String(length=32), nullable=True),
        sa.Column("failure_cause", sa.String(length=32), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("agent_s", sa.Float(), nullable=True),
        sa.Column("verify_s", sa.Float(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("log", sa.Text(), server_default="", nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["rollout_id"], ["rollouts.id"], name=op.f("fk_attempts_rollout_id")),
        sa.PrimaryKeyConstraint("rollout_id", "number", name=op.f("pk_attempts")),
    )
