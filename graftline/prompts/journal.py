"""What an optimization was told so far: rollouts, proposals, and which rollouts of a batch it went on without.

An optimization that is begun again with its journal asks the same questions in the same order, and finds the answers here: it
stands where it was, nothing is paid twice, and no state of the random choices has to be kept.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from graftline.core.errors import ConfigError, RecordError


class Journal(Protocol):
    """Lines in their order; each is kept before the next is made."""

    def lines(self) -> list[dict[str, Any]]:
        """Return all of them.

        Raises:
            RecordError: one is damaged.
        """

    def append(self, line: Mapping[str, Any]) -> None:
        """Keep one more."""


class MemoryJournal:
    """In this process."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines]

    def append(self, line: Mapping[str, Any]) -> None:
        self._lines.append(json.dumps(line))


class FileJournal:
    """A file of JSON lines, one writer at a time; a last line that a kill or a full disk cut off is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other optimizations away from the file.

        Raises:
            ConfigError: one goes on there.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"{self.path}: another job goes on with this optimization; wait for its end, or take another folder"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        content, found = self.path.read_bytes(), []
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
            try:
                read = json.loads(line)
            except ValueError:
                read = None
            if not isinstance(read, dict):
                raise RecordError(f"{self.path}:{number}: is no line of a journal; remove the file to begin anew")
            found.append(read)
        return found

    def append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a+b") as stream:
            end = stream.seek(0, os.SEEK_END)
            if end and not _ends_a_line(stream, end):
                stream.seek(0)
                # in this mode it is written at the end, wherever that is then
                stream.truncate(stream.read().rfind(b"\n") + 1)
            stream.write(json.dumps(line, sort_keys=True).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def _ends_a_line(stream: BinaryIO, end: int) -> bool:
    stream.seek(end - 1)
    return stream.read(1) == b"\n"
