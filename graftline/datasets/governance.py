"""What may leave a checkout, and the shape of `configs/governance.yaml`: both ways out are off until it names them.

`datasets.dvc` takes folders to a DVC remote, `datasets.publishing` takes figures and checksums to W&B. Both take only
artifacts that are what their records say.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from graftline.core.config import Config, load_yaml
from graftline.core.errors import RecordError
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, load_verified

_PLACES = (
    ("raw/*/source", "raw"),
    ("raw/*/normalized", "normalized"),
    ("division", "division"),
    ("repository_changes", "repository_changes"),
    ("processed/*/*", "splits"),
)


class Dvc(Config):
    """Where `graftline data push dvc` copies artifacts to."""

    remote: str | None = Field(default=None, min_length=1)
    """A folder, relative to the root, or a URL that both fsspec and DVC know, e.g. `s3://bucket/graftline`."""


class Wandb(Config):
    """What `graftline data push wandb` tells W&B."""

    mode: Literal["disabled", "offline", "online"] = "disabled"
    """`offline` writes below `logs/wandb`, to be sent with `wandb sync`; `online` needs `WANDB_API_KEY`."""
    project: str = Field(default="graftline", pattern=r"^[A-Za-z0-9._-]{1,128}$")
    entity: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,128}$")
    """User or team; unset, the one that the key belongs to."""
    samples: int = Field(default=100, ge=0, le=100_000)
    """Edits of each language and split, from the first on, whose checksums are told."""


class Governance(Config):
    """`configs/governance.yaml`."""

    dvc: Dvc = Dvc()
    wandb: Wandb = Wandb()


def load_governance(paths: Paths) -> Governance:
    """Return what may leave this checkout; ConfigError if the file is missing or does not fit."""
    return load_yaml(paths.configs / "governance.yaml", Governance)


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact that is what its record says."""

    folder: Path
    record: ArtifactRecord


def stored_artifacts(paths: Paths) -> tuple[list[StoredArtifact], list[str]]:
    """Return the raw, normalized, divided and split artifacts, in the order of stages and names; and what is refused.

    That is a sentence for each folder that is not what its record says, or has none.

    Raises:
        RecordError: there is none.
    """
    artifacts, refused = [], []
    for pattern, kind in _PLACES:
        for folder in sorted(path for path in paths.data.glob(pattern) if path.is_dir()):
            if any(part.startswith(".") for part in folder.relative_to(paths.data).parts):
                continue  # of a build that has not ended
            try:
                artifacts.append(StoredArtifact(folder, load_verified(folder, kind)))
            except RecordError as error:
                refused.append(str(error))
    if not artifacts and not refused:
        raise RecordError(f"{paths.data}: holds no artifact of a dataset; make some first, with 'graftline run'")
    return artifacts, refused
