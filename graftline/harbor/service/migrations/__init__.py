"""The schema of the service, as steps that are taken once each, in order (Alembic)."""
