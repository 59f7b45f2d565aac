"""How a process is seen while it works: the settings, as they stand in a configuration file."""

from pydantic import Field

from graftline.core.config import Config

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
    """Where logs and figures are sent by OTLP over HTTP, beside the files and `/metrics`."""

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
