"""An import path of the founding API."""

from graftline.harbor.execution import HarborExecutionBackend
from graftline.harbor.provider import HarborInstanceProvider

__all__ = ["HarborExecutionBackend", "HarborInstanceProvider"]
