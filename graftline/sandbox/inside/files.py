"""The files of a case: copied, laid, read back and removed, whatever foreign code has made of the folders they are in.

Folders are entered one name at a time by descriptors that follow no link, so that nothing but regular files of the case
itself is ever read. A path of thousands of parts can be neither opened nor walked by recursion, so whoever removes has
three folders open at most. Imports the standard library only.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from graftline.sandbox.inside.frames import add_length, size_of, write

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is opened that nobody vouches for."""
TOO_LARGE, TOO_MANY = "is more than may come back", "is or holds more files than may come back"
"""Why something is left out that is as it should be."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20
_LONGEST_PATH, _DEEPEST = 1024, 64
_IS_LINK = "is a symbolic link, and links are not followed"
_KINDS = {stat.S_IFLNK: _IS_LINK, stat.S_IFDIR: "is a folder", stat.S_IFIFO: "is a pipe", stat.S_IFSOCK: "is a socket"}
_REMOVED_AT_ONCE = 1000
_ATTEMPTS = 10
_MEANWHILE = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY})
"""Errors that say that somebody works in it still."""


@contextmanager
def hold(descriptor: int) -> Iterator[int]:
    """Give an open descriptor, and close it in the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def names_in(folder: int, most: int | None = None) -> list[str]:
    """Return the names of so many entries of an open folder."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, most)]


def copy_parts(source: int, parts: Sequence[str], target: str) -> None:
    """Copy the content of folders below an open one, the later over the earlier; all of it if none is named."""
    with open_folder(target) as top:
        for part in parts or (".",):
            # opened anew: other processes read the same folder, and would share the position in it
            with _walk(part.split("/"), source) as folder:
                _copy(folder, top)


def put(path: str, top: int, content: bytes, mode: int) -> None:
    """Write a file below an open folder, in place of whatever is there; no link on the way is followed."""
    above, _, name = path.rpartition("/")
    folders = above.split("/") if above else []
    with _walk(folders, top, is_made=True) as folder, hold(_open_new(name, folder, mode)) as descriptor:
        write(descriptor, content)


def _copy(source: int, target: int) -> None:
    """Copy what is in one open folder to another, over what is there; links are kept as they are."""
    with os.scandir(source) as entries:
        by_name = sorted(entries, key=lambda entry: entry.name)
    for entry in by_name:
        name = entry.name
        if entry.is_symlink():
            remove(name, target)
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif entry.is_dir(follow_symlinks=False):
            with open_folder(name, source) as inner, _make_folder(name, target) as copied:
                _copy(inner, copied)
        elif entry.is_file(follow_symlinks=False):
            _copy_file(name, source, target)


def _copy_file(name: str, source: int, target: int) -> None:
    with hold(os.open(name, _OLD, dir_fd=source)) as reader:
        mode = stat.S_IMODE(os.fstat(reader).st_mode) & 0o755 | 0o600
        with hold(_open_new(name, target, mode)) as writer:
            while os.sendfile(writer, reader, None, _CHUNK_BYTES):
                pass


def _open_new(name: str, folder: int, mode: int) -> int:
    try:
        return os.open(name, _NEW, mode, dir_fd=folder)
    except FileExistsError:
        remove(name, folder)
        return os.open(name, _NEW, mode, dir_fd=folder)


def open_folder(name: str, folder: int | None = None) -> AbstractContextManager[int]:
    """Open a folder, which may be below an open one, without following a link."""
    return hold(os.open(name, FOLDER, dir_fd=folder))


@contextmanager
def _make_folder(name: str, folder: int) -> Iterator[int]:
    """Open a folder in another, which takes the place of what is no folder."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=folder)
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        remove(name, folder)
        os.mkdir(name, 0o755, dir_fd=folder)
    with open_folder(name, folder) as descriptor:
        yield descriptor


@contextmanager
def _walk(parts: Sequence[str], top: int, is_made: bool = False) -> Iterator[int]:
    """Open the folder that is reached by `parts`."""
    if not parts:
        yield top
        return
    enter = _make_folder if is_made else open_folder
    with enter(parts[0], top) as folder, _walk(parts[1:], folder, is_made) as innermost:
        yield innermost


def give_back(folders: Mapping[str, str], returned: Mapping[str, Any], report: int) -> None:
    """Write what is to come back to the descriptor `report`, as `unpack` reads it.

    `folders` has the path of every folder of the case by its name in `returned`, which is a `sandbox.jail.Returned`.
    """
    reader = _Reader(returned["size_bytes"], returned["files"])
    for path in returned["paths"]:
        top, _, below = path.partition("/")
        with open_folder(folders[top]) as folder:
            reader.read(path, folder, [part for part in below.split("/") if part])
    head = {"files": [[path, len(data)] for path, data in reader.files.items()], "left_out": reader.left_out}
    write(report, add_length(json.dumps(head).encode()))
    for data in reader.files.values():
        write(report, data)


def unpack(report: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the files that came back, and why others did not; ValueError if the report is not whole."""
    start = 4 + size_of(report) if len(report) >= 4 else 4
    head = json.loads(report[4:start])
    files = {}
    for path, size in head["files"]:
        files[path] = report[start : start + size]
        start += size
    if start != len(report):
        raise ValueError(f"{len(report)} bytes, and {start} were announced")
    return files, head["left_out"]


class _Reader:
    """Reads files as long as their number and size are within limits."""

    def __init__(self, size_bytes: int, files: int) -> None:
        self.files: dict[str, bytes] = {}
        self.left_out: dict[str, str] = {}
        self._bytes_left, self._entries_left = size_bytes, files

    def read(self, path: str, top: int, parts: Sequence[str]) -> None:
        """Read what is at `parts` below an open folder; nothing, if nothing is there."""
        try:
            with _walk(parts[:-1], top) as folder:
                if parts:
                    self._read_entry(path, parts[-1], folder, 0)
                else:
                    self._read_folder(path, folder, 0)
        except FileNotFoundError:
            return
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
            self._leave_out(path, _IS_LINK if is_link else f"cannot be read ({error.strerror})")

    def _read_entry(self, path: str, name: str, folder: int, depth: int) -> None:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        try:
            if stat.S_ISDIR(status.st_mode):
                with open_folder(name, folder) as inner:
                    self._read_folder(path, inner, depth + 1)
            elif stat.S_ISREG(status.st_mode):
                self._read_file(path, name, folder)
            else:
                self._leave_out(path, _KINDS.get(stat.S_IFMT(status.st_mode), "is a device"))
        except OSError as error:
            self._leave_out(path, f"cannot be read ({error.strerror})")

    def _read_folder(self, path: str, folder: int, depth: int) -> None:
        if depth > _DEEPEST:
            self._leave_out(path, f"is deeper than {_DEEPEST} folders")
            return
        self._entries_left -= 1
        with os.scandir(folder) as entries:
            for entry in entries:
                below = f"{path}/{entry.name}"
                if self._entries_left <= 0:
                    self._leave_out(path, TOO_MANY)
                    return
                # a name that is no text holds what `os.fsdecode` put there for its bytes
                if len(os.fsencode(below)) > _LONGEST_PATH or any("\ud800" <= sign <= "\udfff" for sign in entry.name):
                    self._leave_out(path, "holds a name that is too long, or no text")
                    continue
                self._read_entry(below, entry.name, folder, depth)

    def _read_file(self, path: str, name: str, folder: int) -> None:
        with hold(os.open(name, _OLD, dir_fd=folder)) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > self._bytes_left or self._entries_left <= 0:
                self._leave_out(path, TOO_LARGE if size > self._bytes_left else TOO_MANY)
                return
            data = bytearray()
            while len(data) < size and (chunk := os.read(descriptor, min(_CHUNK_BYTES, size - len(data)))):
                data += chunk
        self.files[path] = bytes(data)
        self._bytes_left -= len(data)
        self._entries_left -= 1

    def _leave_out(self, path: str, reason: str) -> None:
        self._entries_left -= 1
        self.left_out[path] = reason


def remove_path(path: str) -> None:
    """Remove a file or a folder by its path."""
    above, name = os.path.split(path)
    with hold(os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        remove(name, descriptor)


def remove(name: str, folder: int) -> None:
    """Remove whatever `name` is in an open folder, however deep it is and whatever its rights are; nothing, if not there.

    OSError says that it cannot be removed, or is written to all the time.
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


@dataclass(slots=True)
class _Level:
    """A folder that is being emptied."""

    name: str
    above: tuple[int, int]
    """Which folder it is in: device and inode."""
    folders: list[str] = field(default_factory=list)
    """Folders in it that are not empty."""


def _remove_folder(name: str, folder: int) -> None:
    levels = [_Level(name, _identify(folder))]
    current = _take_over(name, folder)
    try:
        while levels:
            level = levels[-1]
            if level.folders:
                inner = _Level(level.folders.pop(), _identify(current))
                entered = _take_over(inner.name, current)
                os.close(current)
                current = entered
                levels.append(inner)
            elif (folders := _remove_some(current)) is not None:
                level.folders = folders
            else:
                above = os.open("..", FOLDER, dir_fd=current)
                os.close(current)
                current = above
                if _identify(current) != level.above:
                    raise FileNotFoundError(errno.ENOENT, "it was moved meanwhile")
                os.rmdir(level.name, dir_fd=current)
                levels.pop()
    finally:
        os.close(current)


def _remove_some(folder: int) -> list[str] | None:
    """Remove some files of an open folder and return the folders among them; None if it is empty."""
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


def _take_over(name: str, folder: int) -> int:
    """Return the folder `name` of an open folder, open and with the rights to empty it."""
    try:
        descriptor = os.open(name, FOLDER, dir_fd=folder)
    except PermissionError:
        path_only = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with hold(os.open(name, path_only, dir_fd=folder)) as handle:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - fchmod refuses such a descriptor
            descriptor = os.open(".", FOLDER, dir_fd=handle)
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


def _identify(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino
