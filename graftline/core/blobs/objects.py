"""A folder of objects in what fsspec knows, each of them there whole or not at all: the door to fsspec's stores.

In buckets an upload becomes an object in one step; elsewhere it is written to a partial name and renamed. Not here: what
an object is called, and how one knows that it is what it should be (`graftline.core.blobs.filesystem`,
`graftline.core.artifacts.bucket`). https://filesystem-spec.readthedocs.io
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from graftline.core.blobs.whole_file import synced
from graftline.core.errors import BoundaryError, ConfigError, GraftlineError

_BUCKETS = frozenset({"abfs", "abfss", "az", "gcs", "gs", "oss", "s3", "s3a"})
"""Kinds of stores without folders, in which nothing is seen of an upload before its end, and renaming is copying."""


def open_objects(
    url: str, root: Path, options: Mapping[str, str | int | bool], redact: Callable[[str], str], port: str = "blobs"
) -> "Objects":
    """Return the objects at `url`, a URL or a folder from `root`; `options` are those of fsspec's client.

    Args:
        redact: takes secrets out of what the client says.
        port: whose configuration it is that messages are about.

    Raises:
        ConfigError: nothing installed knows such a URL, or its client does not take the options.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    if "://" not in url:
        folder = str(root / Path(url).expanduser())
        return Objects(LocalFileSystem(), folder, folder, False, redact)
    parts = urlsplit(url)
    if parts.password is not None:
        raise ConfigError(f"{port}: url: holds a password; name the variable that has it under `secrets` instead")
    try:
        # a listing of before does not say what is there, and clients that are kept keep secrets
        filesystem, folder = url_to_fs(url, **options, skip_instance_cache=True, use_listings_cache=False)
    except (ImportError, ValueError, TypeError) as error:
        reason = redact(str(error).partition("\n")[0])
        raise ConfigError(
            f"{port}: url: {url!r} cannot be opened ({reason}); install its client or mend `options`"
        ) from None
    return Objects(filesystem, folder.rstrip("/"), url.rstrip("/"), parts.scheme in _BUCKETS, redact)


class Objects:
    """Objects below one folder of a file system of fsspec, by the rest of their paths."""

    def __init__(self, filesystem: Any, folder: str, label: str, is_bucket: bool, redact: Callable[[str], str]) -> None:
        self.label = label
        self._fs, self._folder, self._is_bucket, self._redact = filesystem, folder, is_bucket, redact

    def put_file(self, name: str, source: Path) -> None:
        """Make an object of the file `source`."""
        self._write(name, lambda there: self._fs.put_file(str(source), there))

    def get_file(self, name: str, target: Path) -> None:
        """Write the object to the file `target`, which may be there in part after an error."""
        with self.answering(name):
            self._fs.get_file(self._place(name), str(target))

    def write(self, name: str, content: bytes, about: str = "") -> None:
        """Make an object of `content`, in the place of another one; errors are `about` that one, or another."""
        self._write(name, lambda there: self._fs.pipe_file(there, content), about)

    def read(self, name: str, about: str = "") -> bytes | None:
        """Return what the object holds; None if there is none."""
        with self.answering(about or name):
            try:
                content: bytes = self._fs.cat_file(self._place(name))
            except FileNotFoundError:
                return None
        return content

    def size_bytes(self, name: str) -> int | None:
        """Return how large the object is; None if there is none."""
        with self.answering(name):
            try:
                size: int = self._fs.size(self._place(name))
            except FileNotFoundError:
                return None
        return size

    def remove(self, name: str, about: str = "") -> None:
        """Take the object away; nothing happens where there is none."""
        with self.answering(about or name), suppress(FileNotFoundError):
            self._fs.rm_file(self._place(name))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the bytes of every object in the folder that `prefix` names or begins with, by name, sorted."""
        with self.answering(prefix):
            found = self._fs.find(self._place(prefix).rpartition("/")[0], detail=True)
        sizes = ((path.removeprefix(self._place("")), info["size"]) for path, info in sorted(found.items()))
        return {name: size_bytes for name, size_bytes in sizes if name.startswith(prefix)}

    @contextmanager
    def answering(self, name: str) -> Iterator[None]:
        """Turn what a client raises into an error of ours, about the object called `name`."""
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

    def _place(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _write(self, name: str, write: Callable[[str], None], about: str = "") -> None:
        place = self._place(name)
        with self.answering(about or name):
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
