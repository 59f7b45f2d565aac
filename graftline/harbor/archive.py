"""Contexts that come to the service, a tar.gz of unknown origin: checked as a whole before anything is written, and kept.

Covered: names that leave the folder or that systems confuse, links that lead out, pass through others, loop or dangle,
hard links, devices, sparse files, two members of one name, floods of headers, damage, what follows the end, and content
that is larger than it looks. Not covered: what the files say. `packager` makes such archives, and keeps to the same rules.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from graftline.core.build import lock_folder
from graftline.core.errors import DataError, HarborError
from graftline.core.record import sync
from graftline.harbor.context_tree import FILE_MODE, PROGRAM_MODE, Entry, check_tree
from graftline.harbor.tar_stream import ArchiveLimits, TarStream
from graftline.sandbox.file_names import short

DOCKERFILE = "Dockerfile"
MAX_DOCKERFILE_BYTES = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SYNCED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class ArchiveInfo:
    """What is in an archive that is sound."""

    content_sha256: str
    """Of the tar in it: the same context has the same, whichever release of zlib packed it."""
    dockerfile: str | None = field(repr=False)
    """The text of the file `Dockerfile` at the top; None where there is none that is a text."""


def check_archive(data: bytes, limits: ArchiveLimits = ArchiveLimits()) -> ArchiveInfo:  # noqa: B008 - never changes
    """Return what is in an archive.

    Raises:
        DataError: it is no tar.gz, is damaged, hostile or too large; nothing of it is to be used.
    """
    by_path: dict[str, Entry] = {}
    dockerfile = None
    stream = TarStream(data, limits)
    for entry in stream:
        if entry.path in by_path:
            raise DataError(f"the archive holds {short(entry.path)} twice; package it again")
        by_path[entry.path] = entry
        if entry.path == DOCKERFILE and entry.size <= MAX_DOCKERFILE_BYTES:
            dockerfile = _text(b"".join(stream.content())) if entry.size else None
    check_tree([*by_path.values()])
    return ArchiveInfo(stream.sha256(), dockerfile)


def unpack(data: bytes, folder: Path, limits: ArchiveLimits = ArchiveLimits()) -> None:  # noqa: B008 - never changes
    """Unpack an archive to `folder`, which is not there yet, whole or not at all.

    Files have the mode 0644 or 0755, folders 0755; owner and time are those of the moment. The caller keeps others away from
    `folder` meanwhile: an empty one that comes there is replaced, one that holds something is left, and is a HarborError.

    Raises:
        DataError: as `check_archive`.
        FileExistsError: something is at `folder` before it begins.
        HarborError: it cannot be written.
    """
    check_archive(data, limits)
    if os.path.lexists(folder):
        raise FileExistsError(f"{folder}: is there already")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
        try:
            _write(TarStream(data, limits), partial)
            partial.chmod(PROGRAM_MODE)
            partial.rename(folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise HarborError(f"{folder}: cannot be written ({error.strerror}); see to the disk that holds it") from error


def _text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def _write(stream: TarStream, top: Path) -> None:
    """Write what is in a sound archive to an empty folder."""
    folders, files, links = {top}, list[Path](), dict[Path, str]()
    for entry in stream:
        path = top / entry.path
        _make_folders(path if entry.is_folder else path.parent, folders)
        if entry.target is not None:
            links[path] = entry.target
        elif not entry.is_folder:
            descriptor = os.open(path, _NEW_FILE, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(stream.content())
                os.fchmod(descriptor, PROGRAM_MODE if entry.is_program else FILE_MODE)
            files.append(path)
    # last, so that nothing is ever written through one
    for path, target in links.items():
        path.symlink_to(target)
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:
        list(threads.map(sync, [*files, *folders]))


def _make_folders(folder: Path, folders: set[Path]) -> None:
    missing = [folder]
    while missing[-1] not in folders:
        missing.append(missing[-1].parent)
    for path in reversed(missing[:-1]):
        path.mkdir()
        path.chmod(PROGRAM_MODE)  # whatever the umask
        folders.add(path)


class Snapshots:
    """The snapshots below one folder, which is made when the first one is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, digest: str, archive: Callable[[], bytes]) -> Path:
        """Return the folder of a snapshot, unpacked from what `archive` returns unless it is there.

        Raises:
            DataError: the archive is refused, or is another one than `digest` says.
            HarborError: it cannot be written.
        """
        if (snapshot := self.path(digest)) is not None:
            return snapshot
        try:
            with lock_folder(self._folder):
                if (snapshot := self.path(digest)) is not None:
                    return snapshot
                # whoever unpacks has the lock: these are of processes that were killed
                for partial in self._folder.glob(".*.partial-*"):
                    shutil.rmtree(partial, ignore_errors=True)
                data = archive()
                if sha256(data).hexdigest() != digest:
                    raise DataError(f"snapshot {digest}: the archive is another one; package the context again")
                unpack(data, self._folder / digest)
        except OSError as error:
            raise HarborError(
                f"{self._folder}: cannot be written ({error.strerror}); see to the disk that holds it"
            ) from error
        return self._folder / digest

    def path(self, digest: str) -> Path | None:
        """Return the folder of a snapshot, None where it is not there."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest[:80]!r} is no digest; expected 64 hexadecimal characters")
        folder = self._folder / digest
        return folder if folder.is_dir() else None
