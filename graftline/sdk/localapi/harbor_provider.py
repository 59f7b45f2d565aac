"""Names under which other programs import this."""

from graftline.harbor.provider import HarborInstanceProvider

__all__ = ["HarborInstanceProvider"]
