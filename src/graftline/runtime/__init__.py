"""Manifests, ports and the lineage: what stands behind each port, and the stages that use them."""

from graftline.runtime.lineage import Lineage, open_lineage
from graftline.runtime.manifests import MANIFESTS, Manifest, load_manifest
from graftline.runtime.ports import Ports, build_ports
from graftline.runtime.settings import Settings, load_settings

__all__ = [
    "MANIFESTS",
    "Lineage",
    "Manifest",
    "Ports",
    "Settings",
    "build_ports",
    "load_manifest",
    "load_settings",
    "open_lineage",
]
