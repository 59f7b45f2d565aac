"""Which specifications of tests are taken, and what is said of those that are not."""

from decimal import Decimal
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.sandbox import Call, CallsSpec, ProgramSpec, PytestSpec
from graftline.sandbox.runner import parse_test_spec

FILES = {"test_a.py": "def test_a(): pass"}
PYTEST = {"kind": "pytest", "files": FILES, "expected": ["test_a.py::test_a"]}
CALLS = {"kind": "calls", "module": "m", "calls": [{"function": "f"}]}
PROGRAM = {"kind": "program", "arguments": ["m.py"], "expected_stdout": "x\n"}
MEGABYTE = 1 << 20


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def call(**parts: Any) -> dict[str, Any]:
    return {**CALLS, "calls": [{"function": "f", **parts}]}


def test_the_least_that_is_taken() -> None:
    assert parse_test_spec(PYTEST) == PytestSpec(files=FILES, expected=("test_a.py::test_a",))
    assert parse_test_spec(CALLS) == CallsSpec(module="m", calls=(Call(function="f"),))
    assert parse_test_spec(PROGRAM) == ProgramSpec(arguments=("m.py",), expected_stdout="x\n")


def test_a_specification_is_taken_as_it_is() -> None:
    spec = PytestSpec(files=FILES, expected=("test_a.py::test_a",))
    assert parse_test_spec(spec) is spec


def test_what_is_not_said_is_the_usual() -> None:
    spec = parse_test_spec(PROGRAM)
    assert spec.model_dump() == {
        "kind": "program",
        "program": "python",
        "arguments": ("m.py",),
        "stdin": "",
        "files": {},
        "expected_stdout": "x\n",
        "expected_exit_code": 0,
    }


@pytest.mark.parametrize(
    "spec",
    [
        {**PYTEST, "files": {f"test_{number}.py": "" for number in range(200)}, "expected": ["test_0.py::a"]},
        {**PYTEST, "files": {**FILES, "data.txt": "x" * MEGABYTE}},
        {**PYTEST, "files": {"tests/unit/test_a.py": ""}, "expected": ["tests/unit/test_a.py::TestA::test_a[x::y]"]},
        {**PYTEST, "expected": ["test_a.py::test_é[\ud800]"]},
        {**CALLS, "calls": [{"function": "f"}] * 1000},
        {**CALLS, "module": "package.module_1"},
        call(function="A.b.__c"),
        call(args=[None, True, 1, 1.5, "\ud800", [1], {"a": {}}], kwargs={"a b": 1}),
        call(expected_python="(1, {2}, b'x', {1: -2.5, None: ()})"),
        {**PROGRAM, "program": "node", "stdin": "x" * MEGABYTE, "expected_exit_code": 255},
        {**PROGRAM, "program": "java", "expected_stdout": ""},
    ],
    ids=[
        "as many files as may be",
        "as long a file as may be",
        "a path and a parameter",
        "half a character",
        "as many calls as may be",
        "a module in a package",
        "a function in a class",
        "arguments",
        "a literal",
        "input",
        "no output",
    ],
)
def test_what_is_taken(spec: dict[str, Any]) -> None:
    assert parse_test_spec(spec).kind == spec["kind"]


REFUSED = {
    "another kind": (
        {**PYTEST, "kind": "bash"},
        "kind: expected one of 'pytest', 'calls', 'program' (got 'bash')",
    ),
    "an unknown key": ({**PYTEST, "nodes": []}, "pytest.nodes: Extra inputs are not permitted"),
    "no files": (
        {**PYTEST, "files": {}},
        "pytest.files: Dictionary should have at least 1 item after validation, not 0",
    ),
    "files in a list": ({**PYTEST, "files": ["test_a.py"]}, "pytest.files: Input should be a valid dictionary"),
    "a file of a number": (
        {**PYTEST, "files": {"test_a.py": 1}},
        "pytest.files.test_a.py: Input should be a valid string",
    ),
    "too many files": (
        {**PYTEST, "files": {f"test_{number}.py": "" for number in range(201)}},
        "pytest.files: Dictionary should have at most 200 items after validation, not more",
    ),
    "too long a file": (
        {**PYTEST, "files": {**FILES, "a.txt": "x" * (MEGABYTE + 1)}},
        "'a.txt' has 1048577 characters; at most 1048576 are taken",
    ),
    "an absolute name": (
        {**PYTEST, "files": {**FILES, "/etc/x": ""}},
        "file name '/etc/x': must be relative and use forward slashes; use a plain relative path such as 'src/a.py'",
    ),
    "a name that leads out": (
        {**PYTEST, "files": {**FILES, "a/../../x": ""}},
        "file name 'a/../../x': must stay inside its folder; use a plain relative path such as 'src/a.py'",
    ),
    "a name that leads out, of a program": (
        {**PROGRAM, "files": {"../x": ""}},
        "file name '../x': must stay inside its folder; use a plain relative path such as 'src/a.py'",
    ),
    "a name with a control character": (
        {**PYTEST, "files": {**FILES, "a\n": ""}},
        "file name 'a\\n': holds a control character or a reserved one; use a plain relative path such as 'src/a.py'",
    ),
    "nothing expected": (
        {**PYTEST, "expected": []},
        "pytest.expected: Tuple should have at least 1 item after validation, not 0",
    ),
    "a text of what is expected": (
        {**PYTEST, "expected": "test_a.py::test_a"},
        "pytest.expected: Input should be a valid tuple",
    ),
    "a file without a test": (
        {**PYTEST, "expected": ["test_a.py"]},
        "expected: 'test_a.py' is no test of ['test_a.py']; write 'file.py::test_name'",
    ),
    "an empty test": (
        {**PYTEST, "expected": ["test_a.py::"]},
        "expected: 'test_a.py::' is no test of ['test_a.py']; write 'file.py::test_name'",
    ),
    "a test of another file": (
        {**PYTEST, "expected": ["test_a.py::test_a", "test_b.py::test_a"]},
        "expected: 'test_b.py::test_a' is no test of ['test_a.py']; write 'file.py::test_name'",
    ),
    "a module that is a file": (
        {**CALLS, "module": "m.py/x"},
        r"calls.module: String should match pattern '^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$'",
    ),
    "a relative module": ({**CALLS, "module": ".m"}, r"calls.module: String should match pattern"),
    "a module with a line break": ({**CALLS, "module": "m\n"}, r"calls.module: String should match pattern"),
    "no calls": ({**CALLS, "calls": []}, "calls.calls: Tuple should have at least 1 item after validation, not 0"),
    "too many calls": (
        {**CALLS, "calls": [{"function": "f"}] * 1001},
        "calls.calls: Tuple should have at most 1000 items after validation, not 1001",
    ),
    "a call of nothing": ({**CALLS, "calls": [{}]}, "calls.calls.0.function: Field required"),
    "a call of an expression": (call(function="f()"), "calls.calls.0.function: String should match pattern"),
    "an unknown part of a call": (call(want=1), "calls.calls.0.want: Extra inputs are not permitted"),
    "arguments in a text": (call(args="ab"), "calls.calls.0.args: Input should be a valid tuple"),
    "a set as an argument": (
        call(args=[{1}]),
        "calls: arguments have to be what JSON can say (those of call 0 are not)",
    ),
    "bytes as an argument": (
        call(kwargs={"a": b"x"}),
        "calls: arguments have to be what JSON can say (those of call 0 are not)",
    ),
    "no number as an argument": (
        call(args=[float("nan")]),
        "calls: arguments have to be what JSON can say (those of call 0 are not)",
    ),
    "arguments of great depth": (
        call(args=[nested(5000)]),
        "calls: arguments have to be what JSON can say (those of call 0 are not)",
    ),
    "a call as a literal": (call(expected_python="f()"), "expected_python: no literal of Python ("),
    "half a literal": (call(expected_python="(1,"), "expected_python: no literal of Python ("),
    "an empty literal": (call(expected_python=""), "expected_python: no literal of Python ("),
    "a literal with a zero byte": (call(expected_python="1\0"), "expected_python: no literal of Python ("),
    "a literal of great depth": (
        call(expected_python="[" * 5000 + "]" * 5000),
        "expected_python: no literal of Python (",
    ),
    "a literal of great depth, of signs": (
        call(expected_python="-" * 50_000 + "1"),
        "expected_python: no literal of Python (",
    ),
    "a literal that is too long": (
        call(expected_python="1" * 100_001),
        "calls.calls.0.expected_python: String should have at most 100000 characters",
    ),
    "a class of exceptions": (call(raises=ValueError), "calls.calls.0.raises: Input should be a valid string"),
    "another program": (
        {**PROGRAM, "program": "bash"},
        "program.program: Input should be 'python', 'node' or 'java'",
    ),
    "no arguments": (
        {**PROGRAM, "arguments": []},
        "program.arguments: Tuple should have at least 1 item after validation, not 0",
    ),
    "no output that is expected": (
        {"kind": "program", "arguments": ["m.py"]},
        "program.expected_stdout: Field required",
    ),
    "too much output": (
        {**PROGRAM, "expected_stdout": "x" * (MEGABYTE + 1)},
        "program.expected_stdout: String should have at most 1048576 characters",
    ),
    "too much input": (
        {**PROGRAM, "stdin": "x" * (MEGABYTE + 1)},
        "program.stdin: String should have at most 1048576 characters",
    ),
    "an exit code below all": (
        {**PROGRAM, "expected_exit_code": -1},
        "program.expected_exit_code: Input should be greater than or equal to 0",
    ),
    "an exit code above all": (
        {**PROGRAM, "expected_exit_code": 256},
        "program.expected_exit_code: Input should be less than or equal to 255",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_refusal_names_the_place_and_the_fault(fault: str) -> None:
    spec, reason = REFUSED[fault]
    with pytest.raises(DataError) as caught:
        parse_test_spec(spec)
    message = str(caught.value)
    assert message.startswith("test specification: ")
    assert reason in message


@pytest.mark.parametrize("spec", [{}, {"files": FILES, "expected": ["test_a.py::test_a"]}, {**PYTEST, "kind": None}])
def test_without_a_kind_the_kinds_are_listed(spec: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        parse_test_spec(spec)
    assert all(kind in str(caught.value) for kind in ("'pytest'", "'calls'", "'program'"))


@pytest.mark.parametrize("spec", [[PYTEST], "pytest", None, 1])
def test_what_is_no_mapping_is_refused(spec: Any) -> None:
    with pytest.raises(DataError):
        parse_test_spec(spec)


@pytest.mark.parametrize(
    "spec",
    [
        call(expected_python="{[]}"),
        call(expected_python="{[]: 1}"),
        call(expected=1, expected_python="2"),
        call(expected=1, raises="ValueError"),
        call(raises=""),
        # what has no form that tells two of its kind apart would pass for any other one
        call(expected=object()),
        call(expected=Decimal(1)),
        call(expected=[{"a": Decimal(1)}]),
        call(expected=nested(5000)),
        call(args=[{1: 2}]),
        {**PROGRAM, "arguments": ["m.py", "a\0b"]},
        {**PROGRAM, "arguments": ["m.py", "\ud800"]},
        {**PROGRAM, "arguments": ["m.py", "x" * (10 * MEGABYTE)]},
        {**PROGRAM, "files": {"a.txt": "x" * (MEGABYTE + 1)}},
        {**PROGRAM, "expected_exit_code": True},
        {**PROGRAM, "expected_exit_code": "1"},
        {**PROGRAM, "stdin": b"x"},
        {**PYTEST, "files": {"test_a.py": b""}},
        {**PYTEST, "files": {**FILES, "a": "", "a/b": ""}},
        {**PYTEST, "files": {**FILES, "./test_a.py": ""}},
        {**PYTEST, "files": {**FILES, "a/": ""}},
        {**PYTEST, "files": {"-x.py": ""}, "expected": ["-x.py::test_a"]},
        {**PYTEST, "files": {"@x.py": ""}, "expected": ["@x.py::test_a"]},
        {**PYTEST, "expected": ["test_a.py::test_a"] * 1_000_000},
        {**PYTEST, "expected": ["test_a.py::" + "x" * (10 * MEGABYTE)]},
    ],
    ids=[
        "a literal that cannot be",
        "another literal that cannot be",
        "two expected values",
        "a value and an exception",
        "an exception without a name",
        "an object as a value",
        "a decimal number as a value",
        "a decimal number within a value",
        "a value of great depth",
        "a key that JSON would change",
        "a zero byte in an argument",
        "half a character in an argument",
        "an argument that is too long",
        "too long a file of a program",
        "an exit code that is a claim",
        "an exit code in a text",
        "input in bytes",
        "a file in bytes",
        "a file that is a folder, too",
        "one file under two names",
        "a name that ends as folders do",
        "a name that reads as an option",
        "a name that reads as a file of options",
        "too many tests",
        "too long a test",
    ],
)
def test_what_cannot_be_meant_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        parse_test_spec(spec)


@pytest.mark.parametrize(
    "spec",
    [
        {**PYTEST, "kind": "x" * MEGABYTE},
        {**PYTEST, "x" * MEGABYTE: 1},
        {**PYTEST, "files": {**FILES, "../" + "x" * MEGABYTE: ""}},
        {**PYTEST, "expected": ["x" * MEGABYTE]},
        {**PYTEST, "files": {f"{'x' * 200}_{number}.py": "" for number in range(200)}},
        call(expected_python="x" * 100_000),
        call(**{"x" * MEGABYTE: 1}),
    ],
    ids=["kind", "key", "name", "test", "names", "literal", "part of a call"],
)
def test_a_refusal_stays_short(spec: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        parse_test_spec(spec)
    assert len(str(caught.value)) < 5000


def test_the_code_is_trusted_with_values_alone_unless_it_is_said() -> None:
    assert parse_test_spec(PYTEST).model_dump()["trusts"] == "values"
    with pytest.raises(DataError, match="trusts: Input should be 'values', 'comparisons' or 'report'"):
        parse_test_spec({**PYTEST, "trusts": "everything"})
