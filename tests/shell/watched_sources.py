"""A small checkout whose datasets live on a loopback server, and the sensor that watches them.

Three sources: `followed`, a repository whose newest commit is fetched; `pinned`, one of which a commit is; and `plain`,
a file on a web server.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from graftline.core.paths import Paths
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.settings import load_settings
from graftline.pipeline.stages.table import make
from orchestration.build import build_definitions, resources_for
from sensors.dataset_versions import dataset_versions
from tests.hub_server import HubServer

FOLLOWED, PINNED, PLAIN = "demo/followed", "demo/pinned", "/plain/rows.jsonl"
LOOKS = {
    "followed": f"/api/datasets/{FOLLOWED}/revision/main",
    "pinned": f"/api/datasets/{PINNED}/revision/main",
    "plain": PLAIN,
}
MORNING = 1_900_000_000.0


@dataclass
class WatchedSources:
    """The checkout, its server and its sensor."""

    small: Any
    server: HubServer
    rows: list[dict[str, Any]]
    used: tuple[str, ...] = ("followed", "pinned", "plain")
    changes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    within_s: float = 20.0

    def __post_init__(self) -> None:
        self.server.put(FOLLOWED, {"rows.jsonl": self.content(0)})
        self.first_pin = self.server.put(PINNED, {"rows.jsonl": self.content(1)})
        self.server.files[PLAIN] = self.content(2)
        self.wait_for_bytes(20.0)
        self.configure()

    @property
    def root(self) -> Path:
        return self.small.root

    def content(self, *packages: int) -> bytes:
        """Return the rows of three packages, or some of them, as a file."""
        rows = [row for row in self.rows if int(row["pkg"][-1]) in packages]
        return "".join(json.dumps(row) + "\n" for row in rows).encode()

    def wait_for_bytes(self, seconds: float) -> None:
        """Write the manifest: a source that is silent for so long has failed."""
        patience = {"connect_s": 20.0, "read_s": seconds, "deadline_s": 0.0}
        hub = {"kind": "sources", "huggingface": self.server.url, "patience": patience}
        manifest = {"dataset_hub": hub, "sandbox": {"kind": "memory"}, "teacher": {"kind": "induction"}}
        (self.root / "configs" / "manifests" / "local.yaml").write_text(json.dumps(manifest), "utf-8")

    def configure(
        self, used: tuple[str, ...] = (), languages: tuple[str, ...] = (), **changes: Mapping[str, Any]
    ) -> None:
        """Write datasets.yaml and make the sensor anew, as a start of Dagster does."""
        self.used, self.changes = used or self.used, {**self.changes, **changes}
        sources = {
            "followed": {"url": f"hf://datasets/{FOLLOWED}", "version": "main", "follow": True},
            "pinned": {"url": f"hf://datasets/{PINNED}", "version": self.first_pin},
            "plain": {"url": f"{self.server.url}/plain", "version": "1"},
        }
        common = {"reader": "release_pairs", "license": "MIT", "files": [{"path": "rows.jsonl"}]}
        path = self.root / "configs" / "datasets.yaml"
        datasets = {name: {**common, **source, **self.changes.get(name, {})} for name, source in sources.items()}
        tree = {**json.loads(path.read_text("utf-8")), "use": list(self.used), "datasets": datasets}
        tree |= {"languages": list(languages)} if languages else {}
        path.write_text(json.dumps(tree), "utf-8")
        self.definitions = build_definitions()
        self.repository = self.definitions.get_repository_def()
        self.moment = MORNING
        self.sensor = dataset_versions(
            "lineage",
            load_settings(Paths(self.root)).catalog,
            clock=lambda: datetime.fromtimestamp(self.moment, UTC),
            within_s=self.within_s,
        )

    def tick(self, cursor: str | None = None, after_s: float = 0.0) -> dg.SensorResult:
        """Evaluate the sensor, `after_s` later than last time."""
        self.moment += after_s
        resources = {name: resources_for(Paths(self.root), "local")[name] for name in ("artifacts", "dataset_sources")}
        with dg.build_sensor_context(cursor=cursor, repository_def=self.repository, resources=resources) as context:
            result = self.sensor(context)
        assert isinstance(result, dg.SensorResult)
        return result

    def fetch(self) -> None:
        """Store the raw datasets as they are now."""
        paths = Paths(self.root)
        with open_lineage(paths, load_manifest(paths, "local"), "fetch") as lineage:
            for name in self.used:
                make("raw", lineage, name)

    def known(self, result: dg.SensorResult) -> dict[str, dict[str, Any]]:
        """Return what the cursor says of every source."""
        return json.loads(result.cursor or "{}")["datasets"]


def selected(result: dg.SensorResult) -> list[str]:
    """Return the assets that the one run requested is to make."""
    [request] = result.run_requests or []
    return [key.to_user_string() for key in request.asset_selection or []]


def run_key(result: dg.SensorResult) -> str:
    [request] = result.run_requests or []
    return request.run_key or ""


def reason(result: dg.SensorResult) -> str:
    assert result.run_requests == []
    return result.skip_reason.skip_message if result.skip_reason else ""


def told(result: dg.SensorResult) -> dict[str, dict[str, Any]]:
    """Return what the UI is told, by asset."""
    return {
        event.asset_key.to_user_string(): {key: value.value for key, value in event.metadata.items()}
        for event in result.asset_events
    }
