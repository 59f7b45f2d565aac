"""The scripts of `examples/engine_bench`: they load, and stage what the service is to get."""

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import Execution
from graftline.harbor.executors.local import LocalExecutorConfig
from graftline.harbor.in_box.agents import NAMES
from graftline.harbor.service.serve import HarborSettings, serve_in_thread
from graftline.prompts.service_optimizer import ServiceOptimizer
from tests.harbor_parts import KEY, service, until
from tests.jails import has_user_namespaces
from tests.rollout_specs import has_cargo

README = "examples/engine_bench/README.md"
SCRIPTS = (
    "create_deployment",
    "create_harbor_instances",
    "localapi_engine_bench",
    "run_harbor_eval",
    "run_harbor_eval_simple",
    "run_harbor_gepa",
    "upload_harbor_deployment",
)


def loaded(folder: Path, name: str) -> ModuleType:
    """Return a script as a module; nothing of it is run."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the scripts, from which they import each other."""
    folder = checkout / "examples" / "engine_bench"
    monkeypatch.syspath_prepend(str(folder))
    for name in ("context", "localapi_engine_bench", "results"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_loads(example: Path, name: str) -> None:
    assert callable(loaded(example, name).main)


@pytest.mark.parametrize("agent", NAMES)
def test_the_contexts_hold_five_cards(example: Path, tmp_path: Path, agent: str) -> None:
    staged = loaded(example, "context").stage(tmp_path, agent)
    assert [(seed.seed, seed.task_id) for seed in staged.seeds] == [
        (0, "df-001-emberfox"),
        (1, "df-002-tidecrab"),
        (2, "df-003-mosswyrm"),
        (3, "df-004-voltmoth"),
        (4, "df-005-stonecub"),
    ]
    assert (staged.context / "common" / "run_rollout.py").is_file()
    assert not list(staged.context.rglob("*_eval.rs"))
    assert staged.verifier.entrypoint.endswith("--answer solution") == (agent == "oracle")


def test_the_old_way_packs_the_same_files(example: Path, tmp_path: Path) -> None:
    module = loaded(example, "create_deployment")
    (tmp_path / "a").write_text("x")
    assert module.packed(tmp_path).startswith("H4sI")


def type_commands_of_readme(checkout: Path, section: str, *changes: tuple[str, str]) -> None:
    """Do what a section says to type at a shell in the present folder, but for what serves until it is interrupted."""
    text = (checkout / README).read_text("utf-8").split(f"## {section}\n")[1].partition("\n## ")[0]
    blocks = re.findall(r"```(?:ba)?sh\n(.*?)```", text, re.DOTALL)
    script = "".join(block for block in blocks if "graftline env serve" not in block)
    for before, after in changes:
        assert before in script
        script = script.replace(before, after)
    type_commands(script)


def type_commands(script: str) -> None:
    for line in script.splitlines():
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            words = ["bash", "-c", f'printf %s "{value}"']
            os.environ[name] = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        else:
            program, path, *arguments = shlex.split(line)
            assert program == "python"
            sys.argv = [path, *arguments]
            runpy.run_path(path, run_name="__main__")


@pytest.fixture
def root(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples in it, in which commands are typed."""
    (tmp_path / "examples").symlink_to(example.parent)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv("GRAFTLINE_HARBOR_KEY", KEY)
    return tmp_path


@pytest.fixture
def served(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A service with boxes that may run what they build; scripts find it by the environment."""
    if not has_cargo or not has_user_namespaces():
        pytest.skip("this machine has no cargo, or gives no user namespaces")
    settings = HarborSettings(port=0, executor=LocalExecutorConfig(runs_own=True))
    secrets = Secrets([EnvironmentSecrets({"GRAFTLINE_HARBOR_KEY": KEY})])
    folder = root / "data" / "harbor" / "service"
    with (
        serve_in_thread(settings, folder, secrets, optimizer=ServiceOptimizer(secrets)) as (url, _),
        httpx.Client(base_url=url, headers={"X-API-Key": KEY}) as client,
    ):
        (folder / "api_key").write_text(KEY)
        monkeypatch.setenv("GRAFTLINE_HARBOR_URL", url)
        yield client


EXAMPLES = "python examples/engine_bench/"


def test_the_readme_followed_to_the_letter_earns_the_ceiling_and_so_does_the_old_way(
    checkout: Path, served: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    # one card of the five, for each is built anew
    type_commands_of_readme(checkout, "Without an agent", ("--seeds 5", "--seeds 1"))
    assert capsys.readouterr().out.splitlines()[-1] == "Mean reward: 1.0000"
    type_commands(f"{EXAMPLES}create_deployment.py --name old --agent oracle --wait")
    old = capsys.readouterr().out
    type_commands(f"{EXAMPLES}run_harbor_eval.py --deployment-id {old.split()[2]} --seeds 1")
    assert capsys.readouterr().out.splitlines()[-1] == "Mean reward: 1.0000"


@pytest.mark.long
def test_the_optimization_runs_to_its_end(served: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    type_commands(
        f"{EXAMPLES}upload_harbor_deployment.py --name optimized --agent nop\n"
        f"{EXAMPLES}create_harbor_instances.py --deployment-id optimized --count 5"
    )
    until(served, "/api/harbor/deployments/optimized", lambda view: view["status"] == "ready")
    type_commands(f"{EXAMPLES}run_harbor_gepa.py --deployment-id optimized")
    printed = capsys.readouterr().out
    job_id = printed.partition("Job ID: ")[2].split()[0]
    view = served.get(f"/api/prompt-learning/online/jobs/{job_id}/results").json()
    assert (view["status"], view["error"]) == ("completed", None)
    # doing nothing earns the same by whatever prompt, so that none is better than the first
    assert (view["outcome"]["best"], len(view["outcome"]["prompts"])) == (0, 1)
    assert view["outcome"]["proposals"]["judged"] >= 1
    validation = view["outcome"]["prompts"][0]["validation"]
    assert sorted(validation) == ["3", "4"]
    assert f"Mean reward: {view['mean_reward']:.4f}" in printed
    assert all(reward > 0 for reward in validation.values())


def test_where_no_seed_has_a_reward_the_scripts_say_why_and_end_with_1(
    checkout: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = Execution(SuccessStatus.APPLY_FAILED, None, FailureCause.UNCLASSIFIED, "the agent codex cannot be started")
    with service(f"sqlite:///{root / 'harbor.sqlite'}", lambda box: absent) as client:
        monkeypatch.setenv("GRAFTLINE_HARBOR_URL", str(client.base_url))
        with pytest.raises(SystemExit) as end:
            type_commands_of_readme(checkout, "With an agent")
    assert end.value.code == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "N/A",
        "   5 of 5 seeds without a reward: unclassified: the agent codex cannot be started",
    ]
