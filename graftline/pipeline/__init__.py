"""Manifests, ports and the lineage: what stands behind each port, and the stages and recipes that use them.

A name is loaded when it is first asked for: the stages need the extra `datasets`, manifests and the doctor do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graftline.pipeline.lineage import Lineage, open_lineage
    from graftline.pipeline.manifests import MANIFESTS, Manifest, load_manifest
    from graftline.pipeline.ports import Ports, build_ports
    from graftline.pipeline.runtime import RecipeRun, Runtime
    from graftline.pipeline.settings import Settings, load_settings

__all__ = [
    "MANIFESTS",
    "Lineage",
    "Manifest",
    "Ports",
    "RecipeRun",
    "Runtime",
    "Settings",
    "build_ports",
    "load_manifest",
    "load_settings",
    "open_lineage",
]

_MODULES = {
    **dict.fromkeys(("Lineage", "open_lineage"), "lineage"),
    **dict.fromkeys(("MANIFESTS", "Manifest", "load_manifest"), "manifests"),
    **dict.fromkeys(("Ports", "build_ports"), "ports"),
    **dict.fromkeys(("RecipeRun", "Runtime"), "runtime"),
    **dict.fromkeys(("Settings", "load_settings"), "settings"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
