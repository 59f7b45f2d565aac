"""The commands below `graftline sandbox`: what they print, what they change, what they end with."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from graftline.sandbox.probe import JAILS

SPEC = """
kind: pytest
files:
  test_m.py: |
    from m import total

    def test_total():
        assert total([1, 2]) == 3
expected: ["test_m.py::test_total"]
"""
GOOD = "def total(rows):\n    return sum([row for row in rows])\n"
ACTION = ("--pattern", "sum([$X for $V in $L])", "--rewrite", "sum($X for $V in $L)")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "root"
    (folder / "configs" / "manifests").mkdir(parents=True)
    (folder / "code").mkdir()
    (folder / "code" / "m.py").write_text(GOOD, "utf-8")
    (folder / "spec.yaml").write_text(SPEC, "utf-8")
    monkeypatch.chdir(folder)
    return folder


def run(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--root", str(root), "sandbox", *arguments])


def configured(root: Path, text: str) -> None:
    (root / "configs" / "sandbox.yaml").write_text(text, "utf-8")


def test_apply_shows_the_difference_and_changes_nothing(root: Path) -> None:
    result = run(root, "apply", "code/m.py", *ACTION)
    assert (result.exit_code, result.stderr) == (0, "ok\n")
    assert "-    return sum([row for row in rows])\n+    return sum(row for row in rows)\n" in result.stdout
    assert (root / "code" / "m.py").read_text("utf-8") == GOOD


def test_apply_writes_where_it_is_told_to(root: Path) -> None:
    assert run(root, "apply", "code/m.py", *ACTION, "--write").exit_code == 0
    assert (root / "code" / "m.py").read_text("utf-8") == "def total(rows):\n    return sum(row for row in rows)\n"


def test_apply_says_all_there_is_as_json(root: Path) -> None:
    output = json.loads(run(root, "apply", "code/m.py", *ACTION, "--json").stdout)
    assert (output["verdict"], output["changed_files"], output["exit_code"]) == ("ok", ["code/m.py"], 0)
    assert (output["isolation"]["level"], output["tools"]) == ("compute", {"ast-grep": "0.51.1"})


def test_apply_takes_the_file_of_a_rule(root: Path) -> None:
    (root / "rule.yml").write_text("language: python\nrule:\n  pattern: sum($A)\nfix: max($A)\n", "utf-8")
    assert "+    return max([row for row in rows])" in run(root, "apply", "code/m.py", "--rule", "rule.yml").stdout


def test_apply_ends_with_1_where_the_action_is_refused(root: Path) -> None:
    result = run(root, "apply", "code/m.py", "--pattern", "sum($A)", "--rewrite", "max($B)")
    assert (result.exit_code, result.stderr) == (
        1,
        "action_error: code/m.py: Undefined meta var `B` used in `fix`.\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [("--pattern", "a"), ("--rewrite", "a"), (), ("--pattern", "a", "--rewrite", "b", "--rule", "spec.yaml")],
)
def test_apply_wants_one_form_of_an_action(root: Path, arguments: tuple[str, ...]) -> None:
    result = run(root, "apply", "code/m.py", *arguments)
    assert (result.exit_code, "give --pattern and --rewrite, or --rule" in result.stderr) == (2, True)


def test_test_ends_with_0_where_the_tests_pass(root: Path) -> None:
    result = run(root, "test", "spec.yaml", "code")
    assert (result.exit_code, "passed (ok)" in result.stdout) == (0, True)


def test_test_ends_with_1_where_they_do_not(root: Path) -> None:
    (root / "code" / "m.py").write_text("def total(rows):\n    return 0\n", "utf-8")
    result = run(root, "test", "spec.yaml", "code")
    assert (result.exit_code, "failed (ok)" in result.stdout, "assert 0 == 3" in result.stdout) == (1, True, True)


def test_test_says_all_there_is_as_json(root: Path) -> None:
    output = json.loads(run(root, "test", "spec.yaml", "code", "--json").stdout)
    assert (output["passed"], [test["outcome"] for test in output["tests"]]) == (True, ["passed"])
    assert set(output["tools"]) == {"python", "pytest"}


def test_a_level_that_cannot_be_had_is_refused_and_named(root: Path) -> None:
    configured(root, "tests: {kind: subprocess, required_level: namespaces}\n")
    result = run(root, "test", "spec.yaml", "code")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: subprocess jail: isolates nothing; take kind 'namespaces', or say required_level 'none';"
        " 'namespaces' is required\n"
    )


def test_a_jail_that_isolates_nothing_says_so_in_its_results(root: Path) -> None:
    configured(root, "tests: {kind: subprocess, required_level: none}\n")
    output = json.loads(run(root, "test", "spec.yaml", "code", "--json").stdout)
    assert (output["passed"], output["isolation"]["level"], output["isolation"]["implementation"]) == (
        True,
        "none",
        "subprocess",
    )


def test_probe_names_every_implementation_and_what_is_required(root: Path) -> None:
    result = run(root, "probe", "--json")
    output = json.loads(result.stdout)
    names = {finding["implementation"] for finding in output["found"] if finding["tier"] == "tests"}
    assert names - {"confined"} | {"namespaces"} == {*JAILS}
    assert [(tier["name"], tier["required"]) for tier in output["required"]] == [
        ("actions", "compute"),
        ("tests", "namespaces"),
    ]
    assert result.exit_code == (0 if all(tier["is_met"] for tier in output["required"]) else 1)


def test_probe_ends_with_1_where_more_is_required_than_there_is(root: Path) -> None:
    configured(root, "tests: {kind: subprocess, required_level: full}\n")
    result = run(root, "probe")
    assert (result.exit_code, "NO" in result.stdout) == (1, True)
