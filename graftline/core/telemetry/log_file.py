"""Logs as files of JSON lines: one a day and process, `2026-11-22.<process>-<pid>.jsonl`, kept for some days.

Every process writes files of its own, which are never renamed: no process can cut another one's line, and the day that
is in the name needs no hour at which all turn over. `logging.handlers.TimedRotatingFileHandler` renames what others
write to, and never removes the files of processes that are gone.
"""

import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO

from graftline.core.secrets import RedactingFilter, Secrets
from graftline.core.telemetry.log_line import log_line

_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\..+\.jsonl")


class JsonLogFiles(logging.Handler):
    """Appends one line per record to the file of its day (UTC). A file that cannot be written to stops no work."""

    def __init__(
        self, folder: Path, process: str, keep_days: int, secrets: Secrets, lost: Callable[[int], None]
    ) -> None:
        """Log to `folder`.

        Args:
            process: what the process is called in names of files.
            keep_days: files of earlier days are removed, whoever wrote them; today counts as one.
            lost: told of records that could not be written.
        """
        super().__init__()
        self.addFilter(RedactingFilter(secrets))
        self._folder, self._keep, self._secrets, self._lost = folder, timedelta(days=keep_days - 1), secrets, lost
        self._process = re.sub(r"[^\w-]", "-", process)
        self._stream: IO[bytes] | None = None
        self._of: tuple[date, int] | None = None
        self._is_torn = False
        self._is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(
                datetime.fromtimestamp(record.created, UTC).date(), log_line(record, self._secrets.redact).json()
            )
            self._is_failing = False
        except Exception as error:
            self._lost(1)
            if not self._is_failing:
                self._is_failing = True
                reason = self._secrets.redact(f"{type(error).__name__}: {error}")
                sys.stderr.write(f"graftline: {self._folder}: a record is not logged ({reason}); the work goes on\n")

    def close(self) -> None:
        self.acquire()
        try:
            self._close()
        finally:
            self.release()
        super().close()

    def _write(self, day: date, line: bytes) -> None:
        # the child of a fork must not write to its parent's file
        if self._of != (day, os.getpid()):
            self._open(day)
        assert self._stream is not None
        line = b"\n" + line if self._is_torn else line
        # in one call: a full disk, or a kill where the line goes on on another page of the file, leaves a part of it
        written = self._stream.write(line)
        self._is_torn = written < len(line)
        if self._is_torn:
            raise OSError(f"{written} of {len(line)} bytes were written")

    def _open(self, day: date) -> None:
        self._close()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._stream = (self._folder / f"{day}.{self._process}-{os.getpid()}.jsonl").open("a+b", buffering=0)
        self._of = day, os.getpid()
        end = self._stream.seek(0, os.SEEK_END)
        self._stream.seek(max(end - 1, 0))
        self._is_torn = end > 0 and self._stream.read(1) != b"\n"
        _remove_before(self._folder, day - self._keep)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._of = None, None


def _remove_before(folder: Path, day: date) -> None:
    for path in folder.glob("*.jsonl"):
        named = _NAME.fullmatch(path.name)
        if named and named[1] < day.isoformat():
            with suppress(OSError):  # another process was faster, or it is not ours to remove
                path.unlink()
