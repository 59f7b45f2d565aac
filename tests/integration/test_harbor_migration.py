"""The scripts of `examples/engine_bench`, old way and new side by side, against a real service."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from graftline.core.errors import SandboxError
from graftline.harbor.executors.local import LocalExecutorConfig
from graftline.sandbox import JailConfig, open_jail
from tests.conftest import CHECKOUT
from tests.killed_service import KEY, KilledService

SCRIPTS = CHECKOUT / "examples" / "engine_bench"
SEEDS = "2"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KilledService]:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing: install Rust from https://rustup.rs")
    try:
        open_jail(JailConfig()).close()
    except SandboxError as error:
        pytest.skip(str(error))
    executor = LocalExecutorConfig(runs_own=True).model_dump(mode="json")
    with KilledService(tmp_path_factory.mktemp("harbor"), {"executor": executor}) as started:
        yield started


def said(service: KilledService, script: str, *arguments: str) -> str:
    """Return what a script prints, run as a user runs it."""
    environment = {**os.environ, "GRAFTLINE_HARBOR_KEY": KEY}
    command = [sys.executable, str(SCRIPTS / script), *arguments, "--backend-url", str(service.client.base_url)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def created(service: KilledService, script: str, *arguments: str) -> str:
    """Return the id of the deployment that a script says it made."""
    found = re.search(r"(?:Deployment created: |Deployment ID: )(\S+)", said(service, script, *arguments))
    assert found is not None
    deployment = found[1]
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        status = service.client.get(f"/api/harbor/deployments/{deployment}/status").json()["status"]
        if status in ("ready", "failed"):
            break
        time.sleep(0.05)
    assert status == "ready"
    return deployment


@pytest.mark.parametrize(("agent", "mean"), [("oracle", "1.0000"), pytest.param("nop", "0.", marks=pytest.mark.long)])
def test_the_old_way_and_the_new_one_come_to_the_same_reward(service: KilledService, agent: str, mean: str) -> None:
    new = created(service, "upload_harbor_deployment.py", "--name", f"new-{agent}", "--agent", agent)
    old = created(service, "create_deployment.py", "--name", f"old-{agent}", "--agent", agent)
    listed = said(service, "create_harbor_instances.py", "--deployment-id", new, "--count", SEEDS)
    assert f"Created {SEEDS} instances" in listed
    by_config = said(service, "run_harbor_eval_simple.py", "--deployment-id", new, "--seeds", SEEDS)
    by_url = said(service, "run_harbor_eval.py", "--deployment-id", old, "--seeds", SEEDS)
    assert f"Mean reward: {mean}" in by_config
    assert by_config.splitlines()[-1] == by_url.splitlines()[-1]


@pytest.mark.long
def test_the_optimization_runs_to_its_end(service: KilledService) -> None:
    deployment = created(service, "upload_harbor_deployment.py", "--name", "optimized", "--agent", "nop")
    said(service, "create_harbor_instances.py", "--deployment-id", deployment, "--count", "5")

    printed = said(service, "run_harbor_gepa.py", "--deployment-id", deployment)

    job_id = re.search(r"Job ID: (\S+)", printed)
    assert job_id is not None
    view = service.client.get(f"/api/prompt-learning/online/jobs/{job_id[1]}/results").json()
    assert (view["status"], view["error"]) == ("completed", None)
    # doing nothing earns the same by whatever prompt, so that none is better than the first
    assert (view["outcome"]["best"], len(view["outcome"]["prompts"])) == (0, 1)
    assert view["outcome"]["proposals"]["judged"] >= 1
    validation = view["outcome"]["prompts"][0]["validation"]
    assert sorted(validation) == ["3", "4"]
    assert f"Mean reward: {view['mean_reward']:.4f}" in printed
    assert all(reward > 0 for reward in validation.values())
