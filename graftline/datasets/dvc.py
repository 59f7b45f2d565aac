"""Artifacts into DVC: their files into a remote in DVC's layout, and a `.dvc` file beside each folder.

What DVC 3 writes for `dvc add` and `dvc push` of a folder (https://dvc.org/doc/user-guide/project-structure), without
DVC: it need not be installed, and nothing is copied into a cache first. A folder is one entry, whatever is in it.
Not here: `.dvc/config`, which names the remote for `dvc pull` and belongs to the user (see docs/governance.md).
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from uuid import uuid4

from graftline.core.errors import BoundaryError, ConfigError, GraftlineError, RecordError
from graftline.core.paths import Paths
from graftline.core.progress import Progress
from graftline.core.record import RECORD_NAME, load_record, write_atomically
from graftline.datasets.governance import StoredArtifact, stored_artifacts

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_BUCKETS = ("abfs", "abfss", "az", "gcs", "gs", "oss", "s3", "s3a")
"""Kinds of remote without folders: to make one there makes the bucket, even if its name is a slip."""


@dataclass(frozen=True)
class Exported:
    """An artifact that is in the remote."""

    folder: str
    """Relative to the root; the `.dvc` file has the same name with `.dvc` after it."""
    md5: str
    """By which DVC knows the folder, `.dir` at its end."""
    files: int
    size_bytes: int
    copied: int
    """Objects that the remote did not hold yet; the list of the folder is one too."""
    is_changed: bool
    """Whether the `.dvc` file is new or another one than before."""


@dataclass(frozen=True)
class DvcExport:
    """What `export_dvc` did."""

    remote: str
    artifacts: tuple[Exported, ...]
    refused: tuple[str, ...]
    """A sentence for each folder that was left out, for it is not what its record says."""


def export_dvc(paths: Paths, remote: str | None, progress: Progress | None = None) -> DvcExport:
    """Bring every artifact of the data stages to `remote`, and write or renew its `.dvc` file.

    An object that the remote holds is not copied again. A `.dvc` file is written when everything it names is there.

    Raises:
        ConfigError: `remote` is None, or nothing that can be written to from here.
        RecordError: there is no artifact, or one was replaced meanwhile.
        BoundaryError: the remote fails.
    """
    if remote is None:
        raise ConfigError("configs/governance.yaml: dvc.remote is not set; name a folder or a URL there or by --remote")
    target = _Remote(remote, paths.root)
    artifacts, refused = stored_artifacts(paths)
    exports = []
    for stored in artifacts:
        name = paths.relative(stored.folder)
        if progress:
            progress.start("dvc", name)
        exported = _export(stored, name, target, progress)
        exports.append(exported)
        if progress:
            progress.finish(f"copied {exported.copied} objects" if exported.copied or exported.is_changed else "")
        logger.info("dvc %s: %s, copied %d objects", name, exported.md5, exported.copied)
    return DvcExport(remote, tuple(exports), tuple(refused))


def _export(stored: StoredArtifact, name: str, remote: "_Remote", progress: Progress | None) -> Exported:
    folder, size_bytes, copied, entries = stored.folder, 0, 0, []
    # by name, for DVC lists a folder so
    files = sorted([*stored.record.files, RECORD_NAME])
    for number, file in enumerate(files, 1):
        path = folder / file
        size = path.stat().st_size
        with path.open("rb") as stream:
            md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
            if not remote.holds(md5, size):
                stream.seek(0)
                remote.put(stream, md5, str(path))
                copied += 1
        entries.append({"md5": md5, "relpath": file})
        size_bytes += size
        if progress:
            progress.advance(number, len(files))
    listing = json.dumps(entries, sort_keys=True).encode()
    md5 = hashlib.md5(listing, usedforsecurity=False).hexdigest()
    if not remote.holds(f"{md5}.dir", len(listing)):
        remote.put(BytesIO(listing), md5, f"{folder}: list of its files", ".dir")
        copied += 1
    if load_record(folder) != stored.record:
        raise RecordError(f"{folder}: was replaced while it was exported; export again")
    text = (
        f"outs:\n- md5: {md5}.dir\n  size: {size_bytes}\n  nfiles: {len(files)}\n  hash: md5\n  path: {folder.name}\n"
    )
    dvc_file = folder.with_name(f"{folder.name}.dvc")
    is_changed = not dvc_file.exists() or dvc_file.read_bytes() != text.encode()
    if is_changed:
        write_atomically(dvc_file, text)
    return Exported(name, f"{md5}.dir", len(files), size_bytes, copied, is_changed)


class _Remote:
    """Objects by their MD5, in DVC's layout: `files/md5/<first two digits>/<the others>`."""

    def __init__(self, remote: str, root: Path) -> None:
        self._label = remote
        self._has_folders = remote.partition("://")[0] not in _BUCKETS
        self._fs, self._path = _open_remote(remote, root)

    def holds(self, name: str, size_bytes: int) -> bool:
        """Return whether the object is there, whole."""
        with self._answering():
            try:
                return bool(self._fs.info(self._place(name))["size"] == size_bytes)
            except FileNotFoundError:
                return False

    def put(self, source: IO[bytes], md5: str, label: str, suffix: str = "") -> None:
        """Copy `source` to where the object of `md5` belongs, whole or not at all.

        Raises:
            RecordError: it is another content by now; `label` names it.
        """
        place = self._place(f"{md5}{suffix}")
        partial = f"{self._path}/partial/{uuid4().hex}"
        with self._answering():
            if self._has_folders:
                self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
                self._fs.makedirs(f"{self._path}/partial", exist_ok=True)
            try:
                content = hashlib.md5(usedforsecurity=False)
                with self._fs.open(partial, "wb") as stream:
                    while chunk := source.read(_CHUNK_BYTES):
                        stream.write(chunk)
                        content.update(chunk)
                if content.hexdigest() != md5:
                    raise RecordError(f"{label}: was altered while it was exported; export again")
                self._fs.mv(partial, place)
            except BaseException:
                with suppress(Exception):  # the first fault is the one to be reported
                    self._fs.rm_file(partial)
                raise

    def _place(self, name: str) -> str:
        return f"{self._path}/files/md5/{name[:2]}/{name[2:]}"

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except GraftlineError:
            raise
        except NotImplementedError:
            raise ConfigError(f"{self._label}: cannot be written to; name a folder or a bucket as dvc.remote") from None
        except Exception as error:  # every service has errors of its own
            reason = str(error).partition("\n")[0]
            raise BoundaryError(
                f"{self._label}: {type(error).__name__}: {reason}; check the remote and the right to write there,"
                " then export again, what was copied is kept"
            ) from error


def _open_remote(remote: str, root: Path) -> tuple[Any, str]:
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    if "://" not in remote:
        return LocalFileSystem(), str(root / Path(remote).expanduser())
    try:
        if urlsplit(remote).password:
            raise ConfigError("dvc.remote: holds a password; give it to the client of the service, e.g. by environment")
        fs, path = url_to_fs(remote)
    except (ImportError, ValueError, TypeError) as error:
        # of an unknown kind, of one whose client is not installed, or without what the client asks for
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"dvc.remote: {remote!r} cannot be opened ({reason}); install its client or name another"
        ) from None
    fs.invalidate_cache()
    return fs, path.rstrip("/")
