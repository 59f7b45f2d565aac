"""A log of what was done with actions: one JSON line per entry, one file per task.

A line is appended by one write under a lock, so that processes never mix theirs, and no odd content stops it: texts
are redacted and cut, bytes and strange values become texts, and what a terminal or a reader of lines would take for
more than a text is escaped. When a file would become too large it is put aside as `.1`, the one before as `.2`, up to
a number that is kept.
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
from typing import Any, TypeVar

from graftline.core.errors import SandboxError
from graftline.sandbox.workspaces import safe_name

MAX_TEXT = 4000
"""Characters of one text."""
MAX_LINE_BYTES = 64 << 10
_MOST_ITEMS = (2000, 200, 20)
"""Of an entry, nested ones counted; a smaller number is taken where shorter texts are not enough."""
_LEAST_TEXT = 30
_MAX_KEY = 200
_MOST_LEVELS = 16
_LARGEST_NUMBER = 1 << 63

_ItemT = TypeVar("_ItemT")
_Plain = str | int | float | bool | None | list["_Plain"] | dict[str, "_Plain"]


class ActionLog:
    """Appends entries to files below `folder`; safe to use from many threads and processes.

    `redact` gets every text of an entry before it is cut. A file holds at most `max_bytes`, or one line that is
    longer; `kept` files that were put aside stay.
    """

    def __init__(self, folder: Path, redact: Callable[[str], str], max_bytes: int, kept: int) -> None:
        if max_bytes < 1 or kept < 0:
            raise ValueError(f"max_bytes is {max_bytes} and kept is {kept}; expected at least 1 and 0")
        self._folder = folder
        self._redact = redact
        self._max_bytes = max_bytes
        self._kept = kept

    def write(self, task_id: str, entry: Mapping[str, Any]) -> None:
        """Append `entry` to the log of its task.

        Raises:
            SandboxError: it cannot be written as a whole; then nothing of it is.
        """
        line = _line(entry, self._redact)
        name = f"{safe_name(task_id)}.jsonl"
        try:
            with _locked(self._folder) as folder:
                self._append(folder, name, line)
        except OSError as error:
            raise SandboxError(
                f"action log {self._folder / name}: cannot be written ({error.strerror}); see to the folder and its disk"
            ) from error

    def _append(self, folder: int, name: str, line: bytes) -> None:
        log = _opened(name, folder)
        try:
            size = os.fstat(log).st_size
            # a writer that was killed may have left half a line
            is_torn = size > 0 and os.pread(log, 1, size - 1) != b"\n"
            if size > 0 and size + is_torn + len(line) > self._max_bytes:
                os.close(log)
                log = -1
                self._put_aside(name, folder)
                log, size, is_torn = _opened(name, folder), 0, False
            data = b"\n" * is_torn + line
            if os.write(log, data) != len(data):
                os.ftruncate(log, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            if log >= 0:
                os.close(log)

    def _put_aside(self, name: str, folder: int) -> None:
        # more were kept once
        for number in count(self._kept + 1):
            try:
                os.unlink(f"{name}.{number}", dir_fd=folder)
            except FileNotFoundError:
                break
        if self._kept == 0:
            os.unlink(name, dir_fd=folder)
            return
        for number in range(self._kept - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.rename(f"{name}.{number}", f"{name}.{number + 1}", src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(name, f"{name}.1", src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Keep the folder `path` to this writer, open."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            # said aloud: a child that was forked meanwhile shares the lock, and closing would leave it there
            fcntl.flock(folder, fcntl.LOCK_UN)
    finally:
        os.close(folder)


def _opened(name: str, folder: int) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    log = os.open(name, flags, 0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(log).st_mode):
        os.close(log)
        raise OSError(errno.EINVAL, "it is no regular file")
    return log


def _line(entry: Mapping[str, Any], redact: Callable[[str], str]) -> bytes:
    """Return `entry` as a line of JSON that is as long as is allowed, and as complete."""
    line = b""
    for most_items in _MOST_ITEMS:
        plain = _Simplified(redact, most_items).of(entry, 0)
        longest = MAX_TEXT
        while longest >= _LEAST_TEXT:
            # what JSON leaves as it is, and a terminal does not
            line = json.dumps(_cut(plain, longest), allow_nan=False).replace("\x7f", "\\u007f").encode() + b"\n"
            if len(line) <= MAX_LINE_BYTES:
                return line
            longest //= 2
    raise AssertionError("so few and short texts fit")


class _Simplified:
    """Makes a value one of JSON, with so many items at most."""

    def __init__(self, redact: Callable[[str], str], most_items: int) -> None:
        self._redact = redact
        self._left = most_items

    def of(self, value: Any, depth: int) -> _Plain:
        try:
            return self._of(value, depth)
        except Exception:  # an object that cannot say what it holds must not stop the log
            return f"[{type(value).__name__}]"

    def _of(self, value: Any, depth: int) -> _Plain:
        match value:
            case None | bool():
                return value
            case int() if -_LARGEST_NUMBER <= value < _LARGEST_NUMBER:
                return int(value)
            case int():
                return self._text(hex(value))  # Python refuses to write very long ones in decimal
            case float():
                return float(value) if math.isfinite(value) else None
            case str():
                return self._text(str.__str__(value))
            case bytes() | bytearray() | memoryview():
                return self._text(bytes(value).decode("utf-8", "backslashreplace"))
            case Mapping() | list() | tuple() | set() | frozenset() if depth >= _MOST_LEVELS:
                return "[nested too deep]"
            case Mapping():
                return self._mapping(value, depth)
            case list() | tuple() | set() | frozenset():
                items = [self.of(item, depth + 1) for item in self._some(value)]
                return items if len(items) == len(value) else [*items, f"[{len(value) - len(items)} items left out]"]
            case _:
                return self._text(str(value))

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, _Plain]:
        found: dict[str, _Plain] = {}
        seen = 0
        for seen, (key, item) in enumerate(self._some(value.items()), 1):  # noqa: B007 - the last one is used
            found[self._text(key if isinstance(key, str) else str(key))] = self.of(item, depth + 1)
        if seen < len(value):
            found["[left out]"] = f"{len(value) - seen} items"
        return found

    def _some(self, items: Iterable[_ItemT]) -> Iterator[_ItemT]:
        for item in items:
            if self._left <= 0:
                return
            self._left -= 1
            yield item

    def _text(self, text: str) -> str:
        # half of a surrogate pair is no text to most readers of JSON
        return self._redact(text).encode("utf-8", "backslashreplace").decode()


def _cut(value: _Plain, longest: int) -> _Plain:
    match value:
        case str():
            return value if len(value) <= longest else f"{value[:longest]}... [{len(value) - longest} characters cut]"
        case list():
            return [_cut(item, longest) for item in value]
        case dict():
            return {str(_cut(key, min(longest, _MAX_KEY))): _cut(item, longest) for key, item in value.items()}
        case _:
            return value
