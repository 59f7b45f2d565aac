"""OTLP over HTTP, which Loki, Prometheus and every OpenTelemetry collector take: the one door to opentelemetry.

Loki takes logs from version 3 on (https://grafana.com/docs/loki/latest/send-data/otel/), so that its own push protocol
is not needed; Prometheus takes figures with `--web.enable-otlp-receiver`
(https://prometheus.io/docs/guides/opentelemetry/). An exporter tries again as long as its time-out lasts. Not here:
threads, waiting, and what is lost; see `telemetry.push`.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from threading import Event, Thread
from typing import Protocol

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from graftline.core.logs import LogLine, log_line
from graftline.core.metrics import Family
from graftline.core.secrets import RedactingFilter, Secrets
from graftline.core.telemetry import PushSettings

_SEVERITIES = {
    logging.CRITICAL: SeverityNumber.FATAL,
    logging.ERROR: SeverityNumber.ERROR,
    logging.WARNING: SeverityNumber.WARN,
    logging.INFO: SeverityNumber.INFO,
}
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class OtlpLogs:
    """Sends lines of logs to one URL."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float, about: Mapping[str, str]) -> None:
        """`about` says which process speaks, by OpenTelemetry's names of resource attributes."""
        self._exporter = OTLPLogExporter(url, headers=headers, timeout=timeout_s, compression=Compression.Gzip)
        self._resource = Resource(about)

    def send(self, lines: Sequence[LogLine]) -> bool:
        """Return whether they arrived."""
        return self._exporter.export([self._record(line) for line in lines]) is LogRecordExportResult.SUCCESS

    def close(self) -> None:
        """Have a `send` that waits for its next try give up."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # of the library, without types

    def _record(self, line: LogLine) -> ReadableLogRecord:
        time_ns = int(line.time_s * 1e9)
        exception = {"exception.stacktrace": line.exception} if line.exception else {}
        record = LogRecord(
            timestamp=time_ns,
            observed_timestamp=time_ns,
            severity_text=line.level_name,
            severity_number=next(
                (number for level, number in _SEVERITIES.items() if line.level >= level), SeverityNumber.DEBUG
            ),
            body=line.message,
            attributes={**line.fields, **exception},
        )
        return ReadableLogRecord(record, self._resource, InstrumentationScope(line.logger))


class OtlpFigures:
    """Sends figures to one URL."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float, about: Mapping[str, str]) -> None:
        """`about` says which process speaks, by OpenTelemetry's names of resource attributes."""
        self._exporter = OTLPMetricExporter(url, headers=headers, timeout=timeout_s, compression=Compression.Gzip)
        self._resource = Resource(about)
        self._began_ns = time.time_ns()

    def send(self, families: Iterable[Family]) -> bool:
        """Return whether they arrived."""
        metrics = [metric for family in families if (metric := _metric(family, self._began_ns, time.time_ns()))]
        scope = ScopeMetrics(InstrumentationScope("graftline"), metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        return self._exporter.export(data) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Have a `send` that waits for its next try give up."""
        self._exporter.shutdown()


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric | None:
    """Return a family in OTLP's form, None for one without values; Prometheus adds `_total` to sums by itself."""
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    if not samples:
        return None
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(_histogram_points(family, began_ns, now_ns), _CUMULATIVE)
    else:
        points = [NumberDataPoint(sample.labels, began_ns, now_ns, sample.value) for sample in samples]
        data = Sum(points, _CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)
    return Metric(family.name, family.documentation, "", data)


def _histogram_points(family: Family, began_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """Return one point for each set of labels. Prometheus counts what is at most a bound, OTLP what is between two."""
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = tuple((key, value) for key, value in sample.labels.items() if key != "le")
        if sample.name == f"{family.name}_bucket":
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), int(sample.value)))
        elif sample.name == f"{family.name}_sum":
            sums[labels] = sample.value
    points = []
    for labels, counted in buckets.items():
        up_to = [count for _, count in counted]
        points.append(
            HistogramDataPoint(
                attributes=dict(labels),
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
                count=up_to[-1],
                sum=sums[labels],
                bucket_counts=[up_to[0], *(count - before for before, count in pairwise(up_to))],
                explicit_bounds=[bound for bound, _ in counted[:-1]],  # the last one is infinite
                min=None,  # type: ignore[arg-type]  # nobody keeps it, and OTLP need not have it
                max=None,  # type: ignore[arg-type]
            )
        )
    return points


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
