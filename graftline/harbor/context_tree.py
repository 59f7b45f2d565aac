"""The names of a context: which can stand beside each other, and where links may lead. Whoever packs keeps to what whoever
unpacks refuses.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from graftline.core.errors import DataError
from graftline.sandbox.file_names import check_distinct, folders_of, path_of, short

MAX_ENTRIES = 50_000
"""Files, folders and links."""
MAX_NAME_BYTES = 1024
"""Of a path, and of where a link leads."""
FILE_MODE, PROGRAM_MODE = 0o644, 0o755


@dataclass(frozen=True, slots=True)
class Tree:
    """What is in a context, by path relative to its top."""

    files: Collection[str]
    folders: Collection[str]
    links: Mapping[str, str]
    """Where each symbolic link leads, as it is written there."""


def check_name(name: str) -> None:
    """Refuse a path that does not mean the same on every system.

    Raises:
        DataError: it does not, or is too long.
    """
    path_of(name)
    if len(name.encode()) > MAX_NAME_BYTES:
        raise DataError(f"file name {short(name)}: has more than {MAX_NAME_BYTES} bytes; use a shorter one")


def check_tree(tree: Tree) -> None:
    """Refuse names that systems take for one, and links that lead to anything but a file or folder of the context.

    Raises:
        DataError: there are such.
    """
    leaves = {*tree.files, *tree.links}
    above = {str(folder) for name in tree.folders for folder in PurePosixPath(name).parents}
    folders = {*tree.folders, *above, *folders_of(map(PurePosixPath, leaves))} - {"."}
    if both := sorted(leaves & folders):
        raise DataError(f"file name {short(both[0])}: is a folder too; rename one of them")
    check_distinct([*tree.files, *tree.links, *sorted(folders)])
    for name, target in tree.links.items():
        if fault := _fault(name, target, tree, folders):
            raise DataError(
                f"symbolic link {short(name)} to {short(target)}: {fault}; put a copy in its place, or leave it out"
            )


def _fault(name: str, target: str, tree: Tree, folders: Collection[str]) -> str:
    """Return why a link is refused, empty where it is not.

    That a link leads to no link, and is in a folder that is none, makes the names alone say where it leads.
    """
    if not target or target.startswith("/") or "\0" in target or len(target.encode()) > MAX_NAME_BYTES:
        return "is not a relative path"
    parts = list(PurePosixPath(name).parts[:-1])
    for part in target.split("/"):
        if "/".join(parts) in tree.files:
            return "leads through a file"
        if part == "..":
            if not parts:
                return "leaves the context"
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
            reached = "/".join(parts)
            if reached in tree.links:
                return "leads to or through another link"
            if reached not in folders and reached not in tree.files:
                return "leads to nothing that is packed"
    reached = "/".join(parts)
    return "leads to a folder that it is in" if not reached or name.startswith(f"{reached}/") else ""
