"""The extra `vllm` in an environment of its own: it resolves, brings nothing of Dagster, and its command starts servers."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
OF_OTHERS = {"dagster", "dbt-core", "duckdb", "tinker", "tinker-cookbook", "peft"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm") / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


def pip(environment: Path, *words: str) -> str:
    done = subprocess.run([environment / "bin" / "pip", "install", *words], capture_output=True, text=True)
    if "No matching distribution found for vllm" in done.stderr:
        pytest.skip("the package index of this machine has no vllm")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_it_resolves_and_brings_nothing_of_dagster_or_of_training(environment: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    pip(environment, "--quiet", "--dry-run", "--report", str(report), f"{CHECKOUT}[vllm]")
    names = {one["metadata"]["name"].lower() for one in json.loads(report.read_text("utf-8"))["install"]}
    assert {"graftline", "vllm", "torch"} <= names
    assert names & OF_OTHERS == set()


def test_its_command_starts_servers_without_any_other_extra(environment: Path, tmp_path: Path) -> None:
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    beside_vllm = [need for need in extras["vllm"] if not need.startswith("vllm")]
    pip(environment, "--quiet", str(CHECKOUT), *beside_vllm)
    (tmp_path / "configs").mkdir()
    here = {"name": "here", "url": "http://127.0.0.1:8001", "gpu_ids": [0]}
    fleet = {"engine": "vllm", "model": "Qwen/Qwen3-14B-AWQ", "served_name": "qwen3-14b", "actors": [here]}
    (tmp_path / "configs" / "vllm_actors.yaml").write_text(json.dumps({"fleets": {"gpu": fleet}}), "utf-8")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GRAFTLINE_")}
    done = subprocess.run(
        [environment / "bin" / "graftline", "model", "serve", "--fleet", "gpu"],
        env={
            **variables,
            "GRAFTLINE_ROOT": str(tmp_path),
            "GRAFTLINE_VLLM_ENV": str(environment),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    # as far as the program that is not installed here
    assert done.returncode == 1
    assert f"{environment / 'bin' / 'vllm'}" in done.stderr
    assert "Traceback" not in done.stderr
