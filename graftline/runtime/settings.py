"""What the stages are to do, and which code does it."""

import os
from collections.abc import Mapping

from pydantic import Field

from graftline.config import Config, load_yaml
from graftline.datasets.catalogue import Catalogue
from graftline.datasets.hub.base import MIRROR_VARIABLE
from graftline.datasets.sources import ReaderName
from graftline.hashing import code_version
from graftline.paths import Paths
from graftline.runtime.asking import Asking
from graftline.trajectories.collect import Collecting

DATASETS_VARIABLE = "GRAFTLINE_DATASETS"
"""Names the datasets in use, in the environment."""


class TrajectorySettings(Config):
    """`configs/trajectories.yaml`."""

    collecting: Collecting = Collecting()
    asking: Asking = Asking()
    workers: int = Field(default=0, ge=0, le=256)
    """Processes that make attempts; 0 for one per core, 8 at most. What they make does not depend on it."""
    least_verified_steps: int = Field(default=200, ge=0)
    """Fewer of them fail the asset check of `trajectories`."""


class Settings(Config):
    """What the stages are to do."""

    catalogue: Catalogue
    trajectories: TrajectorySettings


def load_settings(paths: Paths, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a checkout, with the datasets in use that `environment` (of the process) asks for.

    Raises:
        ConfigError: a file does not fit, or a dataset is named that is unknown.
        DownloadError: the mirror cannot be read.
    """
    catalogue = load_yaml(paths.configs / "datasets.yaml", Catalogue)
    return Settings(
        catalogue=in_use(catalogue, os.environ if environment is None else environment),
        trajectories=load_yaml(paths.configs / "trajectories.yaml", TrajectorySettings),
    )


def in_use(catalogue: Catalogue, environment: Mapping[str, str]) -> Catalogue:
    """Return `catalogue` with the datasets in use that `environment` asks for.

    `GRAFTLINE_DATASETS` names them, or says `all`. Without it, a mirror brings what it holds to the local ones in `use`,
    and to the evaluations in `use`: without those, edits would be kept that are too near to them.
    """
    named = environment.get(DATASETS_VARIABLE, "").strip()
    if named == "all":
        return catalogue.using(tuple(catalogue.datasets), DATASETS_VARIABLE)
    if named:
        return catalogue.using(tuple(name.strip() for name in named.split(",")), DATASETS_VARIABLE)
    mirror = environment.get(MIRROR_VARIABLE)
    if not mirror:
        return catalogue
    from graftline.datasets.hub.mirror import held_by_mirror, is_mirrored

    elsewhere = {name for name, dataset in catalogue.datasets.items() if is_mirrored(dataset)}
    wanted = {name for name in catalogue.use if name not in elsewhere or catalogue.datasets[name].is_evaluation}
    held = held_by_mirror(mirror, elsewhere) | wanted
    return catalogue.using(tuple(name for name in catalogue.datasets if name in held), MIRROR_VARIABLE)


def stage_code(stage: str, reader: ReaderName | None = None) -> str:
    """Return the digest of the code of `stage`: of the modules that do its work and all they import.

    That of a stage that reads raw rows holds the code of the dataset's own reader, and of no other.
    """
    own = (f"graftline.datasets.sources.{reader}",) if reader is not None and reader != "evaluation" else ()
    return code_version(*_CODE[stage], *own)


# the spawner is a program of its own, to which no import leads
_SANDBOX = ("graftline.sandbox.open", "graftline.confined.spawner")
_FILES = ("graftline.jsonl", "graftline.parquet")
_CODE: Mapping[str, tuple[str, ...]] = {
    "raw": ("graftline.datasets.hub.open", "graftline.datasets.raw_rows"),
    "normalized": ("graftline.datasets.normalize",),
    "division": ("graftline.datasets.split",),
    "splits": ("graftline.datasets.split",),
    "label_tasks": ("graftline.tasks.open_task", "graftline.jsonl"),
    "synthetic_rules": ("graftline.datasets.synthetic", *_SANDBOX, *_FILES),
    "tasks": ("graftline.tasks.task", *_SANDBOX, *_FILES),
    "teacher_trajectories": ("graftline.trajectories.collect", "graftline.teachers.open", *_SANDBOX, *_FILES),
    "trajectories": ("graftline.trajectories.export", *_FILES),
    "sft_dataset": ("graftline.training.rows", *_SANDBOX),
    "trained_adapter": ("graftline.training.train", "graftline.training.solving", "graftline.training.card", *_SANDBOX),
    # pages can be written again without asking anybody
    "contest": (
        "graftline.evals.evaluation",
        "graftline.evals.grading",
        "graftline.evals.sources",
        *_SANDBOX,
        *_FILES,
    ),
    "closed_loop": ("graftline.evals.figures",),
    "optimized_prompt": (
        "graftline.optimization.optimise",
        "graftline.optimization.open_proposer",
        "graftline.harbor.environments.refactoring",
        *_SANDBOX,
    ),
    "harbor_deployment": ("graftline.harbor.deployment_file",),
    "instance_batch": ("graftline.harbor.instances",),
    # what acts is in the deployment, whose digest is an input; how it is asked for is nothing that an evaluation depends on
    "evaluation": ("graftline.harbor.coverage", "graftline.harbor.calibration"),
    # but for our own environment: its code is that of this package
    "evaluation of our tasks": (
        "graftline.harbor.coverage",
        "graftline.harbor.calibration",
        "graftline.harbor.environments.run_rollout",
    ),
}
