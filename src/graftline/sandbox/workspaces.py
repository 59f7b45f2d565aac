"""The folders in which actions are applied: one per application, below a folder that many processes may share.

What a workspace holds is foreign as soon as something has run in it. It is entered name by name from an open folder,
so that no symbolic link is followed, whenever it is put there; only regular files with one name are read, as many and
as much of them as the limits allow; nothing of it is parsed.

A workspace belongs to the `Workspaces` that prepared it, which holds a lock for as long as it lives. The workspaces
of one whose lock is free, because its process was killed, are removed by the next one on the same folder.
"""

import errno
import fcntl
import logging
import os
import re
import stat
import threading
import unicodedata
import weakref
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from pydantic import Field

from graftline.config import Config
from graftline.confined.removal import FOLDER, names_in, remove
from graftline.errors import DataError, SandboxError
from graftline.hashing import sha256_text
from graftline.paths import portable

logger = logging.getLogger(__name__)

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a FIFO would block
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_PLAIN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_DIGEST_END = re.compile(r"-[0-9a-f]{16}")
_WORKSPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*-([0-9a-f]{12})-[0-9a-f]{32}")
_OWNER_FILE = re.compile(r"\.owner-([0-9a-f]{12})\.lock")
_PROJECT_FILES = frozenset({"sgconfig.yml", "sgconfig.yaml"})

_LONGEST_PATH = 1024
_SHOWN = 80
_BY_CONTENT = frozenset(
    {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EACCES, errno.ENXIO}
)
"""Errors that say what somebody put into a workspace, not that the machine is broken."""


class WorkspaceLimits(Config):
    """What one workspace may hold."""

    files: int = Field(default=2000, ge=1, le=100_000)
    """Files, and as many folders."""
    file_kb: int = Field(default=1024, ge=1, le=1 << 20)
    total_mb: int = Field(default=64, ge=1, le=1 << 14)
    depth: int = Field(default=32, ge=1, le=100)
    """Names in a path: `src/a.py` has two."""


class Workspaces:
    """Makes, reads, changes and removes workspaces; safe to use from many threads.

    A forked child has none of its parent's workspaces and lets go of their lock.

    Raises:
        SandboxError: `folder` cannot be used, or holds what belongs to others.
    """

    def __init__(self, folder: Path, limits: WorkspaceLimits) -> None:
        self._limits = limits
        self._guard = threading.Lock()
        self._in_use: dict[str, threading.Lock] = {}
        self._is_open = True
        self._descriptors: list[int] = []
        _let_go_in_children(self)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path = folder.resolve()
            self._folder = os.open(self._path, FOLDER)
            self._descriptors.append(self._folder)
            _make_private(self._path, self._folder)
            self._owner, lock = _new_owner(self._folder)
            self._descriptors.append(lock)
            self._reap()
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise SandboxError(
                f"{folder}: cannot be used for workspaces ({error.strerror}); name a folder that you may write to"
            ) from error

    def prepare(self, task_id: str, files: Mapping[str, str | bytes]) -> Path:
        """Return the absolute path of a new workspace that holds `files`, texts as UTF-8.

        Raises:
            DataError: a path is refused, or there is too much.
            SandboxError: the files cannot be written.
        """
        _check_count(len(files), self._limits)
        contents = {name: _encoded(name, content) for name, content in files.items()}
        _check({name: len(content) for name, content in contents.items()}, self._limits)
        name = f"{safe_name(task_id)}-{self._owner}-{uuid4().hex}"
        lock = threading.Lock()
        with lock:
            with self._guard:
                if not self._is_open:
                    raise SandboxError(f"workspaces in {self._path}: are closed here; open them anew")
                try:
                    os.mkdir(name, 0o700, dir_fd=self._folder)
                except OSError as error:
                    raise SandboxError(
                        f"{self._path}: takes no new workspace ({error.strerror}); see to the folder and its disk"
                    ) from error
                self._in_use[name] = lock
            try:
                with _entered(name, self._folder, name) as top:
                    for path, content in contents.items():
                        _put(top, path, content, is_durable=False)
            except BaseException:
                self._remove(name)
                raise
        return self._path / name

    def read(self, workspace: Path) -> dict[str, bytes]:
        """Return every file that `workspace` holds now, by path, sorted.

        Raises:
            DataError: it is no workspace of this object; it holds a name that `prepare` refuses, something that is
                no regular file with one name, or more than the limits allow.
            SandboxError: it cannot be read.
        """
        found: dict[str, bytes] = {}
        total = 0
        with self._entered(workspace) as top, closing(_opened_files(top, self._limits)) as opened:
            for path, descriptor in opened:
                room = min(self._limits.file_kb << 10, (self._limits.total_mb << 20) - total)
                found[path] = _read(descriptor, room + 1, path)
                total += len(found[path])
                _check_size(path, len(found[path]), total, self._limits)
        _check({path: len(content) for path, content in found.items()}, self._limits)
        return dict(sorted(found.items()))

    def write(self, workspace: Path, changed: Mapping[str, bytes]) -> None:
        """Write the files of `changed` into `workspace`, each whole or not at all.

        Raises:
            DataError: as `read`, or the workspace would then hold what `read` refuses; nothing is written.
            SandboxError: it cannot be written.
        """
        _check_count(len(changed), self._limits)
        with self._entered(workspace) as top:
            with closing(_opened_files(top, self._limits)) as opened:
                sizes = {path: os.fstat(descriptor).st_size for path, descriptor in opened}
            _check({**sizes, **{name: len(content) for name, content in changed.items()}}, self._limits)
            for path, content in sorted(changed.items()):
                _put(top, path, content, is_durable=True)

    def cleanup(self, workspace: Path) -> None:
        """Remove `workspace` with all it holds; does nothing where that was done.

        Raises:
            DataError: it is no workspace of this object.
            SandboxError: it cannot be removed.
        """
        name = self._name(workspace)
        if lock := self._in_use.get(name):
            with lock:
                if name in self._in_use:
                    self._remove(name)

    def close(self) -> None:
        """Remove all workspaces. A second call does nothing.

        Raises:
            SandboxError: one of them cannot be removed; the next to open the folder tries again.
        """
        with self._guard:
            was_open, self._is_open = self._is_open, False
        faults = []
        for name in list(self._in_use) if was_open else []:
            try:
                self.cleanup(self._path / name)
            except SandboxError as fault:
                faults.append(fault)
        if was_open and not faults and len(self._descriptors) > 1:
            with suppress(FileNotFoundError):
                os.unlink(f".owner-{self._owner}.lock", dir_fd=self._folder)
        while self._descriptors:
            os.close(self._descriptors.pop())
        if faults:
            raise faults[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _name(self, workspace: Path) -> str:
        found = _WORKSPACE.fullmatch(workspace.name)
        if workspace.parent != self._path or found is None or found[1] != self._owner:
            raise DataError(f"{workspace}: is no workspace that was prepared here; expected what `prepare` returned")
        return workspace.name

    @contextmanager
    def _entered(self, workspace: Path) -> Iterator[int]:
        """Keep `workspace` to this thread, open."""
        name = self._name(workspace)
        gone = DataError(f"{workspace}: is no longer in use; prepare another one")
        lock = self._in_use.get(name)
        if lock is None:
            raise gone
        with lock:
            if name not in self._in_use:
                raise gone
            with _entered(name, self._folder, name) as top:
                yield top

    def _remove(self, name: str) -> None:
        _remove(name, self._folder)
        with self._guard:
            del self._in_use[name]

    def _reap(self) -> None:
        """Remove the workspaces of owners that were killed."""
        for owner in filter(None, map(_OWNER_FILE.fullmatch, names_in(self._folder))):
            with suppress(FileNotFoundError, BlockingIOError), _held(owner[0], self._folder):
                self._reap_of(owner[1])

    def _reap_of(self, owner: str) -> None:
        found = filter(None, map(_WORKSPACE.fullmatch, names_in(self._folder)))
        orphans = [workspace[0] for workspace in found if workspace[1] == owner]
        try:
            for name in orphans:
                _remove(name, self._folder)
        except SandboxError as error:
            logger.warning("%s: workspaces of a killed process stay behind: %s", self._path, error)
            return
        # last, so that what a kill leaves behind here is found again
        with suppress(FileNotFoundError):
            os.unlink(f".owner-{owner}.lock", dir_fd=self._folder)
        logger.info("%s: removed %d workspaces of a killed process", self._path, len(orphans))

    def _let_go(self) -> None:
        """Be closed without having removed anything: this is a forked child, and all of it is its parent's."""
        self._guard, self._in_use, self._is_open = threading.Lock(), {}, False
        while self._descriptors:
            os.close(self._descriptors.pop())


def safe_name(task_id: str) -> str:
    """Return `task_id` as part of a file name: itself where it is harmless, else cleaned and with its digest.

    Different ids have different names, also where upper and lower case are the same.
    """
    if _PLAIN_ID.fullmatch(task_id) and not _DIGEST_END.fullmatch(task_id[-17:]):
        return task_id
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "_", task_id[:80]).strip("._-")[:40]
    return f"{cleaned or 'task'}-{sha256_text(task_id)[:16]}"


def _let_go_in_children(workspaces: Workspaces) -> None:
    # a lock of `flock` is shared by fork: a child that outlives its killed parent would keep its workspaces alive
    reference = weakref.ref(workspaces)

    def let_go() -> None:
        if (found := reference()) is not None:
            found._let_go()

    os.register_at_fork(after_in_child=let_go)


def _make_private(path: Path, folder: int) -> None:
    status = os.fstat(folder)
    if status.st_uid != os.geteuid():
        raise SandboxError(f"{path}: belongs to another user; name a folder of your own for workspaces")
    if stat.S_IMODE(status.st_mode) & 0o777 == 0o700:
        return
    # somebody's home, or /tmp, is not to be closed to others by a wrong setting
    if strange := [
        name for name in names_in(folder) if not (_OWNER_FILE.fullmatch(name) or _WORKSPACE.fullmatch(name))
    ]:
        raise SandboxError(
            f"{path}: is open to others and holds {strange[0]!r}; name an empty folder, or one of mode 700, for workspaces"
        )
    os.fchmod(folder, 0o700)


def _new_owner(folder: int) -> tuple[str, int]:
    """Return a new owner with its locked file."""
    while True:
        owner = uuid4().hex[:12]
        lock = os.open(f".owner-{owner}.lock", _NEW_FILE, 0o600, dir_fd=folder)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return owner, lock
        os.close(lock)  # another process saw it before it was locked, and removed it as that of a dead one


@contextmanager
def _held(owner_file: str, folder: int) -> Iterator[None]:
    """Hold the lock of an owner; BlockingIOError while it lives."""
    lock = os.open(owner_file, _FILE, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def _encoded(name: str, content: str | bytes) -> bytes:
    try:
        return content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise DataError(
            f"file {_short(name)}: character {error.start} is half of a surrogate pair; expected valid Unicode, or bytes"
        ) from None


def _check_count(count: int, limits: WorkspaceLimits) -> None:
    if count > limits.files:
        raise DataError(f"workspace of {count} files; at most {limits.files} are accepted")


def _check(sizes: Mapping[str, int], limits: WorkspaceLimits) -> None:
    """Refuse files that may not be in a workspace together; `sizes` counts bytes by path.

    Raises:
        DataError: they may not.
    """
    _check_count(len(sizes), limits)
    known: dict[str, tuple[str, bool]] = {}
    total = 0
    for name, size in sizes.items():
        parts = _checked_parts(name, limits)
        total += size
        _check_size(name, size, total, limits)
        for depth in range(1, len(parts) + 1):
            place, is_file = "/".join(parts[:depth]), depth == len(parts)
            other, is_other_file = known.setdefault(_folded(place), (place, is_file))
            if other != place:
                raise DataError(f"files {other!r} and {place!r}: are the same to some systems; rename one of them")
            if is_file != is_other_file:
                raise DataError(f"file {place!r}: is a folder too; rename one of them")
    if len(known) - len(sizes) > limits.files:
        raise DataError(f"workspace of {len(known) - len(sizes)} folders; at most {limits.files} are accepted")


def _checked_parts(name: str, limits: WorkspaceLimits) -> tuple[str, ...]:
    if len(name) > _LONGEST_PATH:
        raise DataError(f"file {_short(name)}: a path of {len(name)} characters; at most {_LONGEST_PATH} are accepted")
    path = portable(name)
    if path.as_posix() != name:
        raise DataError(f"file {name!r}: is not the shortest way to write its path; write {path.as_posix()!r}")
    if len(path.parts) > limits.depth:
        raise DataError(f"file {name!r}: is nested deeper than {limits.depth} levels")
    if not _PROJECT_FILES.isdisjoint(map(_folded, path.parts)):
        raise DataError(
            f"file {name!r}: is a project file of ast-grep, which can name native code to load; leave it out"
        )
    return path.parts


def _check_size(name: str, size: int, total: int, limits: WorkspaceLimits) -> None:
    if size > limits.file_kb << 10:
        raise DataError(f"file {_short(name)}: is larger than {limits.file_kb} KB; leave it out")
    if total > limits.total_mb << 20:
        raise DataError(f"file {_short(name)}: with it, the workspace is larger than {limits.total_mb} MB")


def _folded(path: str) -> str:
    """Return what is the same for paths that a system without case, or one that composes characters, confuses."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


@contextmanager
def _blamed(path: str) -> Iterator[None]:
    """Say of errors below whether the content of a workspace or the machine is to blame, and at which path."""
    try:
        yield
    except OSError as error:
        if error.errno in _BY_CONTENT:
            raise DataError(
                f"workspace: {path!r}: cannot be used ({error.strerror}); expected folders and regular files only"
            ) from error
        raise SandboxError(f"workspace: {path!r}: {error.strerror}; see to the disk that holds it") from error


@contextmanager
def _entered(name: str, folder: int, path: str) -> Iterator[int]:
    """Open the folder `name` of an open folder; `path` is what messages call it."""
    with _blamed(path):
        descriptor = os.open(name, FOLDER, dir_fd=folder)
    try:
        if os.fstat(descriptor).st_dev != os.fstat(folder).st_dev:
            raise DataError(f"workspace: {path!r}: is another file system; expected folders and regular files only")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened_file(name: str, folder: int, path: str) -> Iterator[int]:
    with _blamed(path):
        descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        _check_kind(status, path)
        if status.st_nlink > 1:
            raise DataError(f"workspace: {path!r}: is a hard link; expected folders and regular files only")
        yield descriptor
    finally:
        os.close(descriptor)


def _check_kind(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "device")
        raise DataError(f"workspace: {path!r}: is a {kind}; expected folders and regular files only")


def _opened_files(top: int, limits: WorkspaceLimits) -> Generator[tuple[str, int], None, None]:
    """Yield path and descriptor of every file below an open folder; the descriptor is closed when the next is asked for."""
    seen = 0

    def below(folder: int, above: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        nonlocal seen
        with _blamed("/".join(above) or "."):
            names = sorted(names_in(folder, 2 * limits.files - seen + 1))
        seen += len(names)
        if seen > 2 * limits.files:
            raise DataError(f"workspace: holds more than {limits.files} files and as many folders")
        if names and len(above) >= limits.depth:
            raise DataError(f"workspace: {'/'.join(above)!r}: is nested deeper than {limits.depth} levels")
        for name in names:
            path = "/".join((*above, name))
            with _blamed(path):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                with _entered(name, folder, path) as inner:
                    yield from below(inner, (*above, name))
            else:
                _check_kind(status, path)  # also before it is opened: to open a device may do something
                with _opened_file(name, folder, path) as descriptor:
                    yield path, descriptor

    yield from below(top, ())


def _read(descriptor: int, most: int, path: str) -> bytes:
    """Return at most so many bytes of an open file."""
    data = bytearray()
    with _blamed(path):
        while len(data) < most and (chunk := os.read(descriptor, min(1 << 20, most - len(data)))):
            data += chunk
    return bytes(data)


def _put(top: int, path: str, content: bytes, is_durable: bool) -> None:
    """Write a file below an open folder, and the folders it is in."""
    *folders, name = path.split("/")
    partial = f".partial-{uuid4().hex}"
    with ExitStack() as opened, _blamed(path):
        folder = top
        for folder_name in folders:
            with suppress(FileExistsError):
                os.mkdir(folder_name, 0o700, dir_fd=folder)
            folder = opened.enter_context(_entered(folder_name, folder, path))
        try:
            with os.fdopen(os.open(partial, _NEW_FILE, 0o600, dir_fd=folder), "wb") as stream:
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


def _remove(name: str, folder: int) -> None:
    """Remove whatever `name` is in an open folder.

    Raises:
        SandboxError: it cannot be removed, or is written to all the time.
    """
    try:
        remove(name, folder)
    except OSError as error:
        raise SandboxError(
            f"workspace {name}: cannot be removed ({error.strerror}); end what uses it, and remove it"
        ) from error


def _short(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}..."
