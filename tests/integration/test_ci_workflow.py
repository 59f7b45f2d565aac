"""`.github/workflows/lineage.yml`: its steps, one after the other as its runner takes them, over a small root."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.config import parse_yaml

WORKFLOW = ".github/workflows/lineage.yml"


@pytest.fixture(scope="module")
def steps(request: pytest.FixtureRequest) -> list[Mapping[str, Any]]:
    text = (request.config.rootpath / WORKFLOW).read_text("utf-8")
    found: list[Mapping[str, Any]] = parse_yaml(text, WORKFLOW)["jobs"]["lineage"]["steps"]
    return found


def step(steps: list[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(one for one in steps if one.get("name") == name)


def test_what_the_cache_keeps_is_what_runs_make(steps: list[Mapping[str, Any]], checkout: Path) -> None:
    cached = step(steps, "Restore artifacts")["with"]["path"].split()
    removed = re.search(r"cd data && rm -rf (.*)", (checkout / "Makefile").read_text("utf-8"))
    assert removed is not None
    # what is trained, served or uploaded is made by other jobs
    others = {"training", "retrieval", "state", "harbor"}
    assert {path.removeprefix("data/") for path in cached} == {*removed[1].rstrip(".").split()} - others


def test_its_files_are_where_its_key_looks_for_them(steps: list[Mapping[str, Any]], checkout: Path) -> None:
    hashed = re.search(r"hashFiles\((.*?)\)", step(steps, "Restore artifacts")["with"]["key"])
    assert hashed is not None
    patterns = [pattern.strip(" '") for pattern in hashed[1].split(",")]
    assert [pattern for pattern in patterns if not any(checkout.glob(pattern))] == []


@pytest.mark.long
def test_its_steps_make_everything_and_with_what_was_kept_nothing_again(
    steps: list[Mapping[str, Any]],
    small_checkout: Any,
    varied_pairs: list[dict[str, Any]],
    checkout: Path,
    tmp_path: Path,
) -> None:
    small_checkout.write(varied_pairs)
    root: Path = small_checkout.root
    (tmp_path / "home").mkdir()
    environment = {**os.environ, "GRAFTLINE_ROOT": str(root), "DAGSTER_HOME": str(tmp_path / "home")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"

    def run(name: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step(steps, name)["run"]],
            cwd=checkout, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout + done.stderr

    run("Check configuration and definitions")
    first = run("Materialize")
    assert "made: " in first
    assert (root / "reports" / "datasets").is_dir()
    cached = step(steps, "Restore artifacts")["with"]["path"].split()
    assert [path for path in cached if not (root / path).exists()] == []
    # another runner, which has the cache and nothing else
    (tmp_path / "other").mkdir()
    environment["DAGSTER_HOME"] = str(tmp_path / "other")
    assert "made: " not in run("Materialize")
