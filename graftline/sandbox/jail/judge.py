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

Of `calls`, the values that functions returned are compared here, by exact type, and the case never learns which ones are
wanted; of `program`, the output.
"""

import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from graftline.sandbox.base import Isolation, Usage, Verdict
from graftline.sandbox.inside.case_calls import REQUEST, encode
from graftline.sandbox.jail import Apart, Case, CaseEnd, Jail
from graftline.sandbox.jail.apart import cause_against_apart, modules_of
from graftline.sandbox.jail.spec import Call, CallsSpec, ProgramSpec, PytestSpec, TestSpec, Trust

_NEVER_LAID = ("conftest.py", "sitecustomize.py", "usercustomize.py")
_NEVER_LAID_ENDINGS = (".pth", ".pyc", ".pyo")
_SAYS_NOTHING = (Verdict.WALL_TIMEOUT, Verdict.RUNNER_ERROR)

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


class _TestLine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    nonce: str
    test: str
    outcome: Literal["passed", "failed", "skipped", "tampered", "not_judged"]
    error: str
    s: float


class _CallLine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    nonce: str
    call: Annotated[int, Field(ge=0)]
    value: Any = None
    raised: str | None = None


class _EndLine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    nonce: str
    end: int


_LINE: TypeAdapter[_TestLine | _CallLine | _EndLine] = TypeAdapter(_TestLine | _CallLine | _EndLine)


class _NotBelievedError(Exception):
    """The report has what an honest one never has."""


def judge_tests(jail: Jail, files: Mapping[str, bytes], spec: TestSpec) -> TestResult:
    """Run what `spec` says on `files` in `jail`, and say whether it passed.

    Raises:
        DataError: `files` or `spec` ask for what the jail does not take.
        SandboxError: the jail itself failed.
    """
    laid = {name: data for name, data in files.items() if not _runs_before_tests(name)}
    left_out = tuple(sorted(files.keys() - laid.keys()))
    match spec:
        case PytestSpec():
            return replace(_of_pytest(jail, laid, spec, left_out), trusts=spec.trusts)
        case CallsSpec():
            return _of_calls(jail, laid, spec, left_out)
        case ProgramSpec():
            return _of_program(jail, laid, spec, left_out)


def _runs_before_tests(name: str) -> bool:
    path = PurePosixPath(name.lower())
    return path.name in _NEVER_LAID or path.suffix in _NEVER_LAID_ENDINGS or "__pycache__" in path.parts


def _of_pytest(jail: Jail, files: Mapping[str, bytes], spec: PytestSpec, left_out: tuple[str, ...]) -> TestResult:
    nonce = secrets.token_hex(16)
    control, control_text = _control()
    trusted = {name: text.encode("utf-8", "surrogatepass") for name, text in spec.files.items()}
    modules = sorted({node_id.partition("::")[0] for node_id in spec.expected})
    control_file = control.partition("::")[0]
    apart = None if spec.trusts == "report" else Apart(modules_of(files, spec.files), spec.trusts)
    trusted[control_file] = control_text.encode()
    end = jail.run(Case("pytest", (*modules, control_file), files, trusted, nonce=nonce, apart=apart))
    try:
        lines = _believed(end, nonce, _TestLine)
        found = {line.test: line for line in lines}
        if len(found) < len(lines):
            raise _NotBelievedError("a test was reported twice")
        if tampered := [line for line in lines if line.outcome == "tampered"]:
            raise _NotBelievedError(f"{tampered[0].test}: {tampered[0].error}")
        if control not in found:
            raise EOFError("the run was broken off before the last test")
        if found[control].outcome != "failed":
            raise _NotBelievedError("a test that has to fail did not")
    except _NotBelievedError as error:
        return _result(end, Verdict.VIOLATION, _unknown(spec.expected), str(error), left_out)
    except EOFError as error:
        return _result(end, None, _unknown(spec.expected), str(error), left_out)
    tests = tuple(
        TestOutcome(name, found[name].outcome, found[name].error, found[name].s)
        if name in found
        else TestOutcome(name, "not_run", "it was not found among the tests that ran")
        for name in spec.expected
    )
    if apart and (cause := cause_against_apart(spec.files, apart.modules)):
        tests = tuple(TestOutcome(test.name, "not_judged", cause, test.duration_s) for test in tests)
    unknown = next((f"{test.name}: {test.error}" for test in tests if test.outcome == "not_judged"), "")
    return _result(end, Verdict.OK, tests, unknown, left_out)


def _control() -> tuple[str, str]:
    """Return the node id and the text of a test that fails, and does not look as if it had to."""
    chance = random.SystemRandom()
    name, one = secrets.token_hex(4), chance.randrange(10**6)
    other = one + 1 + chance.randrange(10**6)
    return f"test_{name}.py::test_{name}", f"def test_{name}():\n    assert {one} + {name!r}.count('') == {other} + 9\n"


def _of_calls(jail: Jail, files: Mapping[str, bytes], spec: CallsSpec, left_out: tuple[str, ...]) -> TestResult:
    nonce = secrets.token_hex(16)
    request = json.dumps([{"function": call.function, "args": call.args, "kwargs": call.kwargs} for call in spec.calls])
    end = jail.run(Case("calls", (spec.module,), files, {REQUEST: request.encode()}, nonce=nonce))
    names = [f"{number}: {call.function}" for number, call in enumerate(spec.calls)]
    try:
        lines = _believed(end, nonce, _CallLine)
        if [line.call for line in lines] != [*range(len(spec.calls))]:
            raise _NotBelievedError("calls were reported in another order than they were made")
    except _NotBelievedError as error:
        return _result(end, Verdict.VIOLATION, _unknown(names), str(error), left_out)
    except EOFError as error:
        return _result(end, None, _unknown(names), str(error), left_out)
    tests = tuple(_compared(name, call, line) for name, call, line in zip(names, spec.calls, lines, strict=True))
    return _result(end, Verdict.OK, tests, "", left_out)


def _compared(name: str, call: Call, line: _CallLine) -> TestOutcome:
    if call.raises is not None or line.raised is not None:
        is_as_wanted = call.raises == line.raised
        error = f"raised {line.raised or 'nothing'}, expected {call.raises or 'a value'}"
    else:
        wanted = encode(call.wanted)
        is_as_wanted = _is_same(line.value, wanted)
        error = f"returned {json.dumps(line.value)[:500]}, expected {json.dumps(wanted)[:500]}"
    return TestOutcome(name, "passed") if is_as_wanted else TestOutcome(name, "failed", error)


def _is_same(value: Any, wanted: Any) -> bool:
    # as texts: Python takes 1 for True
    return _ordered_text(value) == _ordered_text(wanted)


def _ordered_text(value: Any) -> str:
    """Return what `case_calls.encode` wrote as one text, in which the order of dictionaries counts for nothing."""

    def ordered(part: Any) -> Any:
        if isinstance(part, list):
            return [ordered(item) for item in part]
        if isinstance(part, dict) and isinstance(part.get("dict"), list):
            return {"dict": sorted((ordered(pair) for pair in part["dict"]), key=json.dumps)}
        if isinstance(part, dict):
            return {key: ordered(item) for key, item in part.items()}
        return part

    return json.dumps(ordered(value), sort_keys=True)


def _of_program(jail: Jail, files: Mapping[str, bytes], spec: ProgramSpec, left_out: tuple[str, ...]) -> TestResult:
    trusted = {name: text.encode("utf-8", "surrogatepass") for name, text in spec.files.items()}
    end = jail.run(Case(spec.program, spec.arguments, files, trusted, spec.stdin.encode("utf-8", "surrogatepass")))
    wanted = spec.expected_stdout.encode("utf-8", "surrogatepass")
    faults = [
        *([] if end.verdict is Verdict.OK else [f"it ended by {end.verdict}"]),
        *([] if end.exit_code == spec.expected_exit_code else [f"exit code {end.exit_code}"]),
        *([] if end.stdout == wanted and not end.is_truncated else ["another output than expected"]),
    ]
    outcome = TestOutcome(spec.arguments[0], "failed" if faults else "passed", ", ".join(faults))
    return _result(end, end.verdict, (outcome,), "", left_out)


def _believed(end: CaseEnd, nonce: str, kind: type[Any]) -> list[Any]:
    """Return the lines of the report of one run that came to its end.

    Raises:
        EOFError: it has no end, for the process ended before.
        _NotBelievedError: it has what an honest report never has.
    """
    lines: list[Any] = []
    ends = 0
    *texts, rest = end.report.split(b"\n")
    for text in texts:
        try:
            line = _LINE.validate_json(text)
        except ValidationError:
            raise _NotBelievedError("the report has a line of another form") from None
        if not secrets.compare_digest(line.nonce.encode("utf-8", "surrogatepass"), nonce.encode()):
            raise _NotBelievedError("the report has a line of somebody else")
        if ends or not isinstance(line, (kind, _EndLine)):
            raise _NotBelievedError("the report goes on after its end, or has lines of another kind")
        if isinstance(line, _EndLine):
            ends = 1
            if line.end != len(lines):
                raise _NotBelievedError("the report counts otherwise than its lines")
        else:
            lines.append(line)
    if rest:
        raise _NotBelievedError("the report breaks off within a line")
    if not ends:
        raise EOFError("the process ended before the tests did")
    return lines


def _unknown(names: Sequence[str]) -> tuple[TestOutcome, ...]:
    return tuple(TestOutcome(name, "not_run") for name in names)


def _result(
    end: CaseEnd, verdict: Verdict | None, tests: tuple[TestOutcome, ...], error: str, left_out: tuple[str, ...]
) -> TestResult:
    """Return the result; without a verdict of the judge it is that of the case, which ended too early."""
    if end.verdict is not Verdict.OK:
        verdict = end.verdict if verdict is not Verdict.VIOLATION else verdict
    elif verdict is None:
        verdict = Verdict.CRASH
    assert verdict is not None
    passed = None
    if verdict not in _SAYS_NOTHING:
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
        left_out=left_out,
        tools=end.tools,
    )
