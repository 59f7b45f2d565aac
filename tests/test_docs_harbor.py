"""What the pages say of Harbor: examples run on a service, commands in their order, and what is named is what there is."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from graftline.astgrep.action import PatternAction
from graftline.cli.main import main
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.harbor.calibration import Fault
from graftline.harbor.contract import OF_THE_AGENT, TRIED_AGAIN, FailureCause, HarborLimits, SuccessStatus
from graftline.harbor.executors.base import MemoryExecutorConfig
from graftline.harbor.service.serve import HarborSettings, serve_in_thread
from graftline.harbor.service.state import ServiceSettings
from graftline.rollouts.task import Task
from tests.pages import CHECKOUT, Fence, codes, fences, section, table

PAGE = "docs/harbor.md"
PYTHON = [fence for fence in fences() if fence.page == PAGE and fence.language == "python"]
KEY = "a-key-of-the-pages-alone"


def task(number: int) -> Task:
    gold = PatternAction(pattern="old($A)", rewrite="new($A)")
    return Task(
        id=f"mine:{number}", dataset="mine", language="python", instruction="Call new.", before=f"old({number})\n",
        target=f"new({number})\n", gold_action=gold, license="MIT", group="mine", origin="mine",
    )  # fmt: skip


def root_at(folder: Path) -> Path:
    """Write a root with the shipped deployments, the tasks of one of them, and the folder of the example."""
    for path in (*CHECKOUT.glob("configs/harbor/*.yaml"), *CHECKOUT.glob("configs/manifests/*.yaml")):
        copy = folder / path.relative_to(CHECKOUT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    tasks = folder / "data/tasks/python/test/tasks.jsonl"
    tasks.parent.mkdir(parents=True)
    tasks.write_text("".join(task(number).model_dump_json() + "\n" for number in range(5)), "utf-8")
    shutil.copytree(CHECKOUT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "target"))
    shown = [fence.body for fence in fences() if fence.page == PAGE and fence.language == "yaml"]
    for name, file in zip(("repositories", "doubling"), shown, strict=True):
        (folder / f"configs/harbor/{name}.yaml").write_text(file, "utf-8")
    (folder / "doubling").mkdir()
    (folder / "doubling" / "run_rollout.py").write_text("print(1)\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A service with boxes, and a folder to be in."""
    folder = tmp_path_factory.mktemp("boxes")
    secrets = Secrets([EnvironmentSecrets({"GRAFTLINE_HARBOR_KEY": KEY})])
    with serve_in_thread(HarborSettings(port=0), folder / "files", secrets) as (url, _):
        yield url, folder


@pytest.mark.parametrize("fence", PYTHON, ids=lambda fence: f"{fence.line}")
def test_every_example_runs_and_prints_what_is_shown(
    fence: Fence, boxes: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder = boxes
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GRAFTLINE_HARBOR_URL", url)
    monkeypatch.setenv("GRAFTLINE_HARBOR_KEY", KEY)
    exec(compile(fence.body, f"{fence.page}:{fence.line}", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == fence.output


@pytest.mark.parametrize("page", [PAGE, "README.md", "docs/cli.md"])
def test_the_commands_of_a_page_succeed_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_at(tmp_path)
    monkeypatch.chdir(root)
    for name in ("SYNTH_API_KEY", "SYNTH_BACKEND_URL", "GRAFTLINE_HARBOR_KEY"):
        monkeypatch.delenv(name, raising=False)
    settings = HarborSettings(port=0, executor=MemoryExecutorConfig())
    shown = [
        line.partition("#")[0].removeprefix("$ ")
        for fence in fences()
        if fence.page == page and fence.language in ("sh", "console", "bash")
        for line in fence.body.splitlines()
    ]
    commands = [line for line in shown if line.startswith("graftline env ")]
    # what is served until it is interrupted: tests/unit/cli/test_harbor_commands.py
    typed = [line for line in commands if not line.startswith("graftline env serve")]
    assert len(typed) >= 4
    with serve_in_thread(settings, root / "data" / "harbor" / "service", Secrets([])) as (url, _):
        for line in typed:
            result = CliRunner().invoke(main, shlex.split(line)[1:], env={"GRAFTLINE_HARBOR_URL": url})
            # rewards of the executor `memory` are made up, so that nothing is sound
            assert result.exit_code == int(" calibrate " in line), (line, result.output)


def test_causes_statuses_faults_and_limits_are_the_documented_ones() -> None:
    text = section(PAGE, "### What a reward means")
    statuses = next(row[1] for row in table(text) if codes(row[0]) == ["success_status"])
    assert codes(statuses) == list(SuccessStatus)
    causes = table(text[text.index("| cause |") - 1 :])
    assert [(codes(row[0])[0], row[2], row[3]) for row in causes] == [
        (cause, "yes" if cause in TRIED_AGAIN else "no", "yes" if cause in OF_THE_AGENT else "no")
        for cause in FailureCause
    ]
    assert sorted(code for row in table(section(PAGE, "## Calibrate")) for code in codes(row[0])) == sorted(
        Fault.__args__  # type: ignore[attr-defined]
    )
    limits = {codes(row[0])[0]: (row[2], row[3]) for row in table(section(PAGE, "## Limits and security"))}
    schema = HarborLimits.model_json_schema()["properties"]
    assert limits == {
        name: (str(one["default"]), f"{one['minimum']} to {one['maximum']}") for name, one in schema.items()
    }
    settings = [
        codes(row[0])[0].partition("=")[0]
        for row in table(section(PAGE, "## Where rollouts run").split("Settings are")[1])
    ]
    assert {name.partition(".")[2] for name in settings if name.startswith("service.")} <= set(
        ServiceSettings.model_fields
    )


def test_the_routes_are_the_documented_ones(tmp_path: Path) -> None:
    import httpx

    settings = HarborSettings(port=0, executor=MemoryExecutorConfig())
    with serve_in_thread(settings, tmp_path, Secrets([])) as (url, key):
        assert isinstance(key, SecretStr)
        paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    real = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    assert sorted(codes(row[0])[0] for row in table(section(PAGE, "## Routes"))) == sorted(real)
