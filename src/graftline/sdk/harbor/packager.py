"""An import path of the founding API."""

from graftline.harbor.packager import HarborPackager

__all__ = ["HarborPackager"]
