"""Objects below one folder of a file system that fsspec knows, each of them there whole or not at all: the door to fsspec.

In buckets an upload becomes an object in one step; elsewhere it is written to a partial name and renamed. Not here: how
objects are named, and how a reader knows that one is right (`graftline.core.blobs`, `graftline.core.artifacts`).
https://filesystem-spec.readthedocs.io
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import BoundaryError, ConfigError, DataError, GraftlineError
from graftline.core.record import sync
from graftline.core.secrets import Secrets

_BUCKETS = frozenset({"abfs", "abfss", "az", "gcs", "gs", "oss", "s3", "s3a"})
"""Stores without folders, in which an unfinished upload is invisible, and a rename is a copy."""


class ObjectStoreConfig(Config):
    """A bucket, a folder, or whatever else fsspec has a client for."""

    url: str = Field(min_length=1)
    """A folder, from the root, or a URL: `s3://bucket/folder`, `gs://bucket/folder`."""
    options: dict[str, str | int | bool] = Field(default_factory=dict)
    """Of the client, such as `endpoint_url` of s3fs for a server other than Amazon's. Nothing secret."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """Options that are secret, by the names of the variables that hold them: `{key: AWS_ACCESS_KEY_ID}`. Without them
    the client looks where it always does, which for s3fs are the environment, `~/.aws` and the role of the machine."""


class ObjectStore:
    """Objects below one folder of a file system of fsspec, by the rest of their paths."""

    def __init__(
        self, filesystem: Any, folder: str, label: str, is_bucket: bool = False, redact: Callable[[str], str] = str
    ) -> None:
        """`redact` takes secrets out of what the client says."""
        self.label = label
        self._fs, self._folder, self._is_bucket, self._redact = filesystem, folder, is_bucket, redact

    def put_file(self, name: str, source: Path) -> None:
        """Make an object of the file `source`; DataError if that is written to meanwhile."""
        before = source.stat()
        self._write(name, lambda path: self._fs.put_file(str(source), path))
        after = source.stat()
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise DataError(f"{source}: was altered while it was uploaded; upload again when nobody writes to it")

    def get_file(self, name: str, target: Path) -> None:
        """Write the object to the file `target`, which may be there in part after an error."""
        with self.wrap_errors(name):
            self._fs.get_file(self._path(name), str(target))

    def write(self, name: str, content: bytes) -> None:
        """Make an object of `content`."""
        self._write(name, lambda path: self._fs.pipe_file(path, content))

    def read(self, name: str) -> bytes | None:
        """Return what the object holds; None if there is none."""
        with self.wrap_errors(name):
            try:
                content: bytes = self._fs.cat_file(self._path(name))
            except FileNotFoundError:
                return None
        return content

    def size_bytes(self, name: str) -> int | None:
        """Return how large the object is; None if there is none."""
        with self.wrap_errors(name):
            try:
                size: int = self._fs.size(self._path(name))
            except FileNotFoundError:
                return None
        return size

    def remove(self, name: str) -> None:
        """Remove the object, if there is one."""
        with self.wrap_errors(name), suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the bytes of every object whose name begins with `prefix`, by name, sorted."""
        with self.wrap_errors(prefix):
            listing = self._fs.find(self._path(prefix).rpartition("/")[0], detail=True)
        sizes = {path.removeprefix(self._path("")): info["size"] for path, info in sorted(listing.items())}
        return {name: size_bytes for name, size_bytes in sizes.items() if name.startswith(prefix)}

    @contextmanager
    def wrap_errors(self, name: str) -> Iterator[None]:
        """Turn what a client raises about the object `name` into a `BoundaryError`."""
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

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _write(self, name: str, write: Callable[[str], None]) -> None:
        path = self._path(name)
        with self.wrap_errors(name):
            if self._is_bucket:
                write(path)
                return
            folder, _, base = path.rpartition("/")
            partial = f"{folder}/.{base}.partial-{uuid4().hex}"
            self._fs.makedirs(folder, exist_ok=True)
            try:
                write(partial)
                self._sync(partial)
                self._fs.mv(partial, path)
                self._sync(folder)
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    self._fs.rm_file(partial)
                raise

    def _sync(self, path: str) -> None:
        if getattr(self._fs, "local_file", False):
            sync(Path(path))


def open_objects(config: ObjectStoreConfig, root: Path, secrets: Secrets, port: str) -> ObjectStore:
    """Return the objects of `config`; whether they can be reached shows at the first use.

    Args:
        root: what a `url` without a scheme is relative to.
        port: whose configuration it is that messages are about.

    Raises:
        ConfigError: nothing installed knows such a URL, its client does not take the options, or a secret is not set.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    url = config.url
    secret_options = {
        option: secrets.require(name, f"{port}.secrets.{option}").get_secret_value()
        for option, name in config.secrets.items()
    }
    if "://" not in url:
        folder = str(root / Path(url).expanduser())
        return ObjectStore(LocalFileSystem(), folder, folder, redact=secrets.redact)
    parts = urlsplit(url)
    if parts.password is not None:
        raise ConfigError(f"{port}: url: holds a password; name the variable that has it under `secrets` instead")
    # an old listing does not say what is there now, and cached clients keep secrets
    options = {**config.options, **secret_options, "skip_instance_cache": True, "use_listings_cache": False}
    try:
        filesystem, folder = url_to_fs(url, **options)
    except (ImportError, ValueError, TypeError) as error:
        reason = secrets.redact(str(error).partition("\n")[0])
        raise ConfigError(
            f"{port}: url: {url!r} cannot be opened ({reason}); install its client or mend its entry"
        ) from None
    return ObjectStore(filesystem, folder.rstrip("/"), url.rstrip("/"), parts.scheme in _BUCKETS, secrets.redact)


def memory_objects() -> ObjectStore:
    """Return objects held in this process, gone with the object store."""
    from fsspec.implementations.memory import MemoryFileSystem

    filesystem = MemoryFileSystem(skip_instance_cache=True)
    # the class shares one dictionary among all its instances
    filesystem.store, filesystem.pseudo_dirs = {}, [""]
    return ObjectStore(filesystem, "/objects", "memory")
