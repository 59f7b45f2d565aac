"""The attempts of an evaluation on disk while it runs: after a kill, those that count are not made again.

The first line says what they are attempts of. Lines are written at once, and on disk for good batch by batch; a last line
that a kill left half written is cut off.
"""

import json
import os
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from graftline.core.errors import RecordError
from graftline.evals.attempt import Attempt

_BATCH, _BATCH_S = 64, 2.0


class Journal:
    """The file at `path`, for attempts at what `made_by` tells; another journal that lies there is begun anew.

    `known` holds what was in it.
    """

    def __init__(self, path: Path, made_by: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Read it.

        Raises:
            RecordError: a whole line of it is no attempt.
        """
        self._path, self._made_by, self._clock_s = path, made_by, clock_s
        self.known = self._read()
        self._stream: FileIO | None = None
        self._unsynced, self._synced_at = 0, clock_s()

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # without a buffer: what a killed process had not written would be lost with it
        self._stream = self._path.open("ab", buffering=0)
        if not self._stream.tell():
            self._stream.write(_header(self._made_by))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stream is not None  # it was entered
        self._sync()
        self._stream.close()

    def add(self, attempt: Attempt) -> None:
        """Keep an attempt that counts; one that says nothing is made again."""
        assert self._stream is not None  # it was entered
        if attempt.is_infra:
            return
        self._stream.write(attempt.model_dump_json().encode() + b"\n")
        self._unsynced += 1
        if self._unsynced >= _BATCH or self._clock_s() - self._synced_at >= _BATCH_S:
            self._sync()

    def _sync(self) -> None:
        assert self._stream is not None  # it was entered
        os.fsync(self._stream.fileno())
        self._unsynced, self._synced_at = 0, self._clock_s()

    def _read(self) -> list[Attempt]:
        if not self._path.exists():
            return []
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        header, *lines = whole.splitlines(keepends=True) or [b""]
        if header != _header(self._made_by):
            whole, lines = b"", []
        if len(whole) < len(content):
            with self._path.open("r+b") as stream:
                stream.truncate(len(whole))
        return [self._attempt(number, line) for number, line in enumerate(lines, 2)]

    def _attempt(self, number: int, line: bytes) -> Attempt:
        try:
            return Attempt.model_validate_json(line)
        except ValidationError as error:
            raise RecordError(f"{self._path}: line {number} is no attempt; delete the file and start again") from error


def _header(made_by: str) -> bytes:
    return json.dumps({"made_by": made_by}).encode() + b"\n"
