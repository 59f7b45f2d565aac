"""The command `dg` of Dagster in this checkout: it finds the definitions, checks them, makes an asset and serves the UI."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.kept_fleet import free_port

CHECKOUT = Path(__file__).resolve().parents[2]
DG = Path(sys.executable).with_name("dg")
pytestmark = pytest.mark.skipif(not DG.exists(), reason="the extra `dagster` is not installed")


@pytest.fixture
def environment(small_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path: Path) -> dict[str, str]:
    """What a shell has in which the definitions are those of a small root, and their instance is its own."""
    small_checkout.write(varied_pairs)
    (home := tmp_path / "dagster").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GRAFTLINE_", "PYTEST_"))}
    return {**kept, "GRAFTLINE_ROOT": str(small_checkout.root), "DAGSTER_HOME": str(home), "VIRTUAL_ENV": sys.prefix}


def dg(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run([DG, *words], cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_it_lists_the_definitions(environment: dict[str, str]) -> None:
    listed = json.loads(dg(environment, "list", "defs", "--json"))
    assert {"raw_release_pairs", "teacher_trajectories"} <= {asset["asset_key"] for asset in listed["assets"]}
    assert "lineage" in {job["name"] for job in listed["jobs"]}


@pytest.mark.long
def test_it_checks_the_definitions_and_launches_assets_and_jobs(environment: dict[str, str]) -> None:
    assert "All definitions loaded successfully" in dg(environment, "check", "defs")
    dg(environment, "launch", "--assets", "raw_release_pairs")
    assert (Path(environment["GRAFTLINE_ROOT"]) / "data/raw/release_pairs/source/_meta.json").is_file()


@pytest.fixture
def served(environment: dict[str, str]) -> Iterator[str]:
    """The address of the UI that `dg dev` serves."""
    port = free_port()
    process = subprocess.Popen(
        # a shell that runs it in the background would have it ignore interrupts
        [DG, "dev", "--host", "127.0.0.1", "--port", str(port)],
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        start_new_session=True,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.long
def test_it_serves_the_ui(served: str) -> None:
    while True:
        try:
            with urlopen(f"{served}/server_info", timeout=10) as answer:
                assert json.load(answer)["dagster_version"]
                return
        except OSError:
            time.sleep(0.5)
