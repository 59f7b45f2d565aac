"""Tasks that carry tests: a text that is not the target counts if they pass, and where they say nothing, nothing is known."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from pydantic import ValidationError

from graftline.astgrep.action import PatternAction
from graftline.codemod.equality import Level
from graftline.core.errors import SandboxError
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.reward import Reward
from graftline.rollouts.task import Task, invalid_reason
from graftline.rollouts.task_tests import TaskTests
from graftline.sandbox import JailConfig, MemorySandboxConfig, Sandbox, SandboxResult, TestResult, open_sandbox
from graftline.sandbox.base import Isolation, TestRequest, Usage, Verdict
from graftline.sandbox.jail import CaseLimits

BEFORE, TARGET = "def double(n):\n    return n + 1\n", "def double(n):\n    return n + n + n - n\n"
TESTS = TaskTests.model_validate(
    {
        "file": "twice.py",
        "spec": {
            "kind": "pytest",
            "files": {"test_twice.py": "from twice import double\n\ndef test_two():\n    assert double(2) == 4\n"},
            "expected": ["test_twice.py::test_two"],
        },
    }
)
CALLS = TaskTests.model_validate(
    {
        "file": "numbers_.py",
        "spec": {"kind": "calls", "module": "numbers_", "calls": [{"function": "double", "args": [2], "expected": 4}]},
    }
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    limits = CaseLimits(cpu_s=2, wall_s=120.0)
    with closing(open_sandbox(MemorySandboxConfig(), JailConfig(required_level="confined", limits=limits))) as opened:
        yield opened


def task_with(tests: TaskTests = CALLS, **changes: Any) -> Task:
    values = {"before": BEFORE, "target": TARGET, "license": "MIT", "group": "g", "origin": "o", **changes}
    return Task(id="d:1", dataset="d", language="python", instruction="Double it.", tests=tests, **values)


def rewrite(body: str) -> PatternAction:
    return PatternAction(pattern="return n + 1", rewrite=body)


class WithoutJail(Sandbox):
    """Applies actions as `sandbox` does, and answers every question about tests with `result`, or not at all."""

    def __init__(self, sandbox: Sandbox, result: TestResult | None = None) -> None:
        self._sandbox, self._result = sandbox, result

    @property
    def isolation(self) -> Isolation:
        return self._sandbox.isolation

    def apply_many(self, *question: Any) -> list[SandboxResult]:
        return self._sandbox.apply_many(*question)

    def run_tests(self, requests: Sequence[TestRequest]) -> list[TestResult]:
        assert self._result is not None, "tests were run"
        return [self._result] * len(requests)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("body", "level", "failed"),
    [
        ("return 2 * n", Level.TESTS, []),
        ("return n + 3", Level.NONE, ["0: double"]),
        ("return n + n + n - 1", Level.PARTIAL, ["0: double"]),
        ("while True: n += 1", Level.NONE, ["0: double"]),
        ("import os; os._exit(0)", Level.NONE, ["0: double"]),
    ],
)
def test_a_text_that_is_not_the_target_counts_if_its_tests_pass(
    sandbox: Sandbox, reading: Callable[..., Any], body: str, level: Level, failed: list[str]
) -> None:
    trajectory = collect(task_with(), reading([rewrite(body)]), sandbox, RolloutConfig(max_steps=1))
    [step] = trajectory.steps
    assert (trajectory.level, [*step.failed_tests], trajectory.is_verified) == (level, failed, level is Level.TESTS)
    assert (step.reward.cause == "verified_literal", step.false_positives is None) == (level is Level.TESTS,) * 2
    assert step.reward.value is not None


def test_the_target_needs_no_tests(sandbox: Sandbox, reading: Callable[..., Any]) -> None:
    teacher = reading([rewrite("return n  +  n + n - n")])
    assert collect(task_with(), teacher, WithoutJail(sandbox), RolloutConfig()).level is Level.TREE


def undecided(verdict: Verdict) -> TestResult:
    return TestResult(verdict, None, (), "", "", False, None, None, Usage(0, 0, 0), Isolation("none", "x"))


@pytest.mark.parametrize(
    ("verdict", "cause"), [(Verdict.WALL_TIMEOUT, "tests_wall_timeout"), (Verdict.OK, "tests_not_judged")]
)
def test_tests_that_say_nothing_are_no_reward_of_zero(
    sandbox: Sandbox, reading: Callable[..., Any], verdict: Verdict, cause: str
) -> None:
    silent = WithoutJail(sandbox, undecided(verdict))
    trajectory = collect(task_with(), reading([rewrite("return 2 * n")] * 2), silent, RolloutConfig())
    assert (trajectory.reward, trajectory.ending, len(trajectory.steps)) == (Reward(value=None, cause=cause), cause, 1)
    if verdict is Verdict.OK:
        assert invalid_reason(task_with(), silent) == cause
    else:  # which tasks there are must not depend on the machine
        with pytest.raises(SandboxError, match="free the machine"):
            invalid_reason(task_with(), silent)


def test_tests_without_an_interpreter_say_nothing(sandbox: Sandbox) -> None:
    of_node = {
        "kind": "program",
        "program": "node",
        "arguments": ["t.js"],
        "files": {"t.js": ""},
        "expected_stdout": "",
    }
    assert (
        invalid_reason(task_with(TaskTests.model_validate({"file": "m.js", "spec": of_node})), sandbox)
        == "tests_refused"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"tests": TESTS}, ""),
        ({"target": "def double(n):\n    return n + 3\n"}, "gold_fails_tests"),
        ({"before": "def double(n):\n    return 2 * n\n"}, "unedited_passes_tests"),
    ],
)
def test_a_task_is_valid_if_its_gold_passes_the_tests_and_the_unedited_text_fails(
    sandbox: Sandbox, changes: dict[str, Any], reason: str
) -> None:
    assert invalid_reason(task_with(**changes), sandbox) == reason


def test_who_listens_is_told_which_tests_fail_and_not_what_they_expect(
    sandbox: Sandbox, reading: Callable[..., Any]
) -> None:
    teacher = reading([rewrite("return n + 3")])
    teacher.uses_feedback = True
    step = collect(task_with(), teacher, sandbox, RolloutConfig()).steps[0]
    assert step.feedback.endswith("\nThese tests fail: 0: double.")
    assert step.failed_tests == {"0: double": 'returned {"int": "5"}, expected {"int": "4"}'}


@pytest.mark.parametrize(
    ("file", "fault"),
    [("../a.py", "file: "), ("-a.py", "looks like an option"), ("test_twice.py", "would take its place")],
)
def test_tests_say_where_the_text_is(file: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        TaskTests(file=file, spec=TESTS.spec)


def test_a_task_without_tests_is_stored_as_before() -> None:
    task = task_with()
    assert Task.model_validate_json(task.model_dump_json()) == task
    bare = task.model_copy(update={"tests": None})
    assert "tests" not in bare.model_dump_json()
    assert bare.digest != task.digest
