"""Objects in what fsspec knows: `s3://…`, `gs://…`, a folder of this machine, and others.

Beside each object stands its checksum, `<name>.sha256`, in the form of the command sha256sum. It is taken away before
the object is written and written after it: an object without one, left by a writer that was killed or put there by
somebody else, is not there. In buckets an upload becomes an object in one step; elsewhere it is written to a partial
name and renamed. https://filesystem-spec.readthedocs.io
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from graftline.blobs.base import CHECKSUM_SUFFIX, Blob, blob_of, checked_name
from graftline.blobs.whole_file import synced, whole_file
from graftline.errors import BoundaryError, ConfigError, DataError, GraftlineError
from graftline.hashing import sha256_file

_BUCKETS = frozenset({"abfs", "abfss", "az", "gcs", "gs", "oss", "s3", "s3a"})
"""Kinds of stores without folders, in which nothing is seen of an upload before its end, and renaming is copying."""


def open_filesystem(
    url: str, root: Path, options: Mapping[str, str | int | bool], redact: Callable[[str], str]
) -> "FilesystemBlobStore":
    """Return the store at `url`, a URL or a folder from `root`; `options` are those of fsspec's client.

    Args:
        redact: takes secrets out of what the client says.

    Raises:
        ConfigError: nothing installed knows such a URL, or its client does not take the options.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    if "://" not in url:
        folder = str(root / Path(url).expanduser())
        return FilesystemBlobStore(LocalFileSystem(), folder, folder, False, redact)
    parts = urlsplit(url)
    if parts.password is not None:
        raise ConfigError("blobs: url: holds a password; name the variable that has it under `secrets` instead")
    try:
        # a listing of before does not say what is there, and clients that are kept keep secrets
        filesystem, folder = url_to_fs(url, **options, skip_instance_cache=True, use_listings_cache=False)
    except (ImportError, ValueError, TypeError) as error:
        reason = redact(str(error).partition("\n")[0])
        raise ConfigError(
            f"blobs: url: {url!r} cannot be opened ({reason}); install its client or mend `options`"
        ) from None
    return FilesystemBlobStore(filesystem, folder.rstrip("/"), url.rstrip("/"), parts.scheme in _BUCKETS, redact)


class FilesystemBlobStore:
    """Objects below one folder of a file system of fsspec."""

    def __init__(self, filesystem: Any, folder: str, label: str, is_bucket: bool, redact: Callable[[str], str]) -> None:
        self.label = label
        self._fs, self._folder, self._is_bucket, self._redact = filesystem, folder, is_bucket, redact

    def put(self, name: str, source: Path) -> Blob:
        blob = blob_of(checked_name(name), source)
        place = self._place(name)
        with self._answering(name):
            before = source.stat()
            with suppress(FileNotFoundError):
                self._fs.rm_file(place + CHECKSUM_SUFFIX)
            self._write(place, lambda there: self._fs.put_file(str(source), there))
            after = source.stat()
            if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
                raise DataError(f"{source}: was altered while it was uploaded; upload again when nobody writes to it")
            line = f"{blob.sha256}  {name.rpartition('/')[2]}\n".encode()
            self._write(place + CHECKSUM_SUFFIX, lambda there: self._fs.pipe_file(there, line))
        return blob

    def get(self, name: str, target: Path) -> Blob:
        if (blob := self.find(name)) is None:
            raise BoundaryError(f"{self.label}: has no object {name!r}; put it there first")
        with whole_file(target) as partial:
            with self._answering(name):
                self._fs.get_file(self._place(name), str(partial))
            if sha256_file(partial) != blob.sha256:
                raise BoundaryError(f"{self.label}/{name}: is not what its checksum says; put it there again")
        return blob

    def find(self, name: str) -> Blob | None:
        place = self._place(checked_name(name))
        with self._answering(name):
            try:
                line = self._fs.cat_file(place + CHECKSUM_SUFFIX).decode("ascii", "replace")
                size_bytes = self._fs.size(place)
            except FileNotFoundError:
                return None
        checksum, _, _ = line.partition(" ")
        if len(checksum) != 64 or not set(checksum) <= set("0123456789abcdef"):
            raise BoundaryError(f"{self.label}/{name}{CHECKSUM_SUFFIX}: is no checksum; put {name!r} there again")
        return Blob(name, size_bytes, checksum)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        with self._answering(prefix):
            found = self._fs.find(self._place(prefix).rpartition("/")[0], detail=True)
        sizes = {path.removeprefix(self._place("")): info["size"] for path, info in sorted(found.items())}
        return {
            name: size_bytes
            for name, size_bytes in sizes.items()
            if name.startswith(prefix) and f"{name}{CHECKSUM_SUFFIX}" in sizes
        }

    def _place(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _write(self, place: str, write: Callable[[str], None]) -> None:
        if self._is_bucket:
            write(place)
            return
        folder, _, base = place.rpartition("/")
        partial = f"{folder}/.{base}.partial-{uuid4().hex}"
        self._fs.makedirs(folder, exist_ok=True)
        try:
            write(partial)
            self._sync(partial)
            self._fs.mv(partial, place)
            self._sync(folder)
        except BaseException:
            with suppress(Exception):  # the first fault is the one to be told
                self._fs.rm_file(partial)
            raise

    def _sync(self, place: str) -> None:
        if getattr(self._fs, "local_file", False):
            synced(Path(place))

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        try:
            yield
        except GraftlineError:
            raise
        except Exception as error:  # every client has errors of its own
            reason = self._redact(str(error).partition("\n")[0][:300])
            raise BoundaryError(
                f"{self.label}/{name}: {type(error).__name__}: {reason}; check the store, its credentials and the right"
                " to write there, then try again: what was put is kept"
            ) from error
