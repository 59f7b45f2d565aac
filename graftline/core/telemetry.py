"""How a process is seen while it works: settings, as they stand in a configuration file, and all that follows from them."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pydantic import Field

from graftline import __version__
from graftline.core.config import Config
from graftline.core.errors import ConfigError, install_command
from graftline.core.logs import JsonLogFiles
from graftline.core.metrics import Metrics, serve_metrics
from graftline.core.secrets import Secrets

logger = logging.getLogger(__name__)

_URL = r"^https?://\S+$"


class ServerSettings(Config):
    """Where `/metrics` and `/healthz` are."""

    host: str = "127.0.0.1"
    """`0.0.0.0` for a closed network: there is no password."""
    port: int = Field(default=9464, ge=0, le=65535)
    """0 for a free one. Each process needs one of its own."""


class LogSettings(Config):
    """Which records are kept, and for how long."""

    level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    keep_days: int = Field(default=14, ge=1)
    """Today counts as one."""


class PushSettings(Config):
    """Where logs and metrics are sent by OTLP over HTTP, beside the files and `/metrics`."""

    logs_url: str | None = Field(default=None, pattern=_URL)
    """The whole address: Loki's is `http://loki:3100/otlp/v1/logs`, a collector's `http://collector:4318/v1/logs`."""
    figures_url: str | None = Field(default=None, pattern=_URL)
    """The whole address: Prometheus' is `http://prometheus:9090/api/v1/otlp/v1/metrics`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Of every request, such as `X-Scope-OrgID`. Nothing secret."""
    authorization: str = ""
    """Name of the variable that holds the whole `Authorization` header (`Bearer …`, `Basic …`); empty for none."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Of one batch, all tries together."""
    interval_s: float = Field(default=5.0, gt=0)
    """A batch of logs that is not full is sent after this time."""
    figures_interval_s: float = Field(default=30.0, gt=0)
    most_at_once: int = Field(default=512, ge=1)
    """Records in a batch."""
    most_waiting: int = Field(default=10_000, ge=1)
    """Records that wait; further ones are lost, and counted."""
    close_s: float = Field(default=5.0, ge=0)
    """How long the end of the process waits for what is left."""


class TelemetrySettings(Config):
    """All of it."""

    server: ServerSettings | None = ServerSettings()
    """None: `/metrics` is not served."""
    logs: LogSettings = LogSettings()
    push: PushSettings = PushSettings()


@contextmanager
def open_telemetry(
    settings: TelemetrySettings, folder: Path, process: str, secrets: Secrets, fault: Callable[[], str]
) -> Iterator[Metrics]:
    """Serve, log to `folder` and push, as `settings` say, until the block ends; yields the metrics to be counted.

    Of the logger `graftline` alone, whose level is that of the settings meanwhile: handlers that want less have to say
    so themselves, and an HTTP library would log whole addresses with what is in them.

    Args:
        process: what file names and other systems call this process.
        secrets: taken out of all that is logged, and asked for what `push.authorization` names.
        fault: says what is wrong with the process, for `/healthz`; nothing while it works.

    Raises:
        ConfigError: the port is in use, a secret is not set, or opentelemetry is missing and something is to be pushed.
    """
    metrics, address = Metrics(), ""
    with ExitStack() as stack:
        if settings.server is not None:
            address = stack.enter_context(serve_metrics(metrics, settings.server.host, settings.server.port, fault))
        files = JsonLogFiles(
            folder, process, settings.logs.keep_days, secrets, partial(metrics.count_lost, "log files")
        )
        handlers = [files, *_open_pushes(settings.push, metrics, process, secrets, stack)]
        stack.enter_context(_attach(handlers, settings.logs.level))
        logger.info("%s begins; its figures are %s", process, f"on {address}/metrics" if address else "not served")
        yield metrics


def _open_pushes(
    settings: PushSettings, metrics: Metrics, process: str, secrets: Secrets, stack: ExitStack
) -> list[logging.Handler]:
    """Push metrics until `stack` is left, and return the handlers by which logs are pushed."""
    if settings.logs_url is None and settings.figures_url is None:
        return []
    try:
        from graftline.core.otlp import LogPush, MetricPush
    except ImportError:
        raise ConfigError(
            f"telemetry.push: names an address, but opentelemetry is missing; {install_command('otlp')}"
        ) from None
    headers = dict(settings.headers)
    if settings.authorization:
        headers["Authorization"] = secrets.require(settings.authorization, "telemetry.push").get_secret_value()
    about = {
        "service.name": "graftline",
        "service.version": __version__,
        "service.instance.id": process,
        "host.name": socket.gethostname(),
    }
    if settings.figures_url is not None:
        lost = partial(metrics.count_lost, "figure push")
        push = MetricPush(settings.figures_url, headers, about, settings, metrics.families, lost)
        stack.callback(push.close)
    if settings.logs_url is None:
        return []
    lost = partial(metrics.count_lost, "log push")
    return [LogPush(settings.logs_url, headers, about, settings, secrets, lost)]


@contextmanager
def _attach(handlers: list[logging.Handler], level: str) -> Iterator[None]:
    root = logging.getLogger("graftline")
    level_before = root.level
    root.setLevel(level)
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level_before)
