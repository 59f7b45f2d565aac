"""Logs and figures to another system, from threads of their own: the work never waits for it and never fails by it.

What does not arrive is counted as lost. A forked child sends nothing: the threads stay with its parent.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Protocol

from graftline.core.secrets import RedactingFilter, Secrets
from graftline.core.telemetry.log_line import LogLine, log_line
from graftline.core.telemetry.settings import PushSettings

logger = logging.getLogger(__name__)


class LogSender(Protocol):
    """Sends lines of logs to another system."""

    def send(self, lines: Sequence[LogLine]) -> bool:
        """Return whether they arrived; may take long."""

    def close(self) -> None:
        """Have a `send` that waits for its next try give up."""


class LogPush(logging.Handler):
    """Hands records to a sender in batches; records that come while too many wait are lost."""

    def __init__(
        self, sender: LogSender, settings: PushSettings, secrets: Secrets, lost: Callable[[int], None]
    ) -> None:
        """Start the thread; `lost` is told of records that did not arrive."""
        super().__init__()
        self.addFilter(RedactingFilter(secrets))
        self._sender, self._settings, self._secrets, self._lost = sender, settings, secrets, lost
        self._waiting: deque[LogLine] = deque()
        self._wake, self._is_closing, self._is_given_up = Event(), Event(), Event()
        self._outage = _Outage("logs")
        self._pid = os.getpid()
        self._thread = Thread(target=self._run, name="log push", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._pid:
            return
        if len(self._waiting) >= self._settings.most_waiting or self._is_closing.is_set():
            self._lost(1)
            return
        try:
            self._waiting.append(log_line(record, self._secrets.redact))
        except Exception:  # arguments that cannot be made text
            self._lost(1)
        if len(self._waiting) >= self._settings.most_at_once:
            self._wake.set()

    def close(self) -> None:
        """Send what waits, for as long as the settings allow."""
        super().close()
        if self._is_closing.is_set() or os.getpid() != self._pid:
            return
        self._is_closing.set()
        self._wake.set()
        self._thread.join(self._settings.close_s)
        self._is_given_up.set()
        self._sender.close()
        self._lost(len(self._waiting))

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(self._settings.interval_s)
            self._wake.clear()
            is_last = self._is_closing.is_set()
            while self._waiting and not self._is_given_up.is_set():
                count = min(len(self._waiting), self._settings.most_at_once)
                self._send([self._waiting.popleft() for _ in range(count)])

    def _send(self, batch: Sequence[LogLine]) -> None:
        try:
            has_arrived = self._sender.send(batch)
        except Exception:  # of the library that sends
            has_arrived = False
        if not has_arrived:
            self._lost(len(batch))
        self._outage.note(has_arrived)


class FigurePush:
    """Calls `send` every now and then, and once more at the end."""

    def __init__(
        self, send: Callable[[], bool], stop: Callable[[], None], settings: PushSettings, lost: Callable[[int], None]
    ) -> None:
        """Start the thread; `stop` has a `send` that waits for its next try give up, `lost` is told of failed ones."""
        self._send, self._stop, self._settings, self._lost = send, stop, settings, lost
        self._is_closing = Event()
        self._outage = _Outage("figures")
        self._thread = Thread(target=self._run, name="figure push", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the last figures, for as long as the settings allow."""
        self._is_closing.set()
        self._thread.join(self._settings.close_s)
        self._stop()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_closing.wait(self._settings.figures_interval_s)
            try:
                has_arrived = self._send()
            except Exception:  # of the library that sends
                has_arrived = False
            if not has_arrived:
                self._lost(1)
            self._outage.note(has_arrived)


class _Outage:
    """Says once that something does not arrive, and once that it does again."""

    def __init__(self, what: str) -> None:
        self._what, self._is_on = what, False

    def note(self, has_arrived: bool) -> None:
        if not has_arrived and not self._is_on:
            logger.warning(
                "%s do not arrive where they are pushed to; graftline_telemetry_lost_total counts them", self._what
            )
        elif has_arrived and self._is_on:
            logger.info("%s arrive again where they are pushed to", self._what)
        self._is_on = not has_arrived
