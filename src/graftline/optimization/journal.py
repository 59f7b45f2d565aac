"""What an optimisation was told so far: rollouts, proposals, and which rollouts of a batch it went on without.

An optimisation that is begun again with its journal asks the same questions in the same order, and finds the answers here: it
stands where it was, nothing is paid twice, and no state of the random choices has to be kept.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from graftline.errors import RecordError


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
    """A file of JSON lines, one writer at a time; a last line that was cut off by a kill is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._cut()

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        found = []
        for number, line in enumerate(self.path.read_bytes().splitlines(), 1):
            try:
                read = json.loads(line)
            except ValueError:
                read = None
            if not isinstance(read, dict):
                raise RecordError(f"{self.path}:{number}: is no line of a journal; remove the file to begin anew")
            found.append(read)
        return found

    def append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("ab") as stream:
            stream.write(json.dumps(line, sort_keys=True).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _cut(self) -> None:
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with self.path.open("r+b") as stream:
                stream.truncate(whole)
