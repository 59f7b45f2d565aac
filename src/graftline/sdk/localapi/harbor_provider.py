"""An import path of the founding API."""

from graftline.harbor.provider import HarborInstanceProvider

__all__ = ["HarborInstanceProvider"]
