"""The command in an environment without the extra `datasets`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WITHOUT = "import sys; sys.modules[{missing!r}] = None; from graftline.cli.main import main; main({arguments!r})"


def ran_without(missing: str, root: Path, *arguments: str) -> tuple[int, str]:
    program = WITHOUT.format(missing=missing, arguments=["--root", str(root), *arguments])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("missing", "command"),
    [("numpy", "run"), ("rensa", "run"), ("orjson", "run"), ("tenacity", "check")],
)
def test_a_command_names_the_library_that_is_missing_and_the_extra_that_brings_it(
    missing: str, command: str, small_checkout: Any
) -> None:
    expected = f"error: {missing} is missing, but {command} needs it; .venv/bin/pip install -c constraints.txt -e '.[datasets]'\n"
    assert ran_without(missing, small_checkout.root, command) == (1, expected)


@pytest.mark.parametrize("missing", ["anyio", "mcp_types", "uvicorn"])
def test_the_server_for_agents_names_its_own_extra(missing: str, small_checkout: Any) -> None:
    expected = f"error: {missing} is missing, but mcp needs it; .venv/bin/pip install -c constraints.txt -e '.[mcp]'\n"
    assert ran_without(missing, small_checkout.root, "mcp") == (1, expected)


@pytest.mark.parametrize("command", ["doctor", "config", "status"])
def test_what_needs_no_dataset_runs_without_the_extra(command: str, small_checkout: Any) -> None:
    assert ran_without("numpy", small_checkout.root, command) == (0, "")


def test_rules_are_induced_without_the_extra(small_checkout: Any, tmp_path: Path) -> None:
    sides = [tmp_path / name for name in ("before.py", "after.py")]
    for path, text in zip(sides, ("get(1)\n", "fetch(1)\n"), strict=True):
        path.write_text(text, "utf-8")
    out = ("--output", str(tmp_path / "rules.yml"), "--json")
    assert ran_without("numpy", small_checkout.root, "learn", *map(str, sides), *out) == (0, "")
