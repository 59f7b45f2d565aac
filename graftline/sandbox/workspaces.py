"""The folders in which actions are applied: one per application, below a folder that many processes may share.

What a workspace holds is foreign as soon as something has run in it (`foreign_files`); nothing of it is parsed.

A workspace belongs to the `Workspaces` that prepared it, which holds a lock for as long as it lives. The workspaces
of one whose lock is free, because its process was killed, are removed by the next one on the same folder.
"""

import fcntl
import logging
import os
import re
import stat
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Self
from uuid import uuid4

from graftline.core.errors import DataError, SandboxError
from graftline.core.hashing import sha256_text
from graftline.sandbox.file_names import WorkspaceLimits, check_count, check_files, check_size, short
from graftline.sandbox.foreign_files import FILE, NEW_FILE, enter_folder, open_files, put, read
from graftline.sandbox.inside.files import FOLDER, hold, names_in, remove

logger = logging.getLogger(__name__)

_PLAIN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_DIGEST_END = re.compile(r"-[0-9a-f]{16}")
_WORKSPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*-([0-9a-f]{12})-[0-9a-f]{32}")
_OWNER_FILE = re.compile(r"\.owner-([0-9a-f]{12})\.lock")


class Workspaces:
    """Makes, reads, changes and removes workspaces; safe to use from many threads.

    A forked child has none of its parent's workspaces and lets go of their lock. SandboxError if `folder` cannot be
    used, or holds what belongs to others.
    """

    def __init__(self, folder: Path, limits: WorkspaceLimits) -> None:
        self._limits = limits
        self._guard = threading.Lock()
        self._in_use: dict[str, threading.Lock] = {}
        self._is_open = True
        self._descriptors: list[int] = []
        _release_in_children(self)
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

        DataError if a path is refused, or there is too much. SandboxError if the files cannot be written.
        """
        check_count(len(files), self._limits)
        contents = {name: _encode(name, content) for name, content in files.items()}
        check_files({name: len(content) for name, content in contents.items()}, self._limits)
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
                with enter_folder(name, self._folder, name) as top:
                    for path, content in contents.items():
                        put(top, path, content, is_durable=False)
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
        files: dict[str, bytes] = {}
        total = 0
        with self._enter(workspace) as top, closing(open_files(top, self._limits)) as opened:
            for path, descriptor in opened:
                room = min(self._limits.file_kb << 10, (self._limits.total_mb << 20) - total)
                files[path] = read(descriptor, room + 1, path)
                total += len(files[path])
                check_size(path, len(files[path]), total, self._limits)
        check_files({path: len(content) for path, content in files.items()}, self._limits)
        return dict(sorted(files.items()))

    def write(self, workspace: Path, changed: Mapping[str, bytes]) -> None:
        """Write the files of `changed` into `workspace`, each whole or not at all.

        Raises:
            DataError: as `read`, or the workspace would then hold what `read` refuses; nothing is written.
            SandboxError: it cannot be written.
        """
        check_count(len(changed), self._limits)
        with self._enter(workspace) as top:
            with closing(open_files(top, self._limits)) as opened:
                sizes = {path: os.fstat(descriptor).st_size for path, descriptor in opened}
            check_files({**sizes, **{name: len(content) for name, content in changed.items()}}, self._limits)
            for path, content in sorted(changed.items()):
                put(top, path, content, is_durable=True)

    def cleanup(self, workspace: Path) -> None:
        """Remove `workspace` with all it holds. A second call does nothing.

        DataError if it is no workspace of this object. SandboxError if it cannot be removed.
        """
        name = self._name(workspace)
        if lock := self._in_use.get(name):
            with lock:
                if name in self._in_use:
                    self._remove(name)

    def close(self) -> None:
        """Remove all workspaces. A second call does nothing.

        SandboxError if one of them cannot be removed; the next to open the folder tries again.
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def _name(self, workspace: Path) -> str:
        match = _WORKSPACE.fullmatch(workspace.name)
        if workspace.parent != self._path or match is None or match[1] != self._owner:
            raise DataError(f"{workspace}: is no workspace that was prepared here; expected what `prepare` returned")
        return workspace.name

    @contextmanager
    def _enter(self, workspace: Path) -> Iterator[int]:
        """Keep `workspace` to this thread, open."""
        name = self._name(workspace)
        gone = DataError(f"{workspace}: is no longer in use; prepare another one")
        lock = self._in_use.get(name)
        if lock is None:
            raise gone
        with lock:
            if name not in self._in_use:
                raise gone
            with enter_folder(name, self._folder, name) as top:
                yield top

    def _remove(self, name: str) -> None:
        _remove(name, self._folder)
        with self._guard:
            del self._in_use[name]

    def _reap(self) -> None:
        """Remove the workspaces of owners that were killed."""
        for owner in filter(None, map(_OWNER_FILE.fullmatch, names_in(self._folder))):
            with suppress(FileNotFoundError, BlockingIOError), _lock_of_dead(owner[0], self._folder):
                self._reap_of(owner[1])

    def _reap_of(self, owner: str) -> None:
        matches = filter(None, map(_WORKSPACE.fullmatch, names_in(self._folder)))
        orphans = [workspace[0] for workspace in matches if workspace[1] == owner]
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

    def _release(self) -> None:
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


def _release_in_children(workspaces: Workspaces) -> None:
    # a lock of `flock` is shared by fork: a child that outlives its killed parent would keep its workspaces alive
    reference = weakref.ref(workspaces)

    def release() -> None:
        if (alive := reference()) is not None:
            alive._release()

    os.register_at_fork(after_in_child=release)


def _make_private(path: Path, folder: int) -> None:
    status = os.fstat(folder)
    if status.st_uid != os.geteuid():
        raise SandboxError(f"{path}: belongs to another user; name a folder of your own for workspaces")
    if stat.S_IMODE(status.st_mode) & 0o777 == 0o700:
        return
    # somebody's home, or /tmp, is not to be closed to others by a wrong setting
    names = (name for name in names_in(folder) if not (_OWNER_FILE.fullmatch(name) or _WORKSPACE.fullmatch(name)))
    if strange := next(names, None):
        raise SandboxError(
            f"{path}: is open to others and holds {strange!r}; name an empty folder, or one of mode 700, for workspaces"
        )
    os.fchmod(folder, 0o700)


def _new_owner(folder: int) -> tuple[str, int]:
    """Return a new owner with its locked file."""
    while True:
        owner = uuid4().hex[:12]
        lock = os.open(f".owner-{owner}.lock", NEW_FILE, 0o600, dir_fd=folder)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return owner, lock
        os.close(lock)  # another process saw it before it was locked, and removed it as that of a dead one


@contextmanager
def _lock_of_dead(owner_file: str, folder: int) -> Iterator[None]:
    """Hold the lock of an owner; BlockingIOError while it lives."""
    with hold(os.open(owner_file, FILE, dir_fd=folder)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _encode(name: str, content: str | bytes) -> bytes:
    try:
        return content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise DataError(
            f"file {short(name)}: character {error.start} is half of a surrogate pair; expected valid Unicode, or bytes"
        ) from None


def _remove(name: str, folder: int) -> None:
    try:
        remove(name, folder)
    except OSError as error:
        raise SandboxError(
            f"workspace {name}: cannot be removed ({error.strerror}); end what uses it, and remove it"
        ) from error
