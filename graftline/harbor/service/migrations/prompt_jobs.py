"""Who carries out a prompt optimization, its journal, its events, and what it came to."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Take the step."""
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("lease_owner", sa.String(length=128), nullable=True))
        jobs.add_column(sa.Column("lease_until", sa.Float(), nullable=True))
        jobs.add_column(sa.Column("progress", sa.Integer(), server_default="0", nullable=False))
        jobs.add_column(sa.Column("result", sa.Text(), nullable=True))
    op.create_table(
        "job_lines",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_lines_job_id")),
        sa.PrimaryKeyConstraint("job_id", "kind", "number", name=op.f("pk_job_lines")),
    )
