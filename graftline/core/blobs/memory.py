"""Objects held in this process."""

from pathlib import Path

from graftline.core.blobs.base import Blob, blob_of, checked_name
from graftline.core.blobs.whole_file import whole_file
from graftline.core.errors import BoundaryError


class MemoryBlobStore:
    """Objects in a dictionary, gone with it."""

    label = "memory"

    def __init__(self) -> None:
        self._held: dict[str, tuple[Blob, bytes]] = {}

    def put(self, name: str, source: Path) -> Blob:
        blob = blob_of(checked_name(name), source)
        self._held[name] = blob, source.read_bytes()
        return blob

    def get(self, name: str, target: Path) -> Blob:
        if (held := self._held.get(checked_name(name))) is None:
            raise BoundaryError(f"{self.label}: has no object {name!r}; put it there first")
        with whole_file(target) as partial:
            partial.write_bytes(held[1])
        return held[0]

    def find(self, name: str) -> Blob | None:
        held = self._held.get(checked_name(name))
        return held[0] if held else None

    def sizes(self, prefix: str = "") -> dict[str, int]:
        # in one call: other threads put meanwhile
        held = sorted(self._held.copy().items())
        return {name: blob.size_bytes for name, (blob, _) in held if name.startswith(prefix)}
