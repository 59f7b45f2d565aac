"""What Alembic runs to take steps: over the connection it is given, in the transaction that is open there."""

from alembic import context

from graftline.harbor.service.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
