"""Names under which other programs import this."""

from graftline.harbor.execution import HarborExecutionBackend
from graftline.harbor.provider import HarborInstanceProvider

__all__ = ["HarborExecutionBackend", "HarborInstanceProvider"]
