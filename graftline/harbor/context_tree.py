"""The entries of a context: which names can stand beside each other, and where links may lead.

Whoever packs keeps to what whoever unpacks refuses.
"""

import os
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from graftline.core.errors import DataError
from graftline.sandbox.file_names import check_distinct, folders_of, path_of, short

MAX_ENTRIES = 50_000
"""Files, folders and links."""
MAX_NAME_BYTES = 1024
"""Of a path, and of where a link leads."""
FILE_MODE, PROGRAM_MODE = 0o644, 0o755


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or symbolic link of a context, by its path relative to the top."""

    path: str
    size: int = 0
    is_folder: bool = False
    is_program: bool = False
    """Whether anybody may run it; of the mode nothing else is kept."""
    target: str | None = None
    """Where a symbolic link leads, as it is written there."""


def read_plain_file(path: Path | str, most_bytes: int, follows_link: bool = False) -> bytes:
    """Return a plain file, one byte more than `most_bytes` of a larger one; OSError where it is none. No FIFO is waited for."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows_link else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(0, "is no plain file")
        return stream.read(most_bytes + 1)


def check_name(name: str) -> None:
    """Refuse a path that does not mean the same on every system. Raises DataError where it does not, or is too long."""
    path_of(name)
    if len(name.encode()) > MAX_NAME_BYTES:
        raise DataError(f"file name {short(name)}: has more than {MAX_NAME_BYTES} bytes; use a shorter one")


def check_tree(entries: Sequence[Entry]) -> None:
    """Refuse names that systems take for one, and links that lead to anything but a file or folder of the context.

    Raises:
        DataError: there are such.
    """
    files = [entry.path for entry in entries if not entry.is_folder and entry.target is None]
    links = {entry.path: entry.target for entry in entries if entry.target is not None}
    leaves = {*files, *links}
    above = {
        str(folder)
        for entry in entries
        if entry.is_folder
        for folder in (entry.path, *PurePosixPath(entry.path).parents)
    }
    folders = {*above, *folders_of(map(PurePosixPath, leaves))} - {"."}
    if both := sorted(leaves & folders):
        raise DataError(f"file name {short(both[0])}: is a folder too; rename one of them")
    check_distinct([*files, *links, *sorted(folders)])
    for name, target in links.items():
        if fault := _fault_of_link(name, target, set(files), folders, links):
            raise DataError(
                f"symbolic link {short(name)} to {short(target)}: {fault}; put a copy in its place, or leave it out"
            )


def _fault_of_link(
    name: str, target: str, files: Collection[str], folders: Collection[str], links: Mapping[str, str]
) -> str:
    """Return why a link is refused, empty where it is not.

    That a link leads to no link, and is in a folder that is none, makes the names alone say where it leads.
    """
    if not target or target.startswith("/") or "\0" in target or len(target.encode()) > MAX_NAME_BYTES:
        return "is not a relative path"
    parts = list(PurePosixPath(name).parts[:-1])
    for part in target.split("/"):
        if "/".join(parts) in files:
            return "leads through a file"
        if part == "..":
            if not parts:
                return "leaves the context"
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
            reached = "/".join(parts)
            if reached in links:
                return "leads to or through another link"
            if reached not in folders and reached not in files:
                return "leads to nothing that is packed"
    reached = "/".join(parts)
    return "leads to a folder that it is in" if not reached or name.startswith(f"{reached}/") else ""
