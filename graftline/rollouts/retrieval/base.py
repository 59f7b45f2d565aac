"""The ports `Embedder` and `VectorStore`: texts as vectors, and the vectors nearest to one.

Both are safe to use from several threads at a time.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

Vector: TypeAlias = "array[float]"
"""Of type code `f`, and of length 1: the nearness of two is their inner product."""


@dataclass(frozen=True, slots=True)
class VectorEntry:
    """Something that can be found."""

    key: str
    """No two entries have the same."""
    vector: Vector
    content: str
    """What is found."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """By which entries are chosen or left out; the same names for all entries of a store."""


@dataclass(frozen=True, slots=True)
class Neighbor:
    """An entry that is near."""

    key: str
    content: str
    distance: float
    """1 less the cosine of the angle: 0 for the same direction, 1 for nothing in common."""


class Embedder(Protocol):
    """Makes vectors of texts: the same text, the same vector, in every process."""

    @property
    def name(self) -> str:
        """Changes whenever a text gets another vector."""

    @property
    def dimensions(self) -> int:
        """How long a vector is."""

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vectors of `texts`, in their order; a text that says nothing gets one of zeros."""


class VectorStore(Protocol):
    """Keeps entries, all of them made from the same thing."""

    @property
    def identity(self) -> str:
        """What the entries were made from, as `replace` was told; empty where nothing was stored yet."""

    def replace(self, identity: str, entries: Iterable[VectorEntry]) -> None:
        """Put `entries` in the place of all there are; who looks meanwhile finds the ones before.

        Raises:
            ValueError: two entries have the same key, or other labels or dimensions than the first.
            RecordError: the store cannot be written.
        """

    def nearest(
        self,
        vector: Vector,
        count: int,
        having: Mapping[str, str] | None = None,
        lacking: Mapping[str, str] | None = None,
    ) -> list[Neighbor]:
        """Return at most `count` entries, nearest first, equally near ones in the order of their keys.

        Args:
            vector: Where to look.
            count: How many.
            having: Labels that every one of them has.
            lacking: Labels, none of which any of them has.

        Raises:
            ValueError: the store has no such label, or vectors of another length.
            RecordError: the store cannot be read.
        """

    def close(self) -> None:
        """Let go of files. A second call does nothing."""


def alike(entries: Iterable[VectorEntry]) -> list[VectorEntry]:
    """Return `entries` if their keys differ and their labels and dimensions do not.

    Raises:
        ValueError: they do not.
    """
    checked, keys = list(entries), set[str]()
    for entry in checked:
        if entry.key in keys:
            raise ValueError(f"two entries have the key {entry.key!r}")
        keys.add(entry.key)
        if (*entry.labels,) != (*checked[0].labels,) or len(entry.vector) != len(checked[0].vector):
            raise ValueError(f"entry {entry.key!r} has other labels or dimensions than {checked[0].key!r}")
    return checked


def check_question(dimensions: int, labels: Iterable[str], held: int, store_labels: Iterable[str]) -> None:
    """Refuse a question that a store of vectors of `held` dimensions, with `known` labels, cannot answer."""
    if dimensions != held:
        raise ValueError(f"a vector of {dimensions} dimensions was asked for among vectors of {held}")
    if unknown := sorted({*labels} - {*store_labels}):
        raise ValueError(f"label {unknown[0]!r} is unknown; known: {', '.join(store_labels) or 'none'}")
