"""The files of `deploy/` that are about figures ask for nothing that no process tells."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.core.config import parse_yaml
from graftline.core.metrics import Metrics

SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds."""
PROMTOOL = shutil.which("promtool")


@pytest.fixture(scope="module")
def labels_by_metric() -> dict[str, set[str]]:
    """The labels of every sample that a process tells of, by its name."""
    metrics = Metrics()
    metrics.count_answer("a", 1.0, 1, 1, 1)
    metrics.set_actor_state("a", True, 1, 1, {"stalled": 1}, 1)
    metrics.count_action("crash", 1.0)
    metrics.count_step("x", True)
    metrics.count_trajectory("x", True)
    metrics.set_queue_depth(1, 1, 1)
    metrics.count_job_end("finished", 1.0)
    metrics.count_lost("log push", 1)
    samples = [sample for family in metrics.families() for sample in family.samples]
    return {sample.name: {*sample.labels} for sample in samples if not sample.name.endswith("_created")} | {"up": set()}


@pytest.fixture(scope="module")
def deploy() -> Path:
    return Path(__file__).resolve().parents[3] / "deploy"


@pytest.fixture(scope="module")
def dashboard(deploy: Path) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads((deploy / "grafana" / "graftline.json").read_text("utf-8"))
    return dashboard


@pytest.fixture(scope="module")
def alerts(deploy: Path) -> list[dict[str, Any]]:
    path = deploy / "prometheus" / "alerts.yaml"
    (group,) = parse_yaml(path.read_text("utf-8"), str(path))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def faults(query: str, labels_by_metric: dict[str, set[str]]) -> list[str]:
    """Say which names and labels of a query nobody tells."""
    mentions = re.findall(r"\b(graftline_\w+|process_\w+|up)\b(?:\{([^}]*)\})?", query)
    unknown = [name for name, _ in mentions if name not in labels_by_metric]
    labels = SCRAPED.union(*(labels_by_metric[name] for name, _ in mentions if name in labels_by_metric))
    for name, selector in mentions:
        own = labels_by_metric.get(name, set()) | SCRAPED
        unknown += [f"{name}: {label}" for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector) if label not in own]
    for grouped in re.findall(r"\bby \(([^)]*)\)", query):
        unknown += [label for label in re.split(r",\s*", grouped) if label not in labels]
    return unknown if mentions else [f"asks for nothing: {query}"]


def queries(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"].replace("label_values(", "")


def test_every_query_of_the_dashboard_asks_for_what_is_told(
    dashboard: dict[str, Any], labels_by_metric: dict[str, set[str]]
) -> None:
    assert {
        query: faults(query, labels_by_metric) for query in queries(dashboard) if faults(query, labels_by_metric)
    } == {}


def test_every_figure_is_on_the_dashboard(dashboard: dict[str, Any]) -> None:
    shown = " ".join(queries(dashboard))
    ours = [family for family in Metrics().families() if family.name.startswith("graftline_")]
    assert [family.name for family in ours if family.name not in shown] == []


def test_every_alert_asks_for_what_is_told(alerts: list[dict[str, Any]], labels_by_metric: dict[str, set[str]]) -> None:
    assert {
        alert["alert"]: faults(alert["expr"], labels_by_metric)
        for alert in alerts
        if faults(alert["expr"], labels_by_metric)
    } == {}


def test_every_alert_says_how_bad_it_is_and_what_to_do(alerts: list[dict[str, Any]]) -> None:
    assert [alert["alert"] for alert in alerts] == [
        "GraftlineProcessDown",
        "GraftlineActorDown",
        "GraftlineActorStalls",
        "GraftlineStandsStill",
        "GraftlineQueueDoesNotDrain",
        "GraftlineDeadLetters",
        "GraftlineVerifiedRatioDropped",
        "GraftlineAnswersUnreadable",
        "GraftlineSandboxFails",
        "GraftlineTelemetryLost",
    ]
    assert {alert["labels"]["severity"] for alert in alerts} == {"critical", "warning"}
    assert all({*alert["annotations"]} == {"summary", "remedy"} for alert in alerts)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt-get install prometheus")
def test_every_alert_fires_when_it_should_and_only_then(deploy: Path) -> None:
    for command in (["check", "config", "prometheus.yaml"], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run(
            [str(PROMTOOL), *command], cwd=deploy / "prometheus", capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
