"""What is told of a log record: plain values without secrets, as a line of JSON or for another system."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; everything else was given to it as `extra`."""
_OURS = ("time", "level", "logger", "message", "exception")
_LARGEST_INTEGER = (1 << 63) - 1  # that other systems keep

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class LogLine:
    """One record."""

    time_s: float
    """Since 1970."""
    level: int
    level_name: str
    logger: str
    message: str
    exception: str
    """Its traceback, the stack where one was asked for, or nothing."""
    fields: Mapping[str, Any]
    """What was given as `extra`: plain values of JSON."""

    def json(self) -> bytes:
        """Return it as one line, its end included."""
        time = datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": self.level_name, "logger": self.logger, "message": self.message}
        if self.exception:
            line["exception"] = self.exception
        others = {f"extra_{key}" if key in _OURS else key: value for key, value in self.fields.items()}
        return json.dumps({**line, **others}, ensure_ascii=False).encode() + b"\n"


def log_line(record: logging.LogRecord, redact: Redact) -> LogLine:
    """Return what is told of `record`.

    `redact` is applied to what was given as `extra`: message and traceback are those of `secrets.RedactingFilter`.
    """
    exception = record.exc_text or (logging.Formatter().formatException(record.exc_info) if record.exc_info else "")
    stack = redact(record.stack_info) if record.stack_info else ""
    return LogLine(
        time_s=record.created,
        level=record.levelno,
        level_name=record.levelname,
        logger=record.name,
        message=_text(record.getMessage()),
        exception=_text("\n".join(filter(None, (exception, stack)))),
        fields={_text(key): _plain(value, redact) for key, value in vars(record).items() if key not in _STANDARD},
    )


def _plain(value: Any, redact: Redact) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= _LARGEST_INTEGER:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        return {_text(redact(str(key))): _plain(one, redact) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one, redact) for one in value]
    return _text(redact(str(value)))


def _text(text: str) -> str:
    """Return `text` with lone surrogates, which no UTF-8 has, spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()
