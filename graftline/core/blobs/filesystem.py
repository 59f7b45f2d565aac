"""Objects in what fsspec knows: `s3://…`, `gs://…`, a folder of this machine, and others.

Beside each object stands its checksum, `<name>.sha256`, in the form of the command sha256sum. It is taken away before
the object is written and written after it: an object without one, left by a writer that was killed or put there by
somebody else, is not there.
"""

from pathlib import Path

from graftline.core.blobs.base import CHECKSUM_SUFFIX, Blob, blob_of, checked_name
from graftline.core.blobs.objects import Objects
from graftline.core.blobs.whole_file import whole_file
from graftline.core.errors import BoundaryError, DataError
from graftline.core.hashing import sha256_file


class FilesystemBlobStore:
    """Objects below one folder of a file system of fsspec."""

    def __init__(self, objects: Objects) -> None:
        self.label = objects.label
        self._objects = objects

    def put(self, name: str, source: Path) -> Blob:
        blob = blob_of(checked_name(name), source)
        with self._objects.answering(name):
            before = source.stat()
            self._objects.remove(name + CHECKSUM_SUFFIX, about=name)
            self._objects.put_file(name, source)
            after = source.stat()
            if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
                raise DataError(f"{source}: was altered while it was uploaded; upload again when nobody writes to it")
        line = f"{blob.sha256}  {name.rpartition('/')[2]}\n".encode()
        self._objects.write(name + CHECKSUM_SUFFIX, line, about=name)
        return blob

    def get(self, name: str, target: Path) -> Blob:
        if (blob := self.find(name)) is None:
            raise BoundaryError(f"{self.label}: has no object {name!r}; put it there first")
        with whole_file(target) as partial:
            self._objects.get_file(name, partial)
            if sha256_file(partial) != blob.sha256:
                raise BoundaryError(f"{self.label}/{name}: is not what its checksum says; put it there again")
        return blob

    def find(self, name: str) -> Blob | None:
        line = self._objects.read(checked_name(name) + CHECKSUM_SUFFIX, about=name)
        size_bytes = None if line is None else self._objects.size_bytes(name)
        if line is None or size_bytes is None:
            return None
        checksum, _, _ = line.decode("ascii", "replace").partition(" ")
        if len(checksum) != 64 or not set(checksum) <= set("0123456789abcdef"):
            raise BoundaryError(f"{self.label}/{name}{CHECKSUM_SUFFIX}: is no checksum; put {name!r} there again")
        return Blob(name, size_bytes, checksum)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        sizes = self._objects.sizes(prefix)
        return {name: size_bytes for name, size_bytes in sizes.items() if f"{name}{CHECKSUM_SUFFIX}" in sizes}
