"""Checks: configuration files against their models, samples against their pins, artifacts against their records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from graftline.core.config import Config, load_yaml
from graftline.core.errors import GraftlineError, RecordError
from graftline.core.hashing import digest
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, load_record, load_verified
from graftline.core.telemetry import TelemetrySettings
from graftline.datasets.governance import load_governance
from graftline.datasets.sources.folders import local_hub
from graftline.datasets.sources.mirror import is_mirrored
from graftline.evals.evaluation_file import load_evaluation
from graftline.llm.fleet import Fleets
from graftline.llm.weights.catalog import ModelCatalog
from graftline.pipeline.exports import find_export_fault, is_export, list_exports, read_export_record
from graftline.pipeline.manifests import MANIFESTS, load_manifest
from graftline.pipeline.settings import load_settings
from graftline.pipeline.stages.closed_loop import check_closed_loop
from graftline.pipeline.stages.harbor_deployment import deployment_file, deployment_names
from graftline.pipeline.stages.model_evaluation import model_evaluation_names
from graftline.pipeline.stages.optimized_prompt import prompt_file, prompt_names
from graftline.rollouts.teachers.prompt import Prompts
from graftline.sandbox.runner import SandboxSettings
from graftline.training.recipes.open import check_recipe, recipe_names

_NO_ARTIFACTS = (
    "samples", "models", "agent", "actors", "retrieval", "blobs", "state", "tinker", "trajectories/attempts", "harbor/service",
    "harbor/calibration",
)  # fmt: skip
"""Folders whose files have checks of their own, or are what artifacts are made from; below `data/`."""


_MODELS: Mapping[str, type[Config]] = {
    "models.yaml": ModelCatalog,
    "sandbox.yaml": SandboxSettings,
    "teacher_prompts.yaml": Prompts,
    "telemetry.yaml": TelemetrySettings,
    "vllm_actors.yaml": Fleets,
}


@dataclass
class Audit:
    """What was looked at, and what is wrong with it."""

    checked: int = 0
    faults: list[str] = field(default_factory=list)


def audit(paths: Paths, manifest: str = "local", inputs_only: bool = False) -> Audit:
    """Return the faults of the configuration, of the sources of the datasets, and of every artifact below `paths`.

    `manifest` is the one that is about to be used, for its name may be wrong. `inputs_only` leaves the artifacts out:
    what is wrong with them, a run repairs.
    """
    report = Audit()
    checks: list[Callable[[], object]] = [partial(load_settings, paths), partial(load_governance, paths)]
    checks += [partial(load_manifest, paths, name) for name in dict.fromkeys((*MANIFESTS, manifest))]
    checks += [
        partial(load_yaml, paths.configs / name, model)
        for name, model in _MODELS.items()
        if (paths.configs / name).exists()
    ]
    checks += [partial(check_recipe, paths, name) for name in recipe_names(paths)]
    checks += [partial(deployment_file, paths, name) for name in deployment_names(paths)]
    checks += [partial(prompt_file, paths, name) for name in prompt_names(paths)]
    checks += [
        partial(load_evaluation, paths.evaluation_configs / f"{name}.yaml") for name in model_evaluation_names(paths)
    ]
    if (paths.configs / "closed_loop.yaml").exists():
        checks.append(partial(check_closed_loop, paths))
    checks.append(partial(_check_samples, paths))
    if not inputs_only:
        checks += [partial(_check_artifact, folder) for folder in _artifacts(paths)]
        checks += [partial(_check_export, file) for file in list_exports(paths.data)]
    for check in checks:
        report.checked += 1
        try:
            check()
        except GraftlineError as error:
            # a faulty file spoils every check that reads it
            report.faults += [str(error)] if str(error) not in report.faults else []
    return report


def _check_samples(paths: Paths) -> None:
    """Fetch what lies in this checkout, to nowhere: size and checksum must be the pinned ones."""
    hub = local_hub(paths.root)
    with TemporaryDirectory() as nowhere:
        for name, dataset in load_settings(paths).catalog.used.items():
            for file in hub.files(name, dataset) if dataset.url and not is_mirrored(dataset) else ():
                hub.fetch(name, dataset, file, Path(nowhere) / digest([name, file.path]), lambda done, total: None)


def _artifacts(paths: Paths) -> list[Path]:
    """Return the folders that hold stored files: those with a record, and those that lack one."""
    files = [
        path
        for top in (paths.data, paths.reports)
        for path in top.rglob("*")
        if path.is_file()
        and path.suffix != ".dvc"  # of an export; it is beside the artifact, and says of it what DVC wants to know
        and not is_export(path)
        and not any(path.is_relative_to(paths.data / name) for name in _NO_ARTIFACTS)
        and not any(part.startswith(".") for part in path.relative_to(top).parts)
    ]
    recorded = {path.parent for path in files if path.name == RECORD_NAME}
    bare = {path.parent for path in files if not recorded & {path.parent, *path.parent.parents}}
    return sorted(recorded | bare)


def _check_artifact(folder: Path) -> None:
    load_verified(folder, load_record(folder).kind)


def _check_export(file: Path) -> None:
    if fault := find_export_fault(file, read_export_record(file)):
        raise RecordError(f"{file}: {fault}; export it again")
