"""The `ArtifactStore` port: finished artifacts, for every worker to read.

An artifact goes by its path from the root, such as `data/processed/python/train`. It is there whole, as one writer put it,
or it is not there: of two that put one under the same name, the last one wins, and never is anything of both. That there
is none is a result; an error is raised where the store does not answer, or lost something. Not here: when an artifact is
made anew (`graftline.core.record`), and who asks (`graftline.pipeline.stages`).
"""

from pathlib import Path
from typing import Protocol

from graftline.core.record import Record


class ArtifactStore(Protocol):
    """Keeps artifacts. Safe to use from several threads and processes."""

    @property
    def label(self) -> str:
        """What messages call it; without secrets."""

    def record(self, name: str) -> Record | None:
        """Return the record of the artifact called `name`; None if there is none.

        Raises:
            RecordError: what is there is no record.
            BoundaryError: the store failed.
        """

    def names(self, below: str) -> list[str]:
        """Return the names of the artifacts in the folder `below` and in folders of it, sorted.

        Raises:
            BoundaryError: the store failed.
        """

    def publish(self, name: str, folder: Path, record: Record) -> None:
        """Keep the artifact whose files are in `folder` under `name`: its files first, its record last.

        Raises:
            DataError: a file is not what the record says.
            BoundaryError: the store failed; what was there under `name` still is.
        """

    def fetch(self, name: str, record: Record, folder: Path) -> None:
        """Have the artifact of `record` in `folder`, in place of what is there, every file checked.

        Raises:
            RecordError: a file is not what the record says, or lost: the artifact has to be made anew.
            BoundaryError: the store failed. Whatever is raised, what was in `folder` still is there.
        """
