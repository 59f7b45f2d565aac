"""The files of a case: a copy of its snapshot, those that are laid over it, and what is read back once it has ended.

Folders that foreign code has filled are walked one name at a time by descriptors that follow no link, so that nothing but
regular files of the case itself is ever read. Imports the standard library only.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from graftline.sandbox.inside.frames import framed, size_of, write
from graftline.sandbox.inside.removal import FOLDER, remove

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20
_LONGEST_PATH, _DEEPEST = 1024, 64
_IS_LINK = "is a symbolic link, and links are not followed"
TOO_LARGE, TOO_MANY = "is more than may come back", "is or holds more files than may come back"
"""Why something is left out that is as it should be."""
_KINDS = {stat.S_IFLNK: _IS_LINK, stat.S_IFDIR: "is a folder", stat.S_IFIFO: "is a pipe", stat.S_IFSOCK: "is a socket"}


def copy(source: int, target: int) -> None:
    """Copy what is in one open folder to another, over what is there; links are kept as they are."""
    with os.scandir(source) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = entry.name
        if entry.is_symlink():
            remove(name, target)
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif entry.is_dir(follow_symlinks=False):
            with _opened(name, source) as inner, _made(name, target) as copied:
                copy(inner, copied)
        elif entry.is_file(follow_symlinks=False):
            _copy_file(name, source, target)


def copy_parts(source: int, parts: Sequence[str], target: str) -> None:
    """Copy the content of folders below an open one, the later over the earlier; all of it where none is named."""
    with _opened(target) as top:
        for part in parts or (".",):
            # opened anew: other processes read the same folder, and would share the place that they are at
            with _walked(part.split("/"), source) as found:
                copy(found, top)


def put(path: str, top: int, content: bytes, mode: int) -> None:
    """Write a file below an open folder, in place of whatever is there; no link on the way is followed."""
    above, _, name = path.rpartition("/")
    with _walked(above.split("/") if above else [], top, is_made=True) as folder:
        try:
            descriptor = os.open(name, _NEW, mode, dir_fd=folder)
        except FileExistsError:
            remove(name, folder)
            descriptor = os.open(name, _NEW, mode, dir_fd=folder)
        try:
            write(descriptor, content)
        finally:
            os.close(descriptor)


def give_back(folders: Mapping[str, str], returned: Mapping[str, Any], report: int) -> None:
    """Write what is to come back, as `unpacked` reads it.

    Args:
        folders: Path of every folder of the case, by its name in `returned`.
        returned: As `sandbox.jail.Returned`.
        report: A descriptor.
    """
    found = _Found(returned["size_bytes"], returned["files"])
    for path in returned["paths"]:
        top, _, below = path.partition("/")
        with _opened(folders[top]) as folder:
            found.take(path, folder, [part for part in below.split("/") if part])
    head = {"files": [[path, len(data)] for path, data in found.files.items()], "left_out": found.left_out}
    write(report, framed(json.dumps(head).encode()))
    for data in found.files.values():
        write(report, data)


def unpacked(report: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the files that came back, and why others did not.

    Raises:
        ValueError: it is not whole.
    """
    start = 4 + size_of(report) if len(report) >= 4 else 4
    head = json.loads(report[4:start])
    files = {}
    for path, size in head["files"]:
        files[path] = report[start : start + size]
        start += size
    if start != len(report):
        raise ValueError(f"{len(report)} bytes, and {start} were announced")
    return files, head["left_out"]


class _Found:
    """What was read so far."""

    def __init__(self, size_bytes: int, files: int) -> None:
        self.files: dict[str, bytes] = {}
        self.left_out: dict[str, str] = {}
        self._bytes_left, self._entries_left = size_bytes, files

    def take(self, path: str, top: int, parts: Sequence[str]) -> None:
        """Read what is at `parts` below an open folder; nothing, where nothing is there."""
        try:
            with _walked(parts[:-1], top) as folder:
                if parts:
                    self._take(path, parts[-1], folder, 0)
                else:
                    self._take_all(path, folder, 0)
        except FileNotFoundError:
            return
        except OSError as error:
            self._leave_out(path, _IS_LINK if error.errno in (errno.ELOOP, errno.ENOTDIR) else _said(error))

    def _take(self, path: str, name: str, folder: int, depth: int) -> None:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        try:
            if stat.S_ISDIR(status.st_mode):
                with _opened(name, folder) as inner:
                    self._take_all(path, inner, depth + 1)
            elif stat.S_ISREG(status.st_mode):
                self._read(path, name, folder)
            else:
                self._leave_out(path, _KINDS.get(stat.S_IFMT(status.st_mode), "is a device"))
        except OSError as error:
            self._leave_out(path, _said(error))

    def _take_all(self, path: str, folder: int, depth: int) -> None:
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
                if len(os.fsencode(below)) > _LONGEST_PATH or not _is_text(entry.name):
                    self._leave_out(path, "holds a name that is too long, or no text")
                    continue
                self._take(below, entry.name, folder, depth)

    def _read(self, path: str, name: str, folder: int) -> None:
        descriptor = os.open(name, _OLD, dir_fd=folder)
        try:
            size = os.fstat(descriptor).st_size
            if size > self._bytes_left or self._entries_left <= 0:
                self._leave_out(path, TOO_LARGE if size > self._bytes_left else TOO_MANY)
                return
            data = bytearray()
            while len(data) < size and (chunk := os.read(descriptor, min(_CHUNK_BYTES, size - len(data)))):
                data += chunk
        finally:
            os.close(descriptor)
        self.files[path] = bytes(data)
        self._bytes_left -= len(data)
        self._entries_left -= 1

    def _leave_out(self, path: str, reason: str) -> None:
        self._entries_left -= 1
        self.left_out[path] = reason


def _copy_file(name: str, source: int, target: int) -> None:
    reader = os.open(name, _OLD, dir_fd=source)
    try:
        mode = stat.S_IMODE(os.fstat(reader).st_mode) & 0o755 | 0o600
        try:
            writer = os.open(name, _NEW, mode, dir_fd=target)
        except FileExistsError:
            remove(name, target)
            writer = os.open(name, _NEW, mode, dir_fd=target)
        try:
            while os.sendfile(writer, reader, None, _CHUNK_BYTES):
                pass
        finally:
            os.close(writer)
    finally:
        os.close(reader)


@contextmanager
def _opened(name: str, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _made(name: str, folder: int) -> Iterator[int]:
    """Open a folder in another, which takes the place of what is no folder."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=folder)
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        remove(name, folder)
        os.mkdir(name, 0o755, dir_fd=folder)
    with _opened(name, folder) as descriptor:
        yield descriptor


@contextmanager
def _walked(parts: Sequence[str], top: int, is_made: bool = False) -> Iterator[int]:
    """Open the folder that is reached by `parts`."""
    if not parts:
        yield top
        return
    enter = _made(parts[0], top) if is_made else _opened(parts[0], top)
    with enter as folder, _walked(parts[1:], folder, is_made) as found:
        yield found


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _said(error: OSError) -> str:
    return f"cannot be read ({error.strerror})"
