"""The resource that every stage needs: where artifacts are kept, and the stages over them.

A stage gets exactly the systems that its asset names; another one is refused, however the deployment is wired. What was
opened in a run, and which files were found right, is shared by the steps of its process.

Not here: what stages do (`graftline.pipeline`). https://docs.dagster.io/guides/build/external-resources
"""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr

from graftline.core.artifacts import FolderArtifactsConfig, open_artifacts
from graftline.core.config import validate
from graftline.core.errors import GraftlineError
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, load_record
from graftline.core.secrets import open_secrets
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.manifests import Manifest, load_manifest
from graftline.pipeline.ports import Ports
from graftline.pipeline.run_log import RunLog
from graftline.pipeline.settings import Settings, load_settings
from resources.forms import fill_form, form_of
from resources.slots import take_over_slots
from resources.systems import SYSTEMS, System

NAME = "artifacts"
OF_REPORTS = ("warehouse", "dbt")


class Artifacts(System):
    """Where artifacts are kept: the root folder, and the bucket where several machines share them."""

    port = "artifacts"
    root: str = Field(description="Folder that holds configs/ and data/.")
    manifest: str = Field(default="local", description="Manifest under configs/manifests that wires the deployment.")
    settings: form_of("artifacts") = Field(  # type: ignore[valid-type]
        default=fill_form(FolderArtifactsConfig()), discriminator="kind", description="Where other machines find them."
    )
    _run: "_Run" = PrivateAttr(default_factory=lambda: _Run())

    @property
    def paths(self) -> Paths:
        """The folders."""
        return Paths(Path(self.root))

    def wire_manifest(self, *systems: System) -> Manifest:
        """Return the manifest of the deployment, with what was set of artifacts and of `systems`."""
        return _override_manifest(load_manifest(self.paths, self.manifest), [self, *systems])

    def records(self) -> Callable[[Path], ArtifactRecord]:
        """Return what gives the record of an artifact, by its folder, from where artifacts are kept.

        It raises RecordError where there is none.
        """
        paths = self.paths
        store = open_artifacts(self.wire_manifest().artifacts, paths.root, open_secrets(os.environ, paths.root))
        return lambda folder: store.record(paths.relative(folder)) or load_record(folder)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._run = _Run(context.run.run_id if context.run else "direct")
        executor = load_manifest(self.paths, self.manifest).executor
        if context.run and context.instance and executor.kind == "in_process":
            take_over_slots(context.instance, context.run.run_id)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self._run.stack.close()

    def stages(self, systems: Mapping[str, Any]) -> Lineage:
        """Return the stages with `systems` alone, by the names of resources.

        Raises:
            dagster.Failure: a setting or a configuration file does not fit; it says which.
        """
        try:
            return self._stages(systems)
        except GraftlineError as error:
            raise dg.Failure(str(error), allow_retries=False) from None

    def _stages(self, systems: Mapping[str, Any]) -> Lineage:
        configured = [system for system in systems.values() if isinstance(system, System)]
        run, paths = self._run, self.paths
        manifest = self.wire_manifest(*configured)
        # whatever else stands under the name of a resource is what would have been opened
        stand_ins = {SYSTEMS[name].port: system for name, system in systems.items() if not isinstance(system, System)}
        run.opened.update(stand_ins)
        own_secrets = {name: secret for system in configured for name, secret in system.secrets(paths).items()}
        secrets = open_secrets({**os.environ, **own_secrets}, paths.root)
        kinds = [Artifacts, *(SYSTEMS[name] for name in systems)]
        named = {port for kind in kinds for port in (kind.port, *kind.used_through_it)}
        ports = Ports(manifest, paths, run.stack, secrets, run.opened, named)
        if run.settings is None:
            run.settings = load_settings(paths)
        return Lineage(
            paths,
            run.settings,
            manifest,
            ports,
            RunLog(paths, run.id),
            run.stack,
            _unchanged=run.unchanged,
            _read=run.read,
        )


class _Run:
    """What the steps of one run share in one process."""

    def __init__(self, id: str = "direct") -> None:
        self.id = id
        self.settings: Settings | None = None
        self.stack = ExitStack()
        self.opened: dict[str, Any] = {}
        self.unchanged: dict[Path, Any] = {}
        self.read: dict[str, Any] = {}


def needs(*systems: str) -> set[str]:
    """Return the resources of an asset or a check whose stage uses `systems`."""
    return {NAME, *systems}


def stages_of(context: Any) -> Lineage:
    """Return the stages with the systems that an asset or a check names among its resources.

    Raises:
        dagster.Failure: the run sets a resource that there is not, or something that does not fit.
    """
    # Dagster passes over names that no asset of the run lists
    names = [NAME, *SYSTEMS, *OF_REPORTS]
    if unknown := sorted({*context.run.run_config.get("resources", {})} - {*names, "io_manager"}):
        raise dg.Failure(
            f"resources.{unknown[0]}: there is no such resource; known: {', '.join(names)}", allow_retries=False
        )
    resources = context.resources._asdict()
    return resources[NAME].stages({name: system for name, system in resources.items() if name in SYSTEMS})


def _override_manifest(manifest: Manifest, systems: list[System]) -> Manifest:
    overrides = {port: settings for system in systems for port, settings in system.in_manifest().items()}
    return validate({**manifest.model_dump(mode="json"), **overrides}, Manifest, "resources")
