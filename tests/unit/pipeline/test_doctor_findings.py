"""What the doctor finds on this machine, and on poorer ones."""

from pathlib import Path

import pytest

from graftline.astgrep.binding import tool_version
from graftline.pipeline.doctor import Finding, examine


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder of the search path, empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, script: str) -> None:
    """Put a program on the search path that does what `script` says."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    (folder / name).chmod(0o755)


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def found(name: str, environment: dict[str, str] | None = None) -> Finding:
    return by_name(examine(environment or {}))[name]


@pytest.fixture(scope="module")
def here() -> list[Finding]:
    """What is found on this machine."""
    return examine({})


@pytest.fixture(scope="module")
def without_tools(tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    """What is found where the search path holds nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
        return examine({})


def test_what_the_embedded_default_needs_is_here(here: list[Finding]) -> None:
    needed = [(finding.name, finding.is_there) for finding in here if finding.is_needed]
    assert needed == [("python", True), ("ast-grep", True), ("jail", True)]


def test_needed_abilities_come_first_and_each_name_once(here: list[Finding]) -> None:
    assert [finding.is_needed for finding in here] == sorted((one.is_needed for one in here), reverse=True)
    assert len({finding.name for finding in here}) == len(here)


def test_every_ability_says_what_was_found_and_a_missing_one_how_to_get_it(without_tools: list[Finding]) -> None:
    assert [finding.name for finding in without_tools if not finding.detail] == []
    assert [finding.name for finding in without_tools if not finding.is_there and not finding.remedy] == []


def test_the_rewriter_beside_the_interpreter_is_the_one_that_records_name(without_tools: list[Finding]) -> None:
    rewriter = by_name(without_tools)["ast-grep"]
    assert (rewriter.is_there, rewriter.detail) == (True, f"ast-grep {tool_version()}")


@pytest.mark.parametrize(
    ("name", "detail", "remedy"),
    [
        ("redis-server", "not installed", "apt-get install redis-server"),
        ("docker", "not installed", "install Docker and join its group, or set DOCKER_HOST"),
        ("gpu", "no nvidia-smi", "needed only to serve or train models here; the embedded default uses none"),
    ],
)
def test_a_tool_that_is_not_installed_is_told_with_its_remedy(
    without_tools: list[Finding], name: str, detail: str, remedy: str
) -> None:
    assert by_name(without_tools)[name] == Finding(name, False, detail, False, remedy)


@pytest.mark.parametrize(
    ("name", "script", "is_there", "detail"),
    [
        ("redis-server", "echo Redis 7; echo more", True, "Redis 7"),
        ("redis-server", "exit 3", False, "does not start"),
        ("nvidia-smi", "echo 'A, 1 MiB'; echo 'B, 2 MiB'", True, "A, 1 MiB; B, 2 MiB"),
        ("nvidia-smi", "exit 9", False, "nvidia-smi finds none"),
    ],
)
def test_a_tool_is_found_by_trying_it(tools: Path, name: str, script: str, is_there: bool, detail: str) -> None:
    program(tools, name, script)
    finding = found("gpu" if name == "nvidia-smi" else name)
    assert (finding.is_there, finding.detail) == (is_there, detail)


def test_vllm_is_looked_for_in_the_environment_of_its_own(tmp_path: Path) -> None:
    missing = found("vllm")
    assert (missing.is_there, missing.detail) == (False, "no environment of its own is named by GRAFTLINE_VLLM_ENV")
    assert missing.remedy == (
        "`python -m venv ENV` and `ENV/bin/pip install '.[vllm]'` on a machine with a GPU, and GRAFTLINE_VLLM_ENV=ENV; see"
        " docs/actors.md"
    )
    assert found("vllm", {"GRAFTLINE_VLLM_ENV": str(tmp_path)}).is_there is False
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "vllm", "exit 0")
    assert found("vllm", {"GRAFTLINE_VLLM_ENV": str(tmp_path)}).is_there is True


def test_docker_without_a_server_is_not_there(tools: Path) -> None:
    program(tools, "docker", "exit 1")
    assert found("docker").detail == "no server answers at the local socket"
    assert found("docker", {"DOCKER_HOST": "tcp://box:1"}).detail == "no server answers at tcp://box:1"
    program(tools, "docker", "echo 27.1")
    assert found("docker").detail == "27.1"
