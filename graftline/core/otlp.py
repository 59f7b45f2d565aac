"""Logs and metrics to another system by OTLP over HTTP, which Loki, Prometheus and every OpenTelemetry collector take.

Loki takes logs from version 3 on (https://grafana.com/docs/loki/latest/send-data/otel/), so that its own push protocol
is not needed; Prometheus takes metrics with `--web.enable-otlp-receiver`
(https://prometheus.io/docs/guides/opentelemetry/). The work never waits for a push and never fails by it: threads send,
an exporter tries again as long as its time-out lasts, and what does not arrive is counted as lost. OpenTelemetry's own
batch processor drops records without saying how many, and goes on in forked children.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from threading import Event, Thread

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from graftline.core.logs import LogLine, log_line
from graftline.core.metrics import Family
from graftline.core.secrets import RedactingFilter, Secrets
from graftline.core.telemetry import PushSettings

logger = logging.getLogger(__name__)

_SEVERITIES = {
    logging.CRITICAL: SeverityNumber.FATAL,
    logging.ERROR: SeverityNumber.ERROR,
    logging.WARNING: SeverityNumber.WARN,
    logging.INFO: SeverityNumber.INFO,
}
_CUMULATIVE = export.AggregationTemporality.CUMULATIVE

CountLost = Callable[[int], None]


class LogPush(logging.Handler):
    """Sends records to one URL in batches; records that come while too many wait are lost."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        about: Mapping[str, str],
        settings: PushSettings,
        secrets: Secrets,
        lost: CountLost,
    ) -> None:
        """Start the thread.

        Args:
            about: which process speaks, by OpenTelemetry's names of resource attributes.
            lost: called with the number of records that did not arrive.
        """
        super().__init__()
        self.addFilter(RedactingFilter(secrets))
        self._exporter = OTLPLogExporter(
            url, headers=dict(headers), timeout=settings.timeout_s, compression=Compression.Gzip
        )
        self._resource, self._settings, self._secrets, self._lost = Resource(about), settings, secrets, lost
        self._queue: deque[LogLine] = deque()
        self._delivery = _Delivery("logs", lost)
        self._pid = os.getpid()
        self._thread = _PushThread(self._send_queue, settings.interval_s, settings.close_s)

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._pid:
            return  # a forked child sends nothing: the thread stays with its parent
        if len(self._queue) >= self._settings.most_waiting or self._thread.is_closing:
            self._lost(1)
            return
        try:
            self._queue.append(log_line(record, self._secrets.redact))
        except Exception:  # arguments that cannot be made text
            self._lost(1)
        if len(self._queue) >= self._settings.most_at_once:
            self._thread.wake()

    def close(self) -> None:
        """Send what waits, for as long as the settings allow."""
        super().close()
        if self._thread.is_closing or os.getpid() != self._pid:
            return
        self._thread.close()
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # of the library, without types
        self._lost(len(self._queue))

    def _send_queue(self) -> None:
        while self._queue and not self._thread.is_overdue:
            count = min(len(self._queue), self._settings.most_at_once)
            batch = [self._convert(self._queue.popleft()) for _ in range(count)]
            self._delivery.attempt(count, partial(self._send, batch))

    def _send(self, batch: list[ReadableLogRecord]) -> bool:
        return self._exporter.export(batch) is LogRecordExportResult.SUCCESS

    def _convert(self, line: LogLine) -> ReadableLogRecord:
        time_ns = int(line.time_s * 1e9)
        exception = {"exception.stacktrace": line.exception} if line.exception else {}
        severities = (number for level, number in _SEVERITIES.items() if line.level >= level)
        record = LogRecord(
            timestamp=time_ns,
            observed_timestamp=time_ns,
            severity_text=line.level_name,
            severity_number=next(severities, SeverityNumber.DEBUG),
            body=line.message,
            attributes={**line.fields, **exception},
        )
        return ReadableLogRecord(record, self._resource, InstrumentationScope(line.logger))


class MetricPush:
    """Sends metrics to one URL every now and then, and once more at the end."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        about: Mapping[str, str],
        settings: PushSettings,
        collect: Callable[[], Iterable[Family]],
        lost: CountLost,
    ) -> None:
        """Start the thread; `about` and `lost` as for `LogPush`, `collect` returns the metrics as they are."""
        self._exporter = OTLPMetricExporter(
            url, headers=dict(headers), timeout=settings.timeout_s, compression=Compression.Gzip
        )
        self._resource, self._collect, self._start_ns = Resource(about), collect, time.time_ns()
        delivery = _Delivery("figures", lost)
        self._thread = _PushThread(
            lambda: delivery.attempt(1, self._send), settings.figures_interval_s, settings.close_s
        )

    def close(self) -> None:
        """Send the last metrics, for as long as the settings allow."""
        self._thread.close()
        self._exporter.shutdown()

    def _send(self) -> bool:
        now_ns = time.time_ns()
        metrics = [metric for family in self._collect() if (metric := _convert_family(family, self._start_ns, now_ns))]
        scope = export.ScopeMetrics(InstrumentationScope("graftline"), metrics, "")
        data = export.MetricsData([export.ResourceMetrics(self._resource, [scope], "")])
        return self._exporter.export(data) is export.MetricExportResult.SUCCESS


class _PushThread:
    """Calls `work` every `interval_s`, when it is woken, and once more at the end."""

    def __init__(self, work: Callable[[], None], interval_s: float, close_s: float) -> None:
        self._work, self._interval_s, self._close_s = work, interval_s, close_s
        self._wake, self._closing, self._overdue = Event(), Event(), Event()
        self._thread = Thread(target=self._run, name="push", daemon=True)
        self._thread.start()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    @property
    def is_overdue(self) -> bool:
        """Whether the end has waited as long as it may."""
        return self._overdue.is_set()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._thread.join(self._close_s)
        self._overdue.set()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            is_last = self.is_closing
            self._work()


class _Delivery:
    """Counts what does not arrive, and logs once that it does not, and once that it does again."""

    def __init__(self, subject: str, lost: CountLost) -> None:
        self._subject, self._lost, self._is_failing = subject, lost, False

    def attempt(self, count: int, send: Callable[[], bool]) -> None:
        try:
            has_arrived = send()
        except Exception:  # of the library that sends
            has_arrived = False
        if not has_arrived:
            self._lost(count)
        if not has_arrived and not self._is_failing:
            logger.warning(
                "%s do not arrive where they are pushed to; graftline_telemetry_lost_total counts them", self._subject
            )
        elif has_arrived and self._is_failing:
            logger.info("%s arrive again where they are pushed to", self._subject)
        self._is_failing = not has_arrived


def _convert_family(family: Family, start_ns: int, now_ns: int) -> export.Metric | None:
    """Return a family in OTLP's form, None for one without values; Prometheus adds `_total` to sums by itself."""
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    if not samples:
        return None
    data: export.Sum | export.Gauge | export.Histogram
    if family.type == "histogram":
        data = export.Histogram(_histogram_points(family, start_ns, now_ns), _CUMULATIVE)
    else:
        points = [export.NumberDataPoint(sample.labels, start_ns, now_ns, sample.value) for sample in samples]
        is_counter = family.type == "counter"
        data = export.Sum(points, _CUMULATIVE, is_monotonic=True) if is_counter else export.Gauge(points)
    return export.Metric(family.name, family.documentation, "", data)


def _histogram_points(family: Family, start_ns: int, now_ns: int) -> list[export.HistogramDataPoint]:
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
    for labels, bounds in buckets.items():
        cumulative = [count for _, count in bounds]
        points.append(
            export.HistogramDataPoint(
                attributes=dict(labels),
                start_time_unix_nano=start_ns,
                time_unix_nano=now_ns,
                count=cumulative[-1],
                sum=sums[labels],
                bucket_counts=[cumulative[0], *(count - before for before, count in pairwise(cumulative))],
                explicit_bounds=[bound for bound, _ in bounds[:-1]],  # the last one is infinite
                min=None,  # type: ignore[arg-type]  # nobody keeps it, and OTLP need not have it
                max=None,  # type: ignore[arg-type]
            )
        )
    return points
