"""The page on clusters: its tables are what is declared, its commands run, and its manifest is one."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from graftline.core.artifacts import BucketArtifactsConfig
from graftline.core.paths import Paths
from graftline.pipeline.manifests import CeleryConfig, Manifest, load_manifest
from orchestration.build import build_definitions
from tests.pages import CHECKOUT, codes, fences, models_in, section, table

PAGE = "docs/cluster.md"
COMMANDS = [
    line for fence in fences() if fence.page == PAGE and fence.language == "sh" for line in fence.body.splitlines()
]


def test_every_executor_of_a_manifest_is_on_the_page() -> None:
    rows = table(section(PAGE, "## Choose an executor"))
    kinds = [member.model_fields["kind"].default for member in models_in(Manifest.model_fields["executor"].annotation)]
    assert [codes(row[0])[0] for row in rows] == kinds


def test_the_manifest_of_the_page_is_one(small_checkout: Any) -> None:
    [shown] = [fence.body for fence in fences() if fence.page == PAGE and fence.language == "yaml"]
    path = small_checkout.root / "configs" / "manifests" / "prod.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text("utf-8")), **yaml.safe_load(shown)}), "utf-8")
    manifest = load_manifest(Paths(small_checkout.root), "prod")
    assert manifest.executor == CeleryConfig()
    assert manifest.artifacts == BucketArtifactsConfig(url="GRAFTLINE_ARTIFACTS_URL")


def test_the_pools_of_the_page_are_those_of_the_assets() -> None:
    graph = build_definitions().resolve_asset_graph()
    pools: dict[str, set[str]] = {}
    for key in graph.executable_asset_keys:
        for pool in graph.get(key).pools or ():
            pools.setdefault(pool, set()).add(key.to_user_string())
    shown = {codes(row[0])[0]: set(codes(row[1])) for row in table(section(PAGE, "## Limit what is scarce"))}
    assert shown.keys() == pools.keys()
    assert {pool: steps for pool, steps in shown.items() if steps} == {
        pool: steps for pool, steps in pools.items() if pool != "duckdb"
    }


def test_the_numbers_of_the_page_are_the_defaults() -> None:
    text = " ".join(section(PAGE, "## What is tried again, and by whom").split())
    config = CeleryConfig()
    assert f"`executor.visibility_s`, {config.visibility_s} seconds" in text
    assert f"`executor.max_tries`, {config.max_tries}," in text


def test_the_instance_of_the_page_is_the_one_that_is_shipped(tmp_path: Path) -> None:
    assert [line for line in COMMANDS if line.startswith("cp ")] == [
        'cp deploy/dagster/dagster.postgres.yaml "$DAGSTER_HOME/dagster.yaml"'
    ]
    shipped = yaml.safe_load((CHECKOUT / "deploy" / "dagster" / "dagster.postgres.yaml").read_text("utf-8"))
    assert shipped["storage"] == {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
    assert shipped["concurrency"]["pools"]["default_limit"] == 1
    assert shipped["run_monitoring"]["free_slots_after_run_end_seconds"] == 30


@pytest.mark.long  # names and options are compared in tests/test_docs_commands.py
def test_the_worker_of_the_page_is_there_with_its_options(small_checkout: Any) -> None:
    [line] = [line for line in COMMANDS if " worker " in line]
    program, *arguments = shlex.split(line)
    assert arguments[:2] == ["-A", "orchestration.celery_worker"]
    path = small_checkout.root / "configs" / "manifests" / "prod.yaml"
    path.write_text(path.read_text("utf-8").replace("kind: in_process", "kind: celery"), "utf-8")
    environment = {
        **os.environ,
        "GRAFTLINE_ROOT": str(small_checkout.root),
        "GRAFTLINE_MANIFEST": "prod",
        "GRAFTLINE_CELERY_URL": "redis://127.0.0.1:1/0",
    }
    command = [str(CHECKOUT / program), *arguments, "--help"]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=240)
    assert (done.returncode, "--concurrency" in done.stdout) == (0, True), done.stderr


@pytest.mark.long  # names and options are compared in tests/test_docs_commands.py
def test_limits_of_pools_are_set_by_the_commands_of_the_page(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "dagster.yaml", tmp_path)
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    lines = [line for line in COMMANDS if " instance concurrency " in line]
    assert len(lines) == 2
    for line in lines:
        command = [str(Path(sys.executable).with_name("dagster")), *shlex.split(line)[1:]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
    assert "sandbox" in done.stdout
    assert "4" in done.stdout
