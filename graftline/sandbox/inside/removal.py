"""Removing a folder that somebody else has filled: however deep it is, whatever its rights are, without following links.

A path of thousands of parts can be neither opened nor walked by recursion; folders are entered one name at a time, with
three of them open at most. Imports the standard library only.
"""

import errno
import os
from dataclasses import dataclass, field
from itertools import islice

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is opened that nobody vouches for."""
_REMOVED_AT_ONCE = 1000
_ATTEMPTS = 10
_MEANWHILE = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY})
"""Errors that say that somebody works in it still."""


def remove(name: str, folder: int) -> None:
    """Remove whatever `name` is in an open folder; nothing, where it is not there.

    Raises:
        OSError: it cannot be removed, or is written to all the time.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            try:
                _remove_folder(name, folder)
            except OSError as error:
                if attempt == _ATTEMPTS or error.errno not in _MEANWHILE:
                    raise


def remove_path(path: str) -> None:
    """Remove a file or a folder by its path."""
    above, name = os.path.split(path)
    descriptor = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove(name, descriptor)
    finally:
        os.close(descriptor)


def names_in(folder: int, most: int | None = None) -> list[str]:
    """Return the names of so many entries of an open folder."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, most)]


@dataclass(slots=True)
class _Level:
    """A folder that is being emptied."""

    name: str
    above: tuple[int, int]
    """Which folder it is in: device and inode."""
    folders: list[str] = field(default_factory=list)
    """Folders in it that were seen."""


def _remove_folder(name: str, folder: int) -> None:
    """Remove a folder with three descriptors open at a time, however deep it is."""
    levels = [_Level(name, _identity(folder))]
    current = _taken_over(name, folder)
    try:
        while levels:
            level = levels[-1]
            if level.folders:
                inner = _Level(level.folders.pop(), _identity(current))
                entered = _taken_over(inner.name, current)
                os.close(current)
                current = entered
                levels.append(inner)
            elif (seen := _thinned(current)) is not None:
                level.folders = seen
            else:
                above = os.open("..", FOLDER, dir_fd=current)
                os.close(current)
                current = above
                if _identity(current) != level.above:
                    raise FileNotFoundError(errno.ENOENT, "it was moved meanwhile")
                os.rmdir(level.name, dir_fd=current)
                levels.pop()
    finally:
        os.close(current)


def _thinned(folder: int) -> list[str] | None:
    """Remove some of what is in an open folder and return the folders seen on the way; None where it is empty."""
    names = names_in(folder, _REMOVED_AT_ONCE)
    folders = []
    for name in names:
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            folders.append(name)
        except FileNotFoundError:
            continue
    return folders if names else None


def _taken_over(name: str, folder: int) -> int:
    """Return the folder `name` of an open folder, open and with the rights to empty it."""
    try:
        descriptor = os.open(name, FOLDER, dir_fd=folder)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - fchmod refuses such a descriptor
            descriptor = os.open(".", FOLDER, dir_fd=handle)
        finally:
            os.close(handle)
    try:
        status = os.fstat(descriptor)
        if status.st_dev != os.fstat(folder).st_dev:
            raise OSError(errno.EXDEV, f"folder {name!r} in it is another file system")
        if status.st_mode & 0o700 != 0o700:
            os.fchmod(descriptor, 0o700)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino
