"""Artifacts held in this process."""

from pathlib import Path

from graftline.core.artifacts.transfer import fetched, to_be_sent
from graftline.core.errors import RecordError
from graftline.core.record import Record


class MemoryArtifacts:
    """Artifacts in dictionaries, gone with them."""

    label = "memory"

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._files: dict[str, bytes] = {}

    def record(self, name: str) -> Record | None:
        return self._records.get(name)

    def names(self, below: str) -> list[str]:
        # in one call: other threads publish meanwhile
        return [name for name in sorted(self._records.copy()) if name.startswith(f"{below}/")]

    def publish(self, name: str, folder: Path, record: Record) -> None:
        for sha256, path in to_be_sent(folder, record):
            self._files[sha256] = path.read_bytes()
        self._records[name] = record

    def fetch(self, name: str, record: Record, folder: Path) -> None:
        def get(sha256: str, target: Path) -> None:
            if (content := self._files.get(sha256)) is None:
                raise RecordError(f"{self.label}: has no file {sha256} of {name}; materialize the asset again")
            target.write_bytes(content)

        fetched(folder, record, get)
