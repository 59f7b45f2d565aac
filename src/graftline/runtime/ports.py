"""From a manifest to open ports, or to a description of what would be opened."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from graftline.datasets.hub.base import MIRROR_VARIABLE, DatasetHub
from graftline.datasets.hub.open import open_hub
from graftline.paths import Paths
from graftline.runtime.manifests import Manifest, load_manifest
from graftline.sandbox.base import Sandbox
from graftline.sandbox.open import open_sandbox
from graftline.secrets import open_secrets
from graftline.teachers.base import Teacher
from graftline.teachers.open import open_teacher


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything a lineage talks to, open."""

    dataset_hub: DatasetHub
    sandbox: Sandbox
    teacher: Teacher


def dataset_hub(manifest: Manifest, paths: Paths, environment: Mapping[str, str] | None = None) -> DatasetHub:
    """Return the hub of `manifest` alone; secrets and mirror are those of `environment` (of the process)."""
    found = os.environ if environment is None else environment
    return open_hub(manifest.dataset_hub, paths.root, open_secrets(found, paths.root), found.get(MIRROR_VARIABLE, ""))


@contextmanager
def open_ports(manifest: Manifest, paths: Paths) -> Iterator[Ports]:
    """Open every port of `manifest`, and close them at the end.

    Raises:
        BoundaryError: an implementation cannot be had on this machine.
    """
    sandbox = open_sandbox(manifest.sandbox)
    try:
        yield Ports(dataset_hub(manifest, paths), sandbox, open_teacher(manifest.teacher, sandbox))
    finally:
        sandbox.close()


@contextmanager
def build_ports(paths: Paths, manifest: str = "local", overrides: Mapping[str, Any] | None = None) -> Iterator[Ports]:
    """Open the ports of the manifest called `manifest`, some of them overridden, and close them at the end.

        with build_ports(Paths(root), "local", {"sandbox": "memory"}) as ports:
            ports.sandbox.apply_many(...)

    Raises:
        ConfigError: as `load_manifest`.
        BoundaryError: as `open_ports`.
    """
    with open_ports(load_manifest(paths, manifest, overrides), paths) as ports:
        yield ports


def describe(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Return what would be wired: for every port its implementation and settings, without opening anything."""
    described: dict[str, dict[str, Any]] = manifest.model_dump(mode="json")
    return described
