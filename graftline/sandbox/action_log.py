"""A log of what was done with actions: one JSON line per entry, one file per task.

A line is appended by one write under a lock, so that processes never mix theirs, and no odd content stops it: texts
are redacted and cut, bytes and strange values become texts, and what a terminal or a reader of lines would take for
more than a text is escaped. When a file would become too large it is put aside as `.1`, the one before as `.2`, up to
the number that is configured.
"""

import errno
import fcntl
import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from graftline.core.errors import SandboxError
from graftline.sandbox.inside.files import hold
from graftline.sandbox.workspaces import safe_name

MAX_TEXT = 4000
"""Characters of one text."""
MAX_LINE_BYTES = 64 << 10
_MOST_ITEMS = (2000, 200, 20)
"""Of an entry, nested ones counted; a smaller number applies where shorter texts are not enough."""
_LEAST_TEXT = 30
_MAX_KEY = 200
_MOST_LEVELS = 16
_LARGEST_NUMBER = 1 << 63


class ActionLog:
    """Appends entries to files below `folder`; safe to use from many threads and processes.

    `redact` gets every text of an entry before it is cut. A file holds at most `max_bytes`, or one line that is
    longer; `max_files` of those that were put aside stay.
    """

    def __init__(self, folder: Path, redact: Callable[[str], str], max_bytes: int, max_files: int) -> None:
        if max_bytes < 1 or max_files < 0:
            raise ValueError(f"max_bytes is {max_bytes} and max_files is {max_files}; expected at least 1 and 0")
        self._folder, self._redact = folder, redact
        self._max_bytes, self._max_files = max_bytes, max_files

    def write(self, task_id: str, entry: Mapping[str, Any]) -> None:
        """Append `entry` to the log of its task.

        SandboxError if it cannot be written as a whole; then nothing of it is.
        """
        line = _line(entry, self._redact)
        name = f"{safe_name(task_id)}.jsonl"
        try:
            with _lock(self._folder) as folder:
                self._append(folder, name, line)
        except OSError as error:
            raise SandboxError(
                f"action log {self._folder / name}: cannot be written ({error.strerror}); see to the folder and its disk"
            ) from error

    def _append(self, folder: int, name: str, line: bytes) -> None:
        log = _open_log(name, folder)
        try:
            size = os.fstat(log).st_size
            # a writer that was killed may have left half a line
            is_torn = size > 0 and os.pread(log, 1, size - 1) != b"\n"
            if size > 0 and size + is_torn + len(line) > self._max_bytes:
                os.close(log)
                log = -1
                self._put_aside(name, folder)
                log, size, is_torn = _open_log(name, folder), 0, False
            data = b"\n" * is_torn + line
            if os.write(log, data) != len(data):
                os.ftruncate(log, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            if log >= 0:
                os.close(log)

    def _put_aside(self, name: str, folder: int) -> None:
        # there are more if more were configured before
        with suppress(FileNotFoundError):
            for number in count(self._max_files + 1):
                os.unlink(f"{name}.{number}", dir_fd=folder)
        if self._max_files == 0:
            os.unlink(name, dir_fd=folder)
            return
        for number in range(self._max_files - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.rename(f"{name}.{number}", f"{name}.{number + 1}", src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(name, f"{name}.1", src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def _lock(path: Path) -> Iterator[int]:
    """Lock the folder `path` for this writer, and open it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with hold(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            # explicitly: a child that was forked meanwhile shares the lock, and closing would leave it there
            fcntl.flock(folder, fcntl.LOCK_UN)


def _open_log(name: str, folder: int) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    log = os.open(name, flags, 0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(log).st_mode):
        os.close(log)
        raise OSError(errno.EINVAL, "it is no regular file")
    return log


def _line(entry: Mapping[str, Any], redact: Callable[[str], str]) -> bytes:
    """Return `entry` as a line of JSON that is as long as is allowed, and as complete."""
    for most_items in _MOST_ITEMS:
        plain = _Simplifier(redact, most_items).simplify(entry)
        longest = MAX_TEXT
        while longest >= _LEAST_TEXT:
            # what JSON leaves as it is, and a terminal does not
            line = json.dumps(_cut(plain, longest), allow_nan=False).replace("\x7f", "\\u007f").encode() + b"\n"
            if len(line) <= MAX_LINE_BYTES:
                return line
            longest //= 2
    raise AssertionError("so few and short texts fit")


class _Simplifier:
    """Makes JSON of a value, with so many items at most."""

    def __init__(self, redact: Callable[[str], str], most_items: int) -> None:
        self._redact = redact
        self._items_left = most_items

    def simplify(self, value: Any, depth: int = 0) -> Any:
        try:
            match value:
                case None | bool():
                    return value
                case int():
                    # Python refuses to write very long ones in decimal
                    return int(value) if -_LARGEST_NUMBER <= value < _LARGEST_NUMBER else self._text(hex(value))
                case float():
                    return float(value) if math.isfinite(value) else None
                case str():
                    return self._text(str.__str__(value))
                case bytes() | bytearray() | memoryview():
                    return self._text(bytes(value).decode("utf-8", "backslashreplace"))
                case Mapping() | list() | tuple() | set() | frozenset() if depth >= _MOST_LEVELS:
                    return "[nested too deep]"
                case Mapping():
                    simple: dict[str, Any] = {}
                    pairs = 0
                    for key, item in self._limit(value.items()):
                        pairs += 1
                        simple[self._text(key if isinstance(key, str) else str(key))] = self.simplify(item, depth + 1)
                    left_out = {"[left out]": f"{len(value) - pairs} items"} if pairs < len(value) else {}
                    return simple | left_out
                case list() | tuple() | set() | frozenset():
                    items = [self.simplify(item, depth + 1) for item in self._limit(value)]
                    missing = len(value) - len(items)
                    return [*items, f"[{missing} items left out]"] if missing else items
                case _:
                    return self._text(str(value))
        except Exception:  # an object that cannot say what it holds must not stop the log
            return f"[{type(value).__name__}]"

    def _limit(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if self._items_left <= 0:
                return
            self._items_left -= 1
            yield item

    def _text(self, text: str) -> str:
        # half of a surrogate pair is no text to most readers of JSON
        return self._redact(text).encode("utf-8", "backslashreplace").decode()


def _cut(value: Any, longest: int) -> Any:
    match value:
        case str():
            return value if len(value) <= longest else f"{value[:longest]}... [{len(value) - longest} characters cut]"
        case list():
            return [_cut(item, longest) for item in value]
        case dict():
            return {_cut(key, min(longest, _MAX_KEY)): _cut(item, longest) for key, item in value.items()}
    return value
