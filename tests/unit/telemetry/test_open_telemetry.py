"""Everything together: figures served and pushed, logs in files and pushed, and an end that leaves nothing open."""

import json
import logging
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from graftline.core.config import load_yaml
from graftline.core.errors import ConfigError
from graftline.core.metrics import Metrics
from graftline.core.otlp import MetricPush
from graftline.core.secrets import Secrets
from graftline.core.telemetry import PushSettings, ServerSettings, TelemetrySettings, open_telemetry
from tests.unit.telemetry.otlp_server import OtlpServer

logger = logging.getLogger("graftline.loop")


def settings(**push: Any) -> TelemetrySettings:
    return TelemetrySettings(server=ServerSettings(port=0), push=PushSettings(**push))


def test_a_process_is_seen_in_every_way_at_once(
    otlp: OtlpServer, tmp_path: Path, secrets: Secrets, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    threads, level = {*threading.enumerate()}, logging.getLogger("graftline").level
    configured = settings(
        logs_url=f"{otlp.url}/otlp/v1/logs",
        figures_url=f"{otlp.url}/api/v1/otlp/v1/metrics",
        authorization="PUSH_AUTHORIZATION",
    )
    with open_telemetry(configured, tmp_path / "logs", "actor-1", secrets, str) as metrics:
        metrics.count_answer("a", 0.3, 1, 10, 5)
        logger.info("one step", extra={"task": "t-1"})
        logger.debug("not this")
        (url,) = (record.message.rpartition(" ")[2] for record in caplog.records if " begins; " in record.message)
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert b'graftline_actor_prompt_tokens_total{actor="a"} 10.0' in answer.read()
    (path,) = (tmp_path / "logs").iterdir()
    messages = [f"actor-1 begins; its figures are on {url}", "one step"]
    assert [json.loads(line)["message"] for line in path.read_text().splitlines()] == messages
    assert [record["body"]["stringValue"] for record in otlp.records()] == messages
    assert "graftline_actor_prompt_tokens" in otlp.metrics()
    assert {headers["authorization"] for headers in otlp.headers} == {f"Bearer {secret}"}
    # the server of the tests ends a thread a moment after its answer has come
    deadline = time.monotonic() + 240
    while (running := {*threading.enumerate()} - threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (running, logging.getLogger("graftline").level) == (set(), level)
    logger.warning("after the end")
    assert "after the end" not in path.read_text()


def test_figures_arrive_as_prometheus_reads_them(otlp: OtlpServer) -> None:
    metrics = Metrics()
    for latency_s in (0.05, 0.3, 0.4, 1000.0):
        metrics.count_answer("a", latency_s, 1, 10, 5)
    metrics.set_queue_depth(3, 2, 1)
    MetricPush(f"{otlp.url}/v1/metrics", {}, {}, PushSettings(), metrics.families, lambda count: None).close()
    sent = otlp.metrics()
    histogram = sent["graftline_actor_latency_seconds"]["histogram"]
    assert histogram["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"
    (point,) = histogram["dataPoints"]
    assert point["attributes"] == [{"key": "actor", "value": {"stringValue": "a"}}]
    assert (point["count"], point["sum"]) == ("4", 1000.75)
    assert point["explicitBounds"] == [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640]
    # one of at most 0.1 s, two above 0.25 and at most 0.5, one above 640
    assert point["bucketCounts"] == ["1", "0", "2", *["0"] * 10, "1"]
    assert not {"min", "max"} & {*point}
    total = sent["graftline_actor_prompt_tokens"]["sum"]
    assert (total["isMonotonic"], total["dataPoints"][0]["asDouble"]) == (True, 40)
    depth = {
        point["attributes"][0]["value"]["stringValue"]: point["asDouble"]
        for point in sent["graftline_queue_depth"]["gauge"]["dataPoints"]
    }
    assert depth == {"waiting": 3, "in_flight": 2, "dead": 1}
    assert "graftline_steps" not in sent  # nothing was counted


def test_figures_that_do_not_arrive_are_counted_and_said_once(
    otlp: OtlpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "graftline.core.otlp")
    otlp.answers.extend([400, 400, 400])
    lost: list[int] = []
    settings = PushSettings(figures_interval_s=0.01)
    push = MetricPush(f"{otlp.url}/v1/metrics", {}, {}, settings, Metrics().families, lost.append)
    deadline = time.monotonic() + 240
    while not otlp.figures:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    push.close()
    assert lost == [1, 1, 1]
    messages = [record.message for record in caplog.records if record.name == "graftline.core.otlp"]
    assert messages[0] == "figures do not arrive where they are pushed to; graftline_telemetry_lost_total counts them"
    assert len(messages) <= 2  # and once that they arrive again, where such records are wanted


def test_settings_are_read_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.yaml"
    path.write_text(
        "server: {port: 9470}\nlogs: {keep_days: 3, level: DEBUG}\npush: {logs_url: 'http://loki:3100/otlp/v1/logs'}\n"
    )
    loaded = load_yaml(path, TelemetrySettings)
    assert (loaded.server, loaded.logs.keep_days, loaded.push.logs_url) == (
        ServerSettings(port=9470),
        3,
        "http://loki:3100/otlp/v1/logs",
    )
    path.write_text("push: {logs_url: 'loki:3100'}\n")
    with pytest.raises(ConfigError, match=r"push\.logs_url: string should match pattern"):
        load_yaml(path, TelemetrySettings)


def test_an_authorization_that_is_not_set_is_named(tmp_path: Path) -> None:
    configured = settings(logs_url="http://127.0.0.1:9/v1/logs", authorization="NO_SUCH_VARIABLE")
    with (
        pytest.raises(ConfigError) as error,
        open_telemetry(configured, tmp_path, "actor-1", Secrets([]), str),
    ):
        pass
    assert str(error.value) == "NO_SUCH_VARIABLE: is not set, but telemetry.push needs it; put it into .env or Vault"
