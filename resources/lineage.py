"""The resource that vends the lineage: paths, settings and open ports for one run.

Not here: what the stages do (`graftline.runtime.lineage`), and which implementation stands behind a port
(`configs/manifests/`). https://docs.dagster.io/guides/build/external-resources
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from pydantic import Field

from graftline.artefacts.open import open_artefacts
from graftline.datasets.hub.base import DatasetHub
from graftline.paths import Paths
from graftline.record import Record, load_record
from graftline.runtime.lineage import Lineage, open_lineage
from graftline.runtime.manifests import load_manifest
from graftline.runtime.ports import dataset_hub
from graftline.runtime.settings import Settings, load_settings
from graftline.secrets import open_secrets
from resources.slots import take_over_slots


class LineageResource(dg.ConfigurableResource[Lineage]):
    """The stages over one root folder, with the ports of a manifest."""

    root: str = Field(description="Folder that holds configs/ and data/.")
    manifest: str = Field(default="local", description="Manifest under configs/manifests.")

    @property
    def paths(self) -> Paths:
        """The folders, without opening anything."""
        return Paths(Path(self.root))

    @property
    def settings(self) -> Settings:
        """The settings, read anew."""
        return load_settings(self.paths)

    def hub(self) -> DatasetHub:
        """Return the homes of the datasets, without opening any other port."""
        return dataset_hub(load_manifest(self.paths, self.manifest), self.paths)

    def records(self) -> Callable[[Path], Record]:
        """Return what gives the record of an artefact, by its folder, from where the manifest keeps artefacts.

        It raises RecordError where there is none.
        """
        paths = self.paths
        config = load_manifest(paths, self.manifest).artefacts
        store = open_artefacts(config, paths.root, open_secrets(os.environ, paths.root))
        return lambda folder: store.record(paths.relative(folder)) or load_record(folder)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Lineage]:
        """Open the ports for one run (in process) or one step (a process per step)."""
        paths = self.paths
        manifest = load_manifest(paths, self.manifest)
        if context.run and context.instance and manifest.executor.kind == "in_process":
            take_over_slots(context.instance, context.run.run_id)
        with open_lineage(paths, manifest, context.run.run_id if context.run else "direct") as lineage:
            yield lineage
