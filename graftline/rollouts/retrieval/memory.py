"""The `memory` vector store: entries of this process, all of them looked at for every question."""

from collections.abc import Iterable, Mapping
from operator import mul

from graftline.rollouts.retrieval.base import Neighbor, Vector, VectorEntry, alike, check_question


class MemoryVectorStore:
    """Holds entries until it is closed."""

    def __init__(self) -> None:
        self._held: tuple[str, tuple[VectorEntry, ...]] = ("", ())

    @property
    def identity(self) -> str:
        return self._held[0]

    def replace(self, identity: str, entries: Iterable[VectorEntry]) -> None:
        self._held = (identity, tuple(alike(entries)))

    def nearest(
        self,
        vector: Vector,
        count: int,
        having: Mapping[str, str] | None = None,
        lacking: Mapping[str, str] | None = None,
    ) -> list[Neighbor]:
        same, other = (having or {}).items(), (lacking or {}).items()
        entries = self._held[1]
        if not entries:
            return []
        check_question(len(vector), {name for name, _ in (*same, *other)}, len(entries[0].vector), entries[0].labels)
        chosen = [
            entry
            for entry in entries
            if any(entry.vector)
            and all(entry.labels[name] == value for name, value in same)
            and all(entry.labels[name] != value for name, value in other)
        ]
        neighbors = [Neighbor(entry.key, entry.content, 1 - sum(map(mul, vector, entry.vector))) for entry in chosen]
        return sorted(neighbors, key=lambda neighbor: (neighbor.distance, neighbor.key))[:count] if any(vector) else []

    def close(self) -> None:
        """Nothing is held open."""
