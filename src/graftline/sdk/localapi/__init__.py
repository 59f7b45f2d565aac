"""An import path of the founding API."""

from graftline.harbor.localapi.app import create_local_api
from graftline.harbor.localapi.config import LocalAPIConfig

__all__ = ["LocalAPIConfig", "create_local_api"]
