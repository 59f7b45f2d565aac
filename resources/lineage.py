"""The resource that vends the lineage: paths, settings and open ports for one run.

Not here: what the stages do (`graftline.runtime.lineage`), and which implementation stands behind a port
(`configs/manifests/`). https://docs.dagster.io/guides/build/external-resources
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from pydantic import Field

from graftline.datasets.hub.base import DatasetHub
from graftline.paths import Paths
from graftline.runtime.lineage import Lineage, open_lineage
from graftline.runtime.manifests import load_manifest
from graftline.runtime.ports import dataset_hub
from graftline.runtime.settings import Settings, load_settings


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

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Lineage]:
        """Open the ports for one run (in process) or one step (a process per step)."""
        paths = self.paths
        with open_lineage(
            paths, load_manifest(paths, self.manifest), context.run.run_id if context.run else "direct"
        ) as lineage:
            yield lineage
