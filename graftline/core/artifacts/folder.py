"""Artifacts where they are made: one machine, or a file system that every worker has as its root."""

from pathlib import Path

from graftline.core.errors import RecordError
from graftline.core.record import RECORD_NAME, Record, load_record


class FolderArtifacts:
    """The root itself: what is in place is published, and nothing has to be fetched."""

    label = "folder"

    def __init__(self, root: Path) -> None:
        self._root = root

    def record(self, name: str) -> Record | None:
        try:
            return load_record(self._root / name)
        except RecordError:
            return None

    def names(self, below: str) -> list[str]:
        found = (path.parent.relative_to(self._root) for path in (self._root / below).rglob(RECORD_NAME))
        return sorted(str(path) for path in found if not any(part.startswith(".") for part in path.parts))

    def publish(self, name: str, folder: Path, record: Record) -> None:
        """Do nothing: whoever made it puts it in place."""

    def fetch(self, name: str, record: Record, folder: Path) -> None:
        """Do nothing: it is in place."""
