"""Files with one JSON object per line: written whole, or grown line by line so that a kill loses nothing that was made."""

import os
import time
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import BaseModel, ValidationError

from graftline.core.errors import RecordError

ModelT = TypeVar("ModelT", bound=BaseModel)

_BATCH, _BATCH_S = 64, 2.0
"""Lines, and seconds, after which a journal is synced to disk."""


def read_lines(path: Path, model: type[ModelT]) -> Iterator[ModelT]:
    """Yield the rows of a JSONL file of ours."""
    with path.open("rb") as stream:
        for line in stream:
            yield model.model_validate_json(line)


def write_lines(path: Path, models: Iterable[BaseModel]) -> None:
    """Write one line of JSON per model."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        for model in models:
            stream.write(model.model_dump_json() + "\n")


def whole_length(descriptor: int) -> int:
    """Return the bytes of an open file up to the end of its last whole line."""
    size = os.fstat(descriptor).st_size
    while size:
        start = max(0, size - (1 << 16))
        end = os.pread(descriptor, size - start, start).rfind(b"\n")
        if end >= 0:
            return start + end + 1
        size = start
    return 0


def cut_to_whole_lines(path: Path) -> None:
    """Cut off a last line that a kill left half written; no-op where there is no file."""
    if path.exists():
        with path.open("r+b") as stream:
            whole = whole_length(stream.fileno())
            if whole < os.fstat(stream.fileno()).st_size:
                stream.truncate(whole)


class Journal(Generic[ModelT]):
    """Rows on disk while more are made: whoever goes on after a kill finds them in `rows`.

    The first line is `header`, where there is one, which says what the rows are of; a journal of another header is begun anew.
    Lines are written at once and synced in batches.
    """

    def __init__(self, path: Path, model: type[ModelT], header: bytes = b"") -> None:
        """Read it; RecordError if a whole line of it is no row."""
        self._path, self._model, self._header = path, model, header
        self.rows = self._read()
        self._unsynced, self._synced_at = 0, time.monotonic()

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        cut_to_whole_lines(self._path)
        # without a buffer: what a killed process had not written would be lost with it
        self._stream: FileIO = self._path.open("ab", buffering=0)
        if self._header and not self._stream.tell():
            self._stream.write(self._header + b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._sync()
        self._stream.close()

    def append(self, row: ModelT) -> None:
        """Write one more row."""
        self._stream.write(row.model_dump_json().encode() + b"\n")
        self._unsynced += 1
        if self._unsynced >= _BATCH or time.monotonic() - self._synced_at >= _BATCH_S:
            self._sync()

    def _sync(self) -> None:
        os.fsync(self._stream.fileno())
        self._unsynced, self._synced_at = 0, time.monotonic()

    def _read(self) -> list[ModelT]:
        content = self._path.read_bytes() if self._path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        if self._header and lines[:1] != [self._header]:
            if lines:
                os.truncate(self._path, 0)
            return []
        rows, first = [], 1 if self._header else 0
        for number, line in enumerate(lines[first:], first + 1):
            try:
                rows.append(self._model.model_validate_json(line))
            except ValidationError as error:
                kind = self._model.__name__.lower()
                raise RecordError(
                    f"{self._path}: line {number} is no {kind}; delete the file and start again"
                ) from error
        return rows
