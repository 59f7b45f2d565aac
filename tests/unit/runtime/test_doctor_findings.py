"""What the doctor finds on this machine, and on poorer ones."""

from pathlib import Path

import pytest

from graftline.actions.astgrep import tool_version
from graftline.runtime.doctor import Finding, examine


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


def found(name: str, environment: dict[str, str] | None = None) -> Finding:
    return next(finding for finding in examine(environment or {}) if finding.name == name)


def test_what_the_embedded_default_needs_is_here() -> None:
    needed = [(finding.name, finding.is_there) for finding in examine({}) if finding.is_needed]
    assert needed == [("python", True), ("ast-grep", True), ("jail", True)]


def test_needed_abilities_come_first_and_each_name_once() -> None:
    findings = examine({})
    assert [finding.is_needed for finding in findings] == sorted((one.is_needed for one in findings), reverse=True)
    assert len({finding.name for finding in findings}) == len(findings)


def test_every_ability_says_what_was_found_and_a_missing_one_how_to_get_it(tools: Path) -> None:
    findings = examine({})
    assert [finding.name for finding in findings if not finding.detail] == []
    assert [finding.name for finding in findings if not finding.is_there and not finding.remedy] == []


def test_the_rewriter_found_is_the_one_that_records_name() -> None:
    assert found("ast-grep").detail == f"ast-grep {tool_version()}"


def test_a_tool_that_is_not_installed_is_told_with_its_remedy(tools: Path) -> None:
    assert found("redis-server") == Finding(
        "redis-server", False, "not installed", False, "apt-get install redis-server"
    )
    assert found("docker") == Finding(
        "docker", False, "not installed", False, "install Docker and join its group, or set DOCKER_HOST"
    )
    assert (found("gpu").is_there, found("gpu").detail) == (False, "no nvidia-smi")


def test_the_rewriter_beside_the_interpreter_needs_no_search_path(tools: Path) -> None:
    assert found("ast-grep").is_there is True


def test_a_tool_is_found_by_trying_it(tools: Path) -> None:
    program(tools, "redis-server", "echo Redis 7; echo more")
    assert found("redis-server") == Finding("redis-server", True, "Redis 7", False, "apt-get install redis-server")


def test_a_tool_that_does_not_start_is_not_there(tools: Path) -> None:
    program(tools, "redis-server", "exit 3")
    assert (found("redis-server").is_there, found("redis-server").detail) == (False, "does not start")


def test_docker_without_a_server_is_not_there(tools: Path) -> None:
    program(tools, "docker", "exit 1")
    assert found("docker").detail == "no server answers at the local socket"
    assert found("docker", {"DOCKER_HOST": "tcp://box:1"}).detail == "no server answers at tcp://box:1"
    program(tools, "docker", "echo 27.1")
    assert (found("docker").is_there, found("docker").detail) == (True, "27.1")


def test_several_gpus_are_told_on_one_line(tools: Path) -> None:
    program(tools, "nvidia-smi", "echo 'A, 1 MiB'; echo 'B, 2 MiB'")
    assert (found("gpu").is_there, found("gpu").detail) == (True, "A, 1 MiB; B, 2 MiB")


def test_a_gpu_tool_that_finds_none_finds_none(tools: Path) -> None:
    program(tools, "nvidia-smi", "exit 9")
    assert (found("gpu").is_there, found("gpu").detail) == (False, "nvidia-smi finds none")
