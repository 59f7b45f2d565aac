"""The files of a context that are to be packed: found by name and size, in one order on every machine, before one is read.

Symbolic links are links: a folder is never entered through one.
"""

import logging
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graftline.core.errors import DataError
from graftline.harbor.context_tree import MAX_ENTRIES, Tree, check_name, check_tree
from graftline.harbor.ignore_rules import DEFAULT_EXCLUDES, DEFAULT_INCLUDES, IgnoreRules
from graftline.sandbox.file_names import short

logger = logging.getLogger(__name__)

_SHOWN = 10
_MADE_AGAIN = frozenset({".pyc", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file, folder or symbolic link, as it is packed."""

    path: str
    size: int = 0
    is_folder: bool = False
    is_program: bool = False
    target: str | None = None
    """Where a link leads."""


def context_files(top: Path, rules: IgnoreRules, max_bytes: int) -> list[ContextFile]:
    """Return what of a context is packed, in the order of the bytes of paths.

    Raises:
        DataError: there is too much, or something that cannot be packed; or the context cannot be read.
    """
    found = {file.path: file for file in _found(top, rules)}
    for path in [path for path, file in found.items() if not file.is_folder]:
        while (path := path.rpartition("/")[0]) and path not in found:
            found[path] = ContextFile(path, is_folder=True)
    files = sorted(found.values(), key=lambda file: os.fsencode(file.path))
    _check_size(top, files, max_bytes)
    try:
        for file in files:
            check_name(file.path)
        check_tree(_tree(files))
    except DataError as error:
        raise DataError(f"{top}: {error}") from None
    return files


def left_out(top: Path, below: str = "") -> list[str]:
    """Return the files in the folder `below` of a context that no archive takes, whatever was written to it on purpose."""
    rules = IgnoreRules(top, DEFAULT_INCLUDES, DEFAULT_EXCLUDES)
    files = sorted(path.relative_to(top) for path in (top / below).rglob("*") if path.is_file())
    return [
        path.as_posix()
        for path in files
        if path.suffix not in _MADE_AGAIN and not _MADE_AGAIN & set(path.parts)
        if not rules.packs(path.as_posix()) or not all(rules.enters(folder.as_posix()) for folder in path.parents[:-1])
    ]


def _found(top: Path, rules: IgnoreRules) -> Iterator[ContextFile]:
    pending, count, denied = [""], 0, list[str]()
    while pending:
        folder = pending.pop()
        for entry in _entries(top / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and rules.enters(path):
                pending.append(path)
            if rules.packs(path, is_folder):
                count += 1
                if count > MAX_ENTRIES:
                    raise DataError(
                        f"{top}: holds more than {MAX_ENTRIES} files, folders and links; leave some out by .harborignore"
                    )
                yield _file(top, path, entry, is_folder)
            elif rules.is_denied(path) and not rules.is_excluded(path, is_folder):
                denied.append(path)
    if denied:
        shown = ", ".join(map(short, sorted(denied)[:_SHOWN]))
        logger.warning("%s: %d never packed, as secrets or of a repository: %s", top, len(denied), shown)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}); see to it, or leave it out") from None


def _file(top: Path, path: str, entry: os.DirEntry[str], is_folder: bool) -> ContextFile:
    if is_folder:
        return ContextFile(path, is_folder=True)
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return ContextFile(path, target=os.readlink(top / path))  # noqa: PTH115 - a Path would tidy it
    except OSError as error:
        raise DataError(f"{top}: {short(path)} cannot be read ({error.strerror}); see to it, or leave it out") from None
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "a device")
        raise DataError(f"{top}: {short(path)} is {kind}; expected files, folders and symbolic links only")
    return ContextFile(path, status.st_size, is_program=bool(status.st_mode & stat.S_IXUSR))


def _check_size(top: Path, files: Sequence[ContextFile], max_bytes: int) -> None:
    total = sum(file.size for file in files)
    if total > max_bytes:
        largest = max(files, key=lambda file: file.size)
        raise DataError(
            f"{top}: what is to be packed has {total} bytes, and at most {max_bytes} are accepted; leave files out by"
            f" .harborignore, the largest is {short(largest.path)} with {largest.size} bytes, or raise max_size_mb"
        )


def _tree(files: Sequence[ContextFile]) -> Tree:
    return Tree(
        {file.path for file in files if not file.is_folder and file.target is None},
        [file.path for file in files if file.is_folder],
        {file.path: file.target for file in files if file.target is not None},
    )
