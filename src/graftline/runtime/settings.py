"""What the stages are to do, and which code does it."""

from collections.abc import Mapping

from pydantic import Field

from graftline.config import Config, load_yaml
from graftline.datasets.catalogue import Catalogue
from graftline.hashing import code_version
from graftline.paths import Paths
from graftline.trajectories.collect import Collecting


class TrajectorySettings(Config):
    """`configs/trajectories.yaml`."""

    collecting: Collecting = Collecting()
    workers: int = Field(default=0, ge=0, le=256)
    """Processes that make attempts; 0 for one per core, 8 at most. What they make does not depend on it."""
    least_verified_steps: int = Field(default=200, ge=0)
    """Fewer of them fail the asset check of `trajectories`."""


class Settings(Config):
    """What the stages are to do."""

    catalogue: Catalogue
    trajectories: TrajectorySettings


def load_settings(paths: Paths) -> Settings:
    """Return the settings of a checkout.

    Raises:
        ConfigError: a file does not fit.
    """
    return Settings(
        catalogue=load_yaml(paths.configs / "datasets.yaml", Catalogue),
        trajectories=load_yaml(paths.configs / "trajectories.yaml", TrajectorySettings),
    )


def stage_code(stage: str) -> str:
    """Return the digest of the code of `stage`: of the modules that do its work and all they import."""
    return code_version(*_CODE[stage])


# the spawner is started by path, so no import leads to it
_SANDBOX = ("graftline.sandbox.open", "graftline.sandbox.spawner")
_FILES = ("graftline.jsonl", "graftline.parquet")
_CODE: Mapping[str, tuple[str, ...]] = {
    "raw": ("graftline.datasets.hub", "graftline.datasets.ingest"),
    "normalized": ("graftline.datasets.sources", "graftline.datasets.tables", *_FILES),
    "splits": ("graftline.datasets.split", "graftline.datasets.tables", *_FILES),
    "synthetic_rules": ("graftline.datasets.synthetic", *_SANDBOX, *_FILES),
    "tasks": ("graftline.tasks.task", *_SANDBOX, *_FILES),
    "teacher_trajectories": ("graftline.trajectories.collect", "graftline.teachers.open", *_SANDBOX, *_FILES),
    "trajectories": ("graftline.trajectories.export", *_FILES),
}
