"""The `BlobStore` port: files kept under names, in a bucket or a folder.

An object is there whole, with its checksum, or it is not there, whatever is killed in the middle. That there is none of
a name is a result; an error is raised where the store does not answer, refuses, or holds something else than the
checksum says. Names are the caller's affair, those that tell of their content too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from graftline.core.errors import DataError
from graftline.core.hashing import sha256_file
from graftline.core.paths import portable

CHECKSUM_SUFFIX = ".sha256"
"""Ends the names of checksums, which no object may have."""


@dataclass(frozen=True, slots=True)
class Blob:
    """An object, as it was put."""

    name: str
    """A relative path with forward slashes; no part of it begins with a dot."""
    size_bytes: int
    sha256: str


class BlobStore(Protocol):
    """Keeps objects. Safe to use from several threads; what several processes put under one name, the last one wins."""

    @property
    def label(self) -> str:
        """What messages and journals call it; without secrets."""

    def put(self, name: str, source: Path) -> Blob:
        """Keep the content of the file `source` under `name`, instead of what was there.

        Raises:
            DataError: `name` cannot be one, or `source` cannot be read or was altered meanwhile.
            BoundaryError: the store failed; what it had under `name` may be gone, and half an object is never seen.
        """

    def get(self, name: str, target: Path) -> Blob:
        """Write the object to the file `target`, whole and verified, or not at all.

        Raises:
            DataError: `name` cannot be one.
            BoundaryError: there is none, it is not what its checksum says, or the store failed.
        """

    def find(self, name: str) -> Blob | None:
        """Return the object called `name`, None if there is none.

        Raises:
            DataError, BoundaryError: as `get`.
        """

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the bytes of every object whose name begins with `prefix`, by name, sorted.

        Raises:
            BoundaryError: the store failed.
        """


def checked_name(name: str) -> str:
    """Return `name`.

    Raises:
        DataError: it cannot be the name of an object.
    """
    path = portable(name)
    if str(path) != name or any(part.startswith(".") for part in path.parts) or name.endswith(CHECKSUM_SUFFIX):
        raise DataError(
            f"object name {name!r}: has an empty part, one that begins with a dot, or ends in {CHECKSUM_SUFFIX};"
            " use a plain relative path such as 'raw/shard-1.jsonl'"
        )
    return name


def blob_of(name: str, source: Path) -> Blob:
    """Return what an object called `name` with the content of `source` is.

    Raises:
        DataError: `source` cannot be read.
    """
    try:
        return Blob(name, source.stat().st_size, sha256_file(source))
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror}); expected a file to be uploaded") from None
