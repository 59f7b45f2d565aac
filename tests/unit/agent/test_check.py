"""Tests that a user names, run on the code of a copy."""

from pathlib import Path

import pytest

from graftline.agent.check import Checker
from graftline.sandbox.jail.open import JailConfig


@pytest.mark.parametrize("package", ["click", "src/click"])
def test_python_finds_the_code_of_the_copy_before_what_is_installed(tmp_path: Path, package: str) -> None:
    for name, text in {
        f"{package}/__init__.py": "VALUE = 1\n",
        "tests/t.py": "import click\nprint(click.VALUE)\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    checker = Checker(tmp_path, "cd tests && python t.py", JailConfig(kind="subprocess", required_level="none"))
    try:
        outcomes = [checker.run(texts) for texts in ({}, {f"{package}/__init__.py": b"VALUE = 2\n"})]
    finally:
        checker.close()
    assert [(outcome.passed, outcome.output) for outcome in outcomes] == [(True, "1"), (True, "2")]


def test_a_module_that_the_jail_has_not_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import nosuchmodule\n", "utf-8")
    checker = Checker(tmp_path, "python t.py", JailConfig(kind="subprocess", required_level="none"))
    try:
        outcome = checker.run({})
    finally:
        checker.close()
    assert (outcome.passed, "install there what the tests need" in outcome.output) == (False, True)
