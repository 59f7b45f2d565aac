"""An import path of the founding API."""

from graftline.harbor.task_app_client import create_task_app_client

__all__ = ["create_task_app_client"]
