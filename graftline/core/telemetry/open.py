"""From settings to figures and logs that can be seen, for as long as a process works."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

from graftline.core.errors import ConfigError
from graftline.core.extras import install_command
from graftline.core.secrets import Secrets
from graftline.core.telemetry.log_file import JsonLogFiles
from graftline.core.telemetry.metrics import Metrics
from graftline.core.telemetry.push import FigurePush, LogPush
from graftline.core.telemetry.server import serve_metrics
from graftline.core.telemetry.settings import PushSettings, TelemetrySettings

logger = logging.getLogger(__name__)


@contextmanager
def open_telemetry(
    settings: TelemetrySettings, folder: Path, process: str, secrets: Secrets, fault: Callable[[], str]
) -> Iterator[Metrics]:
    """Serve, log to `folder` and push, as `settings` say, until the block ends; yields the figures to be fed.

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
        files = JsonLogFiles(folder, process, settings.logs.keep_days, secrets, partial(metrics.lost, "log files"))
        handlers = [files, *_pushed(settings.push, metrics, process, secrets, stack)]
        stack.enter_context(_logging(handlers, settings.logs.level))
        logger.info("%s begins; its figures are %s", process, f"on {address}/metrics" if address else "not served")
        yield metrics


def _pushed(
    settings: PushSettings, metrics: Metrics, process: str, secrets: Secrets, stack: ExitStack
) -> list[logging.Handler]:
    """Push figures until `stack` is left, and return the handlers by which logs are pushed."""
    if settings.logs_url is None and settings.figures_url is None:
        return []
    try:
        from graftline.core.telemetry.otlp import OtlpFigures, OtlpLogs
    except ImportError:
        raise ConfigError(
            f"telemetry.push: names an address, but opentelemetry is missing; {install_command('otlp')}"
        ) from None
    headers = dict(settings.headers)
    if settings.authorization:
        headers["Authorization"] = secrets.require(settings.authorization, "telemetry.push").get_secret_value()
    about = {
        "service.name": "graftline",
        "service.version": version("graftline"),
        "service.instance.id": process,
        "host.name": socket.gethostname(),
    }
    if settings.figures_url is not None:
        figures = OtlpFigures(settings.figures_url, headers, settings.timeout_s, about)
        push = FigurePush(
            lambda: figures.send(metrics.families()), figures.close, settings, partial(metrics.lost, "figure push")
        )
        stack.callback(push.close)
    if settings.logs_url is None:
        return []
    logs = OtlpLogs(settings.logs_url, headers, settings.timeout_s, about)
    return [LogPush(logs, settings, secrets, partial(metrics.lost, "log push"))]


@contextmanager
def _logging(handlers: list[logging.Handler], level: str) -> Iterator[None]:
    ours = logging.getLogger("graftline")
    before = ours.level
    ours.setLevel(level)
    for handler in handlers:
        ours.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            ours.removeHandler(handler)
            handler.close()
        ours.setLevel(before)
