"""Files below a folder that somebody else has filled: listed, read and written.

The folder is entered name by name from an open one, so that no symbolic link is followed, whenever it is put there; only
regular files with one name are opened, as many of them as the limits allow. See `inside.files` for removing it.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from uuid import uuid4

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.file_names import WorkspaceLimits
from graftline.sandbox.inside.files import hold, names_in, open_folder

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a FIFO would block
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BY_CONTENT = frozenset(
    {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EACCES, errno.ENXIO}
)
"""Errors that say what somebody put into a workspace, not that the machine is broken."""


@contextmanager
def _blame(path: str) -> Iterator[None]:
    """Raise errors as what is to blame: the content of a workspace (DataError) or the machine (SandboxError)."""
    try:
        yield
    except OSError as error:
        if error.errno in _BY_CONTENT:
            raise DataError(
                f"workspace: {path!r}: cannot be used ({error.strerror}); expected folders and regular files only"
            ) from error
        raise SandboxError(f"workspace: {path!r}: {error.strerror}; see to the disk that holds it") from error


@contextmanager
def enter_folder(name: str, folder: int, path: str) -> Iterator[int]:
    """Open the folder `name` of an open folder; `path` is what messages call it."""
    with _blame(path):
        opened = open_folder(name, folder)
    with opened as descriptor:
        if os.fstat(descriptor).st_dev != os.fstat(folder).st_dev:
            raise DataError(f"workspace: {path!r}: is another file system; expected folders and regular files only")
        yield descriptor


@contextmanager
def _open_file(name: str, folder: int, path: str) -> Iterator[int]:
    with _blame(path):
        opened = hold(os.open(name, FILE, dir_fd=folder))
    with opened as descriptor:
        status = os.fstat(descriptor)
        _check_kind(status, path)
        if status.st_nlink > 1:
            raise DataError(f"workspace: {path!r}: is a hard link; expected folders and regular files only")
        yield descriptor


def _check_kind(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "device")
        raise DataError(f"workspace: {path!r}: is a {kind}; expected folders and regular files only")


def open_files(top: int, limits: WorkspaceLimits) -> Generator[tuple[str, int], None, None]:
    """Yield path and descriptor of every file below an open folder; a descriptor is open until the next step."""
    entries = 0

    def below(folder: int, above: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        nonlocal entries
        with _blame("/".join(above) or "."):
            names = sorted(names_in(folder, 2 * limits.files - entries + 1))
        entries += len(names)
        if entries > 2 * limits.files:
            raise DataError(f"workspace: holds more than {limits.files} files and as many folders")
        if names and len(above) >= limits.depth:
            raise DataError(f"workspace: {'/'.join(above)!r}: is nested deeper than {limits.depth} levels")
        for name in names:
            path = "/".join((*above, name))
            with _blame(path):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                with enter_folder(name, folder, path) as inner:
                    yield from below(inner, (*above, name))
            else:
                _check_kind(status, path)  # also before it is opened: to open a device may do something
                with _open_file(name, folder, path) as descriptor:
                    yield path, descriptor

    yield from below(top, ())


def read(descriptor: int, most: int, path: str) -> bytes:
    """Return at most so many bytes of an open file."""
    data = bytearray()
    with _blame(path):
        while len(data) < most and (chunk := os.read(descriptor, min(1 << 20, most - len(data)))):
            data += chunk
    return bytes(data)


def put(top: int, path: str, content: bytes, is_durable: bool) -> None:
    """Write a file below an open folder, and the folders it is in."""
    *folders, name = path.split("/")
    partial = f".partial-{uuid4().hex}"
    with ExitStack() as stack, _blame(path):
        folder = top
        for folder_name in folders:
            with suppress(FileExistsError):
                os.mkdir(folder_name, 0o700, dir_fd=folder)
            folder = stack.enter_context(enter_folder(folder_name, folder, path))
        try:
            with os.fdopen(os.open(partial, NEW_FILE, 0o600, dir_fd=folder), "wb") as stream:
                stream.write(content)
                stream.flush()
                if is_durable:
                    os.fsync(stream.fileno())
            os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(partial, dir_fd=folder)
            raise
        if is_durable:
            os.fsync(folder)
