"""Manifests: which implementation stands behind each port in an environment (`configs/manifests/<name>.yaml`)."""

from collections.abc import Mapping
from typing import Any

from graftline.config import Config, load_yaml
from graftline.datasets.hub.open import HubConfig
from graftline.errors import ConfigError
from graftline.paths import Paths
from graftline.sandbox.open import SandboxConfig
from graftline.teachers.open import TeacherConfig

MANIFESTS = ("local", "dev", "prod", "test")


class Manifest(Config):
    """One implementation per port."""

    dataset_hub: HubConfig
    sandbox: SandboxConfig
    teacher: TeacherConfig


PORTS = tuple(Manifest.model_fields)


def load_manifest(paths: Paths, name: str, overrides: Mapping[str, Any] | None = None) -> Manifest:
    """Return the manifest called `name`; `overrides` replaces ports (`sandbox`: "memory") or single keys of them.

    Raises:
        ConfigError: there is no such manifest or port, or the result does not fit.
    """
    if name not in MANIFESTS:
        raise ConfigError(f"manifest {name!r} is unknown; known: {', '.join(MANIFESTS)}")
    values: dict[str, Any] = {}
    # a port before its settings, in whatever order they were given
    for key, value in sorted((overrides or {}).items(), key=lambda item: item[0].count(".")):
        port, _, rest = key.partition(".")
        if port not in PORTS:
            raise ConfigError(f"port {port!r} is unknown; known: {', '.join(PORTS)}")
        # a bare name is an implementation, and what the file says of another one does not apply to it
        values[key] = {"kind": value} if not rest and isinstance(value, str) else value
    return load_yaml(paths.configs / "manifests" / f"{name}.yaml", Manifest, values)
