"""Names under which other programs import this."""

from graftline.harbor.localapi.app import create_local_api
from graftline.harbor.localapi.config import LocalAPIConfig

__all__ = ["LocalAPIConfig", "create_local_api"]
