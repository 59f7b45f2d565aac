"""The tables of version 0.1.0, which are those of `service.tables`.

Whoever changes that module writes out here first what it was, and adds a step beside this one.
"""

from alembic import op

from graftline.harbor.service.tables import metadata

revision = "0002"
down_revision = None


def upgrade() -> None:
    """Take the step."""
    metadata.create_all(op.get_bind())
