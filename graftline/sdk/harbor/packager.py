"""Names under which other programs import this."""

from graftline.harbor.packager import HarborPackager

__all__ = ["HarborPackager"]
