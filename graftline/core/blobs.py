"""The port `blobs`: files kept under names, in a bucket or a folder, each with its checksum.

Beside each object stands its checksum, `<name>.sha256`, in the form of the command sha256sum. It is removed before the
object is written and written after it: an object without one, left by a writer that was killed or put there by somebody
else, does not exist. That there is no object of a name is a result; an error is raised where the store does not answer,
refuses, or holds something else than the checksum says.
"""

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field

from graftline.core.build import lock_folder
from graftline.core.config import Config
from graftline.core.errors import BoundaryError, DataError
from graftline.core.hashing import sha256_file
from graftline.core.paths import portable
from graftline.core.record import sync, write_atomically
from graftline.core.secrets import Secrets
from graftline.core.store import ObjectStore, ObjectStoreConfig, memory_objects, open_objects

logger = logging.getLogger(__name__)

UPLOADS_NAME = ".uploaded.json"
_CHECKSUM_SUFFIX = ".sha256"


@dataclass(frozen=True, slots=True)
class Blob:
    """An object, as it was put."""

    name: str
    """A relative path with forward slashes; no part of it begins with a dot."""
    size_bytes: int
    sha256: str


class BlobStore:
    """Keeps objects. Safe to use from several threads; of several processes that put one name, the last one wins."""

    def __init__(self, objects: ObjectStore) -> None:
        self.label = objects.label
        """What messages call the store; without secrets."""
        self._objects = objects

    def put(self, name: str, source: Path) -> Blob:
        """Keep the content of the file `source` under `name`, instead of what was there; half an object is never visible.

        Raises:
            DataError: `name` cannot be one, or `source` cannot be read or was altered meanwhile.
            BoundaryError: the store failed; what it had under `name` may be gone.
        """
        blob = _hash_source(_check_name(name), source)
        self._objects.remove(name + _CHECKSUM_SUFFIX)
        self._objects.put_file(name, source)
        self._objects.write(name + _CHECKSUM_SUFFIX, f"{blob.sha256}  {name.rpartition('/')[2]}\n".encode())
        return blob

    def get(self, name: str, target: Path) -> Blob:
        """Write the object to the file `target`, whole and verified, or not at all.

        Raises:
            DataError: `name` cannot be one.
            BoundaryError: there is none, it is not what its checksum says, or the store failed.
        """
        if (blob := self.find(name)) is None:
            raise BoundaryError(f"{self.label}: has no object {name!r}; put it there first")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.partial-{uuid4().hex}")
        try:
            self._objects.get_file(name, partial)
            if sha256_file(partial) != blob.sha256:
                raise BoundaryError(f"{self.label}/{name}: is not what its checksum says; put it there again")
            sync(partial)
            partial.replace(target)
            sync(target.parent)
        finally:
            partial.unlink(missing_ok=True)
        return blob

    def find(self, name: str) -> Blob | None:
        """Return the object called `name`, None if there is none."""
        line = self._objects.read(_check_name(name) + _CHECKSUM_SUFFIX)
        size_bytes = None if line is None else self._objects.size_bytes(name)
        if line is None or size_bytes is None:
            return None
        checksum, _, _ = line.decode("ascii", "replace").partition(" ")
        if len(checksum) != 64 or not set(checksum) <= set("0123456789abcdef"):
            raise BoundaryError(f"{self.label}/{name}{_CHECKSUM_SUFFIX}: is no checksum; put {name!r} there again")
        return Blob(name, size_bytes, checksum)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the bytes of every object whose name begins with `prefix`, by name, sorted."""
        sizes = self._objects.sizes(prefix)
        return {name: size_bytes for name, size_bytes in sizes.items() if f"{name}{_CHECKSUM_SUFFIX}" in sizes}


class FilesystemBlobsConfig(ObjectStoreConfig):
    """A bucket, a folder, or whatever else fsspec has a client for."""

    kind: Literal["filesystem"] = "filesystem"


class MemoryBlobsConfig(Config):
    """In this process: for tests."""

    kind: Literal["memory"] = "memory"


BlobsConfig = Annotated[FilesystemBlobsConfig | MemoryBlobsConfig, Field(discriminator="kind")]


def open_blob_store(config: BlobsConfig, root: Path, secrets: Secrets) -> BlobStore:
    """Return the store of `config`, as `open_objects`."""
    if isinstance(config, MemoryBlobsConfig):
        return BlobStore(memory_objects())
    return BlobStore(open_objects(config, root, secrets, "blobs"))


@dataclass(frozen=True, slots=True)
class UploadSummary:
    """What became of the sealed files of a folder, all of which are in the store."""

    sent: int
    sent_bytes: int
    kept: int
    """Files that the store held already."""


def upload_new(
    folder: Path, store: BlobStore, below: str = "", is_sealed: Callable[[Path], bool] = lambda path: True
) -> UploadSummary:
    """Put every sealed file below `folder` that `store` does not hold yet; names are the paths from `folder`.

    What is known to be in the store is kept in `.uploaded.json` in the folder: such a file is neither read nor asked for
    again while the store lists it with its size. For all others the checksum decides, so losing that file costs nothing
    but time. After an error or a kill, the next call goes on where this one stopped. One process at a time uploads a
    folder; another one waits for it.

    Args:
        below: folder of the store that the names begin with.
        is_sealed: whether a file is never written to again. Those with a name, or in a folder, that begins with a dot
            are not, and are not asked about.

    Raises:
        DataError: there is no such folder, a name cannot be that of an object, or a file was altered meanwhile.
        BoundaryError: the store failed.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name the one that holds the shards")
    with lock_folder(folder):
        uploads = _read_uploads(folder / UPLOADS_NAME)
        stored_sizes = store.sizes(f"{below}/" if below else "")

        def upload(path: Path) -> int | None:
            """Return how many bytes were sent; None where the store held the file."""
            name, state = f"{below}/{path.relative_to(folder).as_posix()}".removeprefix("/"), path.stat()
            present = [store.label, state.st_size, state.st_mtime_ns]
            is_stored = stored_sizes.get(name) == state.st_size
            if is_stored and uploads.get(name) == present:
                return None
            if not (is_stored and store.find(name) == _hash_source(name, path)):
                is_stored = False
                store.put(name, path)
            uploads[name] = present
            return None if is_stored else state.st_size

        # a bucket's client holds 100 MB in memory and more for each file
        with ThreadPoolExecutor(4) as threads:
            futures = [threads.submit(upload, path) for path in _list_sealed(folder, is_sealed)]
            try:
                results = [future.result() for future in futures]
            finally:
                threads.shutdown(cancel_futures=True)
                with suppress(OSError):  # a folder that cannot be written to can be uploaded
                    write_atomically(folder / UPLOADS_NAME, json.dumps(uploads))
    sizes = [size_bytes for size_bytes in results if size_bytes is not None]
    summary = UploadSummary(len(sizes), sum(sizes), len(results) - len(sizes))
    logger.info("uploaded %s to %s: %s", folder, store.label, summary)
    return summary


def _check_name(name: str) -> str:
    path = portable(name)
    if str(path) != name or any(part.startswith(".") for part in path.parts) or name.endswith(_CHECKSUM_SUFFIX):
        raise DataError(
            f"object name {name!r}: has an empty part, one that begins with a dot, or ends in {_CHECKSUM_SUFFIX};"
            " use a plain relative path such as 'raw/shard-1.jsonl'"
        )
    return name


def _hash_source(name: str, source: Path) -> Blob:
    try:
        return Blob(name, source.stat().st_size, sha256_file(source))
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror}); expected a file to be uploaded") from None


def _list_sealed(folder: Path, is_sealed: Callable[[Path], bool]) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not is_hidden and path.is_file() and is_sealed(path):
            yield path


def _read_uploads(path: Path) -> dict[str, Any]:
    try:
        uploads: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return uploads
