"""Workspaces, actions and tests put together: what is written, what is said, what stands in the log."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox import JailConfig, SandboxRunner, SandboxSettings, Verdict, WarmSandboxConfig
from graftline.sandbox.base import Limits
from graftline.sandbox.runner import LogsConfig, apply_action, cleanup, prepare_workspace, run_tests

SUM = {"pattern": "sum([$X for $V in $L])", "rewrite": "sum($X for $V in $L)"}
FILES = {
    "m.py": "def total(rows):\n    return sum([row for row in rows])\n",
    "lib/n.py": "def half(rows):\n    return sum([row for row in rows]) / 2\n",
    "lib/a.js": "var a = 1;\n",
    "README.md": "sum([x for x in y])\n",
}
TESTS = {
    "kind": "pytest",
    "files": {"test_m.py": "from m import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"},
    "expected": ["test_m.py::test_total"],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def runner(root: Path) -> Iterator[SandboxRunner]:
    with SandboxRunner(SandboxSettings(tests=JailConfig(required_level="confined")), root) as opened:
        yield opened


def lines_of(root: Path, task: str) -> list[dict[str, Any]]:
    [path] = (root / "logs" / "sandbox").glob(f"{task}*.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def held(workspace: Path) -> dict[str, str]:
    paths = [path for path in workspace.rglob("*") if path.is_file()]
    return {path.relative_to(workspace).as_posix(): path.read_text("utf-8") for path in paths}


def test_an_action_goes_to_every_file_of_its_language(runner: SandboxRunner) -> None:
    workspace = runner.prepare_workspace("every", FILES)
    result = runner.apply_action(workspace, SUM)
    assert (result.verdict, result.changed_files, result.after) == (Verdict.OK, ("lib/n.py", "m.py"), None)
    assert held(workspace) == {
        **FILES,
        "m.py": "def total(rows):\n    return sum(row for row in rows)\n",
        "lib/n.py": "def half(rows):\n    return sum(row for row in rows) / 2\n",
    }
    assert result.diff.count("@@ -1,2 +1,2 @@") == 2
    runner.cleanup(workspace)


def test_of_one_file_the_new_text_is_the_output(runner: SandboxRunner) -> None:
    workspace = runner.prepare_workspace("one", FILES)
    result = runner.apply_action(workspace, SUM, only=["m.py"])
    assert (result.changed_files, result.exit_code, result.stderr) == (("m.py",), 0, "")
    assert result.stdout == result.after == held(workspace)["m.py"]
    assert result.usage is not None
    assert (result.usage.cpu_s >= 0, result.usage.wall_s > 0, result.usage.peak_memory_mb > 1) == (True, True, True)
    assert result.tools == {"ast-grep": "0.51.1"}
    runner.cleanup(workspace)


def test_the_text_of_a_rule_goes_to_the_files_of_its_language(runner: SandboxRunner) -> None:
    workspace = runner.prepare_workspace("rule", FILES)
    rule = "language: javascript\nrule:\n  pattern: var $A = $B\nfix: let $A = $B\n"
    result = runner.apply_action(workspace, rule)
    assert (result.changed_files, held(workspace)["lib/a.js"]) == (("lib/a.js",), "let a = 1\n")
    runner.cleanup(workspace)


def test_where_nothing_matches_nothing_is_written(runner: SandboxRunner) -> None:
    workspace = runner.prepare_workspace("nothing", FILES)
    result = runner.apply_action(workspace, {"pattern": "no_such($A)", "rewrite": "x"})
    assert (result.verdict, result.exit_code, result.diff, held(workspace)) == (Verdict.NO_MATCH, 1, "", FILES)
    runner.cleanup(workspace)


def test_an_action_that_fails_on_one_file_changes_none(tmp_path: Path) -> None:
    # the second file is nested too deep for what the pattern asks of it
    files = {"a.py": "x = 1\n", "b.py": "x = " + "-" * 16_000 + "1\n"}
    action = {"rule": {"any": [{"pattern": "x = 1"}, {"pattern": "x = " + "-" * 16_000 + "1"}]}, "fix": "y"}
    with SandboxRunner(SandboxSettings(), tmp_path) as runner:
        workspace = runner.prepare_workspace("deep", files)
        result = runner.apply_action(workspace, action)
        assert (result.verdict, result.changed_files, held(workspace)) == (Verdict.CRASH, (), files)


def test_an_action_that_is_refused_says_why(runner: SandboxRunner) -> None:
    workspace = runner.prepare_workspace("refused", {"m.py": "f(1)\n"})
    result = runner.apply_action(workspace, {"pattern": "f($A)", "rewrite": "g($B)"})
    assert (result.verdict, result.exit_code) == (Verdict.ACTION_ERROR, 8)
    assert result.error == "m.py: Undefined meta var `B` used in `fix`."
    runner.cleanup(workspace)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"pattern": "f", "rewrites": "g"}, "action: pattern.rewrite: Field required"),
        ({}, "action: pattern.pattern: Field required"),
        ("rule: [", "action: "),
        ({"pattern": "f", "rewrite": "g", "strictness": "loose"}, "action: pattern.strictness: "),
    ],
)
def test_what_is_no_action_is_refused_before_anything_is_applied(
    runner: SandboxRunner, action: Any, message: str
) -> None:
    workspace = runner.prepare_workspace("form", {"m.py": "f(1)\n"})
    with pytest.raises(DataError) as raised:
        runner.apply_action(workspace, action)
    assert str(raised.value).startswith(message)
    runner.cleanup(workspace)


@pytest.mark.parametrize(
    ("files", "only", "message"),
    [
        (
            {"README.md": "x\n"},
            (),
            "the workspace has no file of a language that is known; names have to end in one of ",
        ),
        ({"m.py": "x\n"}, ("n.py",), "only: the workspace has no file 'n.py'; it has m.py"),
        ({"m.py": b"\xff\n"}, (), "m.py: byte 0 is not UTF-8; actions go to texts only"),
    ],
)
def test_a_workspace_without_a_file_for_the_action_is_refused(
    runner: SandboxRunner, files: dict[str, Any], only: tuple[str, ...], message: str
) -> None:
    workspace = runner.prepare_workspace("without", files)
    with pytest.raises(DataError) as raised:
        runner.apply_action(workspace, {"pattern": "x", "rewrite": "y"}, only)
    assert str(raised.value).startswith(message)
    runner.cleanup(workspace)


def test_a_workspace_without_a_file_of_the_language_of_the_rule_is_refused(runner: SandboxRunner) -> None:
    workspace = runner.prepare_workspace("language", {"m.py": "x\n"})
    with pytest.raises(DataError, match=r"^the workspace has no file of language java; names have to end in one of "):
        runner.apply_action(workspace, "language: java\nrule: {pattern: x}\nfix: y\n")
    runner.cleanup(workspace)


def test_tests_run_on_the_files_as_they_are_now_and_leave_them_alone(runner: SandboxRunner) -> None:
    workspace = runner.prepare_workspace("tests", FILES)
    runner.apply_action(workspace, {"pattern": "return sum($A)", "rewrite": "return max($A)"}, only=["m.py"])
    before = held(workspace)
    assert runner.run_tests(workspace, TESTS).passed is False
    assert held(workspace) == before
    runner.cleanup(workspace)


def test_every_call_has_a_line_in_the_log_of_its_task(runner: SandboxRunner, root: Path) -> None:
    workspace = runner.prepare_workspace("logged", FILES)
    runner.apply_action(workspace, SUM, only=["m.py"])
    runner.run_tests(workspace, TESTS)
    action, tests = lines_of(root, "logged")
    assert [(line["kind"], line["verdict"], line["task_id"]) for line in (action, tests)] == [
        ("action", "ok", "logged"),
        ("tests", "ok", "logged"),
    ]
    assert (action["asked"], action["changed_files"], action["isolation"]["level"]) == (
        {**SUM, "selector": None, "strictness": None} if "selector" in action["asked"] else SUM,
        ["m.py"],
        "compute",
    )
    assert (tests["passed"], [test["outcome"] for test in tests["tests"]]) == (True, ["passed"])
    assert action["limits"] == Limits().model_dump()
    runner.cleanup(workspace)


def test_secrets_do_not_reach_the_log(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SOME_API_KEY=sk-very-secret-value\n", "utf-8")
    with SandboxRunner(SandboxSettings(), tmp_path) as runner:
        workspace = runner.prepare_workspace("secret", {"m.py": "key = 'sk-very-secret-value'\n"})
        runner.apply_action(workspace, {"pattern": "key = $A", "rewrite": "token = $A"})
    [path] = (tmp_path / "logs" / "sandbox").glob("*.jsonl")
    assert ("sk-very-secret-value" in path.read_text("utf-8"), "[secret]" in path.read_text("utf-8")) == (False, True)


def test_a_sandbox_that_cannot_be_had_is_an_error_with_a_line_in_the_log(tmp_path: Path) -> None:
    settings = SandboxSettings(actions=WarmSandboxConfig(required_level="full"))
    with SandboxRunner(settings, tmp_path) as runner:
        workspace = runner.prepare_workspace("none", {"m.py": "f(1)\n"})
        with pytest.raises(SandboxError, match="'full' is required"):
            runner.apply_action(workspace, SUM)
    [line] = lines_of(tmp_path, "none")
    assert line["verdict"] == "runner_error"
    assert "'full' is required" in line["error"]


def test_logs_that_grow_are_put_aside(tmp_path: Path) -> None:
    settings = SandboxSettings(logs=LogsConfig(max_mb=1, kept=1))
    with SandboxRunner(settings, tmp_path) as runner:
        workspace = runner.prepare_workspace("long", {"m.py": "".join(f"f({n})\n" for n in range(2000))})
        for number in range(20):
            runner.apply_action(workspace, {"pattern": f"f{number}($A)" if number else "f($A)", "rewrite": "f1($A)"})
    sizes = [path.stat().st_size for path in (tmp_path / "logs" / "sandbox").glob("long*.jsonl*")]
    assert max(sizes) <= 1 << 20


def test_the_four_calls_use_the_root_around_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", "")
    monkeypatch.chdir(tmp_path)
    workspace = prepare_workspace("task/1", {"m.py": FILES["m.py"]})
    assert workspace.parent == tmp_path / ".sandbox"
    assert apply_action(workspace, SUM).changed_files == ("m.py",)
    assert run_tests(workspace, TESTS).passed is True
    cleanup(workspace)
    assert not workspace.exists()
