"""Logs as files of JSON lines: one a day and process, `2026-11-22.<process>-<pid>.jsonl`, kept for some days.

Every process writes files of its own, which are never renamed: no process can cut another one's line, and the day that
is in the name needs no hour at which all turn over. `logging.handlers.TimedRotatingFileHandler` renames what others
write to, and never removes the files of processes that are gone.
"""

import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from graftline.core.secrets import RedactingFilter, Secrets

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; everything else is `extra` of the caller."""
_OURS = ("time", "level", "logger", "message", "exception")
_LARGEST_INTEGER = (1 << 63) - 1  # that other systems keep
_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\..+\.jsonl")

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log record: plain values without secrets, as a line of JSON or for another system."""

    time_s: float
    """Since 1970."""
    level: int
    level_name: str
    logger: str
    message: str
    exception: str
    """Its traceback, the stack where one was asked for, or nothing."""
    fields: Mapping[str, Any]
    """The `extra` of the caller: plain values of JSON."""

    def json(self) -> bytes:
        """Return it as one line, its end included."""
        time = datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": self.level_name, "logger": self.logger, "message": self.message}
        if self.exception:
            line["exception"] = self.exception
        extra = {f"extra_{key}" if key in _OURS else key: value for key, value in self.fields.items()}
        return json.dumps({**line, **extra}, ensure_ascii=False).encode() + b"\n"


def log_line(record: logging.LogRecord, redact: Redact) -> LogLine:
    """Return `record` as a line; message and traceback have passed `secrets.RedactingFilter`, `redact` is for the rest."""
    exception = record.exc_text or (logging.Formatter().formatException(record.exc_info) if record.exc_info else "")
    stack = redact(record.stack_info) if record.stack_info else ""
    return LogLine(
        time_s=record.created,
        level=record.levelno,
        level_name=record.levelname,
        logger=record.name,
        message=_escape_surrogates(record.getMessage()),
        exception=_escape_surrogates("\n".join(filter(None, (exception, stack)))),
        fields=_plain({key: value for key, value in vars(record).items() if key not in _STANDARD}, redact),
    )


class JsonLogFiles(logging.Handler):
    """Appends one line per record to the file of its day (UTC). A file that cannot be written to stops no work."""

    def __init__(
        self, folder: Path, process: str, keep_days: int, secrets: Secrets, lost: Callable[[int], None]
    ) -> None:
        """Log to `folder`.

        Args:
            process: what the process is called in names of files.
            keep_days: files of earlier days are removed, whoever wrote them; today counts as one.
            lost: called with the number of records that could not be written.
        """
        super().__init__()
        self.addFilter(RedactingFilter(secrets))
        self._folder, self._keep, self._secrets, self._lost = folder, timedelta(days=keep_days - 1), secrets, lost
        self._process = re.sub(r"[^\w-]", "-", process)
        self._stream: IO[bytes] | None = None
        self._day_and_pid: tuple[date, int] | None = None
        self._is_torn = False
        self._is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = log_line(record, self._secrets.redact).json()
            self._write(datetime.fromtimestamp(record.created, UTC).date(), line)
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
            self._close_file()
        finally:
            self.release()
        super().close()

    def _write(self, day: date, line: bytes) -> None:
        # the child of a fork must not write to its parent's file
        if self._stream is None or self._day_and_pid != (day, os.getpid()):
            self._stream = self._open_file(day)
        line = b"\n" + line if self._is_torn else line
        # in one call: a full disk, or a kill where the line goes on on another page of the file, leaves a part of it
        written = self._stream.write(line)
        self._is_torn = written < len(line)
        if self._is_torn:
            raise OSError(f"{written} of {len(line)} bytes were written")

    def _open_file(self, day: date) -> IO[bytes]:
        self._close_file()
        self._folder.mkdir(parents=True, exist_ok=True)
        stream = (self._folder / f"{day}.{self._process}-{os.getpid()}.jsonl").open("a+b", buffering=0)
        self._day_and_pid = day, os.getpid()
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(end - 1, 0))
        self._is_torn = end > 0 and stream.read(1) != b"\n"
        oldest = (day - self._keep).isoformat()
        for path in self._folder.glob("*.jsonl"):
            match = _NAME.fullmatch(path.name)
            if match and match[1] < oldest:
                with suppress(OSError):  # another process was faster, or it is not ours to remove
                    path.unlink()
        return stream

    def _close_file(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None


def _plain(value: Any, redact: Redact) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= _LARGEST_INTEGER:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        return {_escape_surrogates(redact(str(key))): _plain(item, redact) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, redact) for item in value]
    return _escape_surrogates(redact(str(value)))


def _escape_surrogates(text: str) -> str:
    """Return `text` with lone surrogates, which no UTF-8 has, spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()
