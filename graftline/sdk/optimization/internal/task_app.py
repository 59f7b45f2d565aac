"""Names under which other programs import this."""

from graftline.harbor.task_app_client import create_task_app_client

__all__ = ["create_task_app_client"]
