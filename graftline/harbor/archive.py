"""Contexts as they come to the service: a tar.gz of unknown origin, looked through as a whole before anything is written.

Covered: names that leave the folder or that systems confuse, links that lead out, pass through others, loop or dangle,
hard links, devices, sparse files, two members of one name, floods of headers, damage, what follows the end, and content
that is larger than it looks. Not covered: what the files say. `packager` makes such archives, and keeps to the same rules.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from graftline.core.errors import DataError, HarborError
from graftline.harbor.context_tree import FILE_MODE, PROGRAM_MODE, Tree, check_tree
from graftline.harbor.tar_stream import ArchiveLimits, Entry, TarStream
from graftline.sandbox.file_names import short

DOCKERFILE = "Dockerfile"
MAX_DOCKERFILE_BYTES = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SYNCED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class ArchiveInfo:
    """What is in an archive that is sound."""

    files: tuple[str, ...]
    """Paths of files and symbolic links, in the order of the archive."""
    file_count: int
    total_size_bytes: int
    content_sha256: str
    """Of the tar in it: the same context has the same, whichever release of zlib packed it."""
    dockerfile: str | None = field(repr=False)
    """The text of the file `Dockerfile` at the top; None where there is none that is a text."""


def check_archive(data: bytes, limits: ArchiveLimits = ArchiveLimits()) -> ArchiveInfo:  # noqa: B008 - never changes
    """Return what is in an archive.

    Raises:
        DataError: it is no tar.gz, is damaged, hostile or too large; nothing of it is to be used.
    """
    entries: list[Entry] = []
    dockerfile = None
    stream = TarStream(data, limits)
    for entry in stream:
        entries.append(entry)
        if entry.path == DOCKERFILE and entry.size <= MAX_DOCKERFILE_BYTES:
            dockerfile = _text(b"".join(stream.content())) if entry.size else None
    check_tree(_tree(entries))
    files = tuple(entry.path for entry in entries if not entry.is_folder)
    return ArchiveInfo(files, len(files), sum(entry.size for entry in entries), stream.sha256(), dockerfile)


def unpack(data: bytes, folder: Path, limits: ArchiveLimits = ArchiveLimits()) -> None:  # noqa: B008 - never changes
    """Unpack an archive to `folder`, which is not there yet, whole or not at all.

    Files have the mode 0644 or 0755, folders 0755; owner and time are those of the moment.

    Raises:
        DataError: as `check_archive`.
        FileExistsError: something is at `folder`.
        HarborError: it cannot be written.
    """
    check_archive(data, limits)
    if os.path.lexists(folder):
        raise FileExistsError(f"{folder}: is there already")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=partial_prefix(folder.name), dir=folder.parent))
        try:
            _write(TarStream(data, limits), partial)
            partial.chmod(PROGRAM_MODE)
            is_placed = _takes_place(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise HarborError(f"{folder}: cannot be written ({error.strerror}); see to the disk that holds it") from error
    if not is_placed:
        raise FileExistsError(f"{folder}: is there already")


def partial_prefix(name: str) -> str:
    """Return how folders are called at first that are to be called `name`; a killed process leaves one."""
    return f".{name}.partial-"


def _text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def _tree(entries: Iterable[Entry]) -> Tree:
    files, folders, links = list[str](), list[str](), dict[str, str]()
    met = set[str]()
    for entry in entries:
        if entry.path in met:
            raise DataError(f"the archive holds {short(entry.path)} twice; package it again")
        met.add(entry.path)
        if entry.target is not None:
            links[entry.path] = entry.target
        else:
            (folders if entry.is_folder else files).append(entry.path)
    return Tree(set(files), folders, links)


def _write(stream: TarStream, top: Path) -> None:
    """Write what is in a sound archive to an empty folder."""
    made, written, links = {top}, [], dict[Path, str]()
    for entry in stream:
        path = top / entry.path
        _make(path if entry.is_folder else path.parent, made)
        if entry.target is not None:
            links[path] = entry.target
        elif not entry.is_folder:
            descriptor = os.open(path, _NEW_FILE, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(stream.content())
                os.fchmod(descriptor, PROGRAM_MODE if entry.is_program else FILE_MODE)
            written.append(path)
    # last, so that nothing is ever written through one
    for path, target in links.items():
        path.symlink_to(target)
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:
        list(threads.map(_sync, [*written, *made]))


def _make(folder: Path, made: set[Path]) -> None:
    missing = [folder]
    while missing[-1] not in made:
        missing.append(missing[-1].parent)
    for path in reversed(missing[:-1]):
        path.mkdir()
        path.chmod(PROGRAM_MODE)  # whatever the umask
        made.add(path)


def _takes_place(partial: Path, folder: Path) -> bool:
    """Call `partial` what it is to be called; return whether nobody else was first."""
    try:
        # an empty folder would be replaced, a full one is not
        partial.rename(folder)
    except OSError:
        if os.path.lexists(folder):
            return False
        raise
    _sync(folder.parent)
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
