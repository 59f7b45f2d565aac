"""Whether tests passed, so that the code under test cannot say so itself.

What a case prints, and its exit code, prove nothing. Tests by pytest run in a process where no code under test is, and
reach it in another one (`inside.remote_objects`), so that nobody but them decides. They count as passed only if

1. every line of the report (`inside.case_tests`) carries the nonce that was drawn for this run;
2. each expected test is in it, once, and has passed, and none was found tampered with;
3. a control, a test under a random name that has to fail, is in it and has failed;
4. the report has its end, and the end counts as many tests as there were lines.

Where nothing can be known of a test from another process, `passed` is None and `error` says why. With `trusts: report`
tests and code share a process. Then these four are all there is: an object that claims to be equal to everything passes
an `assert`, and so does code that patches what tests use, jumps over a line by a trace, or finds the reporter in the memory
or the frames of its process.

Which tests cannot run apart is told by their text (`cause_against_apart`), so that code cannot bring about that nothing is
known of it: what tests do to their own process (a clock that is replaced, a seed, a handler of log records) does not reach
the code. `inside.remote_objects` finds what only shows when tests run.

Of `calls`, the values that functions returned are compared here, by exact type, and the case never learns which ones are
wanted; of `program`, the output.
"""

import ast
import json
import random
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from graftline.sandbox.base import Isolation, Usage, Verdict
from graftline.sandbox.inside.case_program import REQUEST, encode
from graftline.sandbox.jail import Apart, Case, CaseEnd, Jail
from graftline.sandbox.jail.spec import Call, CallsSpec, ProgramSpec, PytestSpec, TestSpec, Trust

_OF_PYTEST = frozenset(
    ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "graftline")
)
"""Packages that the process of the tests has loaded, or may load, for itself."""
_FIXTURES = {
    "caplog": "log records of the code",
    "recwarn": "warnings of the code",
    "capfd": "what the code writes to descriptors",
    "capfdbinary": "what the code writes to descriptors",
}
_CALLS = {
    "warns": "warnings of the code",
    "deprecated_call": "warnings of the code",
    "catch_warnings": "warnings of the code",
    "assertLogs": "log records of the code",
    "assertWarns": "warnings of the code",
    "freeze_time": "the clock of the code",
    "seed": "random numbers of the code",
}
_PATCHING = ("setattr", "patch", "object")
_RUN_BEFORE_TESTS = ("conftest.py", "sitecustomize.py", "usercustomize.py")
_RUN_BEFORE_TESTS_ENDINGS = (".pth", ".pyc", ".pyo")
_UNDECIDED = (Verdict.WALL_TIMEOUT, Verdict.RUNNER_ERROR)

Outcome = Literal["passed", "failed", "skipped", "tampered", "not_judged", "not_run"]


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """One test, call or comparison."""

    __test__ = False  # pytest collects by name

    name: str
    outcome: Outcome
    error: str = ""
    duration_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class TestResult:
    """The answer to one specification."""

    __test__ = False

    verdict: Verdict
    """`ok` says that the report can be believed, not that the tests passed."""
    passed: bool | None
    """None where the machine, and not the code, may be to blame, or tests cannot tell from another process."""
    tests: tuple[TestOutcome, ...]
    """What was expected, in that order."""
    stdout: str
    stderr: str
    is_truncated: bool
    exit_code: int | None
    signal: int | None
    usage: Usage
    isolation: Isolation
    error: str = ""
    left_out: tuple[str, ...] = ()
    """Files of the workspace that would run before any test, and were not laid."""
    tools: Mapping[str, str] = field(default_factory=dict)
    trusts: Trust = "values"
    """What of the code under test was believed; with `report` it may have made up all of this."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    nonce: str


class _TestLine(_Line):
    test: str
    outcome: Literal["passed", "failed", "skipped", "tampered", "not_judged"]
    error: str
    s: float


class _CallLine(_Line):
    call: Annotated[int, Field(ge=0)]
    value: Any = None
    raised: str | None = None


class _EndLine(_Line):
    end: int


_LINE: TypeAdapter[_TestLine | _CallLine | _EndLine] = TypeAdapter(_TestLine | _CallLine | _EndLine)


class _NotBelievedError(Exception):
    """The report has what an honest one never has."""


def judge_tests(jail: Jail, files: Mapping[str, bytes], spec: TestSpec) -> TestResult:
    """Run what `spec` says on `files` in `jail`, and say whether it passed.

    DataError if `files` or `spec` ask for what the jail does not take.
    """
    code = {name: data for name, data in files.items() if not _runs_before_tests(name)}
    match spec:
        case PytestSpec():
            result = replace(_run_pytest(jail, code, spec), trusts=spec.trusts)
        case CallsSpec():
            result = _run_calls(jail, code, spec)
        case ProgramSpec():
            result = _run_program(jail, code, spec)
    return replace(result, left_out=tuple(sorted(files.keys() - code.keys())))


def _runs_before_tests(name: str) -> bool:
    path = PurePosixPath(name.lower())
    return path.name in _RUN_BEFORE_TESTS or path.suffix in _RUN_BEFORE_TESTS_ENDINGS or "__pycache__" in path.parts


def _run_pytest(jail: Jail, files: Mapping[str, bytes], spec: PytestSpec) -> TestResult:
    nonce = secrets.token_hex(16)
    control, control_text = _control()
    trusted = {name: text.encode("utf-8", "surrogatepass") for name, text in spec.files.items()}
    modules = sorted({node_id.partition("::")[0] for node_id in spec.expected})
    control_file = control.partition("::")[0]
    apart = None if spec.trusts == "report" else Apart(modules_of(files, spec.files), spec.trusts)
    trusted[control_file] = control_text.encode()
    end = jail.run(Case("pytest", (*modules, control_file), files, trusted, nonce=nonce, apart=apart))
    try:
        lines = _read_report(end, nonce, _TestLine)
        by_name = {line.test: line for line in lines}
        if len(by_name) < len(lines):
            raise _NotBelievedError("a test was reported twice")
        if tampered := [line for line in lines if line.outcome == "tampered"]:
            raise _NotBelievedError(f"{tampered[0].test}: {tampered[0].error}")
        if control not in by_name:
            raise EOFError("the run was broken off before the last test")
        if by_name[control].outcome != "failed":
            raise _NotBelievedError("a test that has to fail did not")
    except (_NotBelievedError, EOFError) as error:
        return _result_without_report(end, spec.expected, error)
    tests = tuple(
        TestOutcome(name, by_name[name].outcome, by_name[name].error, by_name[name].s)
        if name in by_name
        else TestOutcome(name, "not_run", "it was not found among the tests that ran")
        for name in spec.expected
    )
    if apart and (cause := cause_against_apart(spec.files, apart.modules)):
        tests = tuple(TestOutcome(test.name, "not_judged", cause, test.duration_s) for test in tests)
    unknown = next((f"{test.name}: {test.error}" for test in tests if test.outcome == "not_judged"), "")
    return _result(end, Verdict.OK, tests, unknown)


def _control() -> tuple[str, str]:
    """Return the node id and the text of a test that fails, and does not look as if it had to."""
    chance = random.SystemRandom()
    name, number = secrets.token_hex(4), chance.randrange(10**6)
    larger = number + 1 + chance.randrange(10**6)
    text = f"def test_{name}():\n    assert {number} + {name!r}.count('') == {larger} + 9\n"
    return f"test_{name}.py::test_{name}", text


def _run_calls(jail: Jail, files: Mapping[str, bytes], spec: CallsSpec) -> TestResult:
    nonce = secrets.token_hex(16)
    request = json.dumps([{"function": call.function, "args": call.args, "kwargs": call.kwargs} for call in spec.calls])
    end = jail.run(Case("calls", (spec.module,), files, {REQUEST: request.encode()}, nonce=nonce))
    names = [f"{number}: {call.function}" for number, call in enumerate(spec.calls)]
    try:
        lines = _read_report(end, nonce, _CallLine)
        if [line.call for line in lines] != [*range(len(spec.calls))]:
            raise _NotBelievedError("calls were reported in another order than they were made")
    except (_NotBelievedError, EOFError) as error:
        return _result_without_report(end, names, error)
    tests = tuple(_compare(name, call, line) for name, call, line in zip(names, spec.calls, lines, strict=True))
    return _result(end, Verdict.OK, tests)


def _compare(name: str, call: Call, line: _CallLine) -> TestOutcome:
    if call.raises is not None or line.raised is not None:
        is_right = call.raises == line.raised
        error = f"raised {line.raised or 'nothing'}, expected {call.raises or 'a value'}"
    else:
        target = encode(call.target)
        # as texts: Python takes 1 for True
        is_right = _to_text(line.value) == _to_text(target)
        error = f"returned {json.dumps(line.value)[:500]}, expected {json.dumps(target)[:500]}"
    return TestOutcome(name, "passed") if is_right else TestOutcome(name, "failed", error)


def _to_text(value: Any) -> str:
    """Return what `case_program.encode` wrote as one text, in which the order of dictionaries counts for nothing."""

    def sort(part: Any) -> Any:
        if isinstance(part, list):
            return [sort(item) for item in part]
        if isinstance(part, dict) and isinstance(part.get("dict"), list):
            return {"dict": sorted((sort(pair) for pair in part["dict"]), key=json.dumps)}
        if isinstance(part, dict):
            return {key: sort(item) for key, item in part.items()}
        return part

    return json.dumps(sort(value), sort_keys=True)


def _run_program(jail: Jail, files: Mapping[str, bytes], spec: ProgramSpec) -> TestResult:
    trusted = {name: text.encode("utf-8", "surrogatepass") for name, text in spec.files.items()}
    end = jail.run(Case(spec.program, spec.arguments, files, trusted, spec.stdin.encode("utf-8", "surrogatepass")))
    expected = spec.expected_stdout.encode("utf-8", "surrogatepass")
    faults = [
        *([] if end.verdict is Verdict.OK else [f"it ended by {end.verdict}"]),
        *([] if end.exit_code == spec.expected_exit_code else [f"exit code {end.exit_code}"]),
        *([] if end.stdout == expected and not end.is_truncated else ["another output than expected"]),
    ]
    outcome = TestOutcome(spec.arguments[0], "failed" if faults else "passed", ", ".join(faults))
    return _result(end, end.verdict, (outcome,))


def _read_report(end: CaseEnd, nonce: str, kind: type[Any]) -> list[Any]:
    """Return the lines of the report of one run that came to its end.

    Raises:
        EOFError: it has no end, for the process ended before.
        _NotBelievedError: it has what an honest report never has.
    """
    lines: list[Any] = []
    has_ended = False
    *texts, remainder = end.report.split(b"\n")
    for text in texts:
        try:
            line = _LINE.validate_json(text)
        except ValidationError:
            raise _NotBelievedError("the report has a line of another form") from None
        if not secrets.compare_digest(line.nonce.encode("utf-8", "surrogatepass"), nonce.encode()):
            raise _NotBelievedError("the report has a line of somebody else")
        if has_ended or not isinstance(line, (kind, _EndLine)):
            raise _NotBelievedError("the report goes on after its end, or has lines of another kind")
        if isinstance(line, _EndLine):
            has_ended = True
            if line.end != len(lines):
                raise _NotBelievedError("the report counts otherwise than its lines")
        else:
            lines.append(line)
    if remainder:
        raise _NotBelievedError("the report breaks off within a line")
    if not has_ended:
        raise EOFError("the process ended before the tests did")
    return lines


def _result_without_report(end: CaseEnd, names: Sequence[str], error: Exception) -> TestResult:
    verdict = Verdict.VIOLATION if isinstance(error, _NotBelievedError) else None
    return _result(end, verdict, tuple(TestOutcome(name, "not_run") for name in names), str(error))


def _result(end: CaseEnd, verdict: Verdict | None, tests: tuple[TestOutcome, ...], error: str = "") -> TestResult:
    """Return the result; without a verdict of the judge it is that of the case, which ended too early."""
    if end.verdict is not Verdict.OK:
        verdict = end.verdict if verdict is not Verdict.VIOLATION else verdict
    elif verdict is None:
        verdict = Verdict.CRASH
    assert verdict is not None
    passed = None
    if verdict not in _UNDECIDED:
        outcomes = {test.outcome for test in tests}
        is_unknown = verdict is Verdict.OK and outcomes <= {"passed", "not_judged"} and "not_judged" in outcomes
        passed = None if is_unknown else verdict is Verdict.OK and outcomes == {"passed"}
    return TestResult(
        verdict,
        passed,
        tests,
        stdout=end.stdout.decode("utf-8", "backslashreplace"),
        stderr=end.stderr.decode("utf-8", "backslashreplace"),
        is_truncated=end.is_truncated,
        exit_code=end.exit_code,
        signal=end.signal,
        usage=end.usage,
        isolation=end.isolation,
        error=end.error or error,
        tools=end.tools,
    )


def modules_of(files: Iterable[str], tests: Iterable[str]) -> tuple[str, ...]:
    """Return the names that tests import the code by: of modules and packages at the top of the workspace.

    Those of the standard library and of pytest itself are none: tests get what they are usually.
    """
    own = {PurePosixPath(name).stem for name in tests if "/" not in name and name.endswith(".py")}
    names = {PurePosixPath(name).parts[0].removesuffix(".py") for name in files if name.endswith(".py")}
    return tuple(sorted(name for name in names - own - sys.stdlib_module_names - _OF_PYTEST if name.isidentifier()))


def cause_against_apart(tests: Mapping[str, str], modules: Iterable[str]) -> str:
    """Return why the tests cannot judge code that is in another process; empty where nothing speaks against it."""
    for name, text in tests.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        if reason := _reason(tree, frozenset(modules)):
            return f"{name}: needs {reason}; the code has a process of its own, unless `trusts` is `report`"
    return ""


def _reason(tree: ast.Module, modules: frozenset[str]) -> str:
    imported = {
        (alias.asname or alias.name).partition(".")[0]: alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in _FIXTURES:
            return _FIXTURES[node.arg]
        is_star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        if is_star and (getattr(node, "module", None) or "").split(".")[0] in modules:
            return "`import *`, by which the code could replace names of the tests"
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _CALLS:
            return _CALLS[called]
        if called in _PATCHING and node.args and (target := _module_of_patch(node.args[0], imported, modules)):
            return f"a replacement in {target!r} that reaches the code"
    return ""


def _module_of_patch(target: ast.expr, imported: Mapping[str, str], modules: frozenset[str]) -> str:
    """Return the module of somebody else that is replaced in; empty for one of the code or of the tests."""
    if isinstance(target, ast.Constant) and isinstance(target.value, str) and "." in target.value:
        top = target.value.partition(".")[0]
        return "" if top in modules else top
    while isinstance(target, ast.Attribute):
        target = target.value
    top = imported.get(target.id, "") if isinstance(target, ast.Name) else ""
    return "" if top in modules else top
