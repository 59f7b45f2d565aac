"""The folder of an optimization: the journal of its rollouts and proposals, and the file that asks it to stop.

An optimization that is begun again with its journal asks the same questions in the same order, and finds the answers here: it
stands where it was, nothing is paid twice, and no state of the random choices has to be kept.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from graftline.core.build import lock_folder
from graftline.core.errors import ConfigError, RecordError
from graftline.core.jsonl import cut_to_whole_lines

STOP = ".stop"
_POLL_S = 0.3


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
    """In this process, for an optimization without a folder."""

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

    def lock(self) -> AbstractContextManager[None]:
        """Keep other optimizations away from its folder.

        Raises:
            ConfigError: one goes on there.
        """
        message = "another job goes on with this optimization; wait for its end, or take another folder"
        return lock_folder(self.path.parent, ConfigError(f"{self.path}: {message}"))

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        content, lines = self.path.read_bytes(), []
        for number, text in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict):
                raise RecordError(f"{self.path}:{number}: is no line of a journal; remove the file to begin anew")
            lines.append(line)
        return lines

    def append(self, line: Mapping[str, Any]) -> None:
        cut_to_whole_lines(self.path)
        with self.path.open("ab") as stream:
            stream.write(json.dumps(line, sort_keys=True).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


@contextmanager
def watch_stop_file(folder: Path, stop: threading.Event) -> Iterator[threading.Event]:
    """Give `stop`, and set it when another process calls `request_stop`; a file of an earlier time is removed first."""
    path, is_over = folder / STOP, threading.Event()
    path.unlink(missing_ok=True)

    def watch() -> None:
        while not is_over.wait(_POLL_S):
            if path.exists():
                stop.set()
                return

    watcher = threading.Thread(target=watch, name="stop-file", daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        is_over.set()
        watcher.join()
        path.unlink(missing_ok=True)


def request_stop(folder: Path) -> None:
    """Have the optimization in `folder`, of whatever process, end soon."""
    (folder / STOP).touch()
