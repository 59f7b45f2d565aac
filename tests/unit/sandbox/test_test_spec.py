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
LONG = "x" * (MEGABYTE + 1)


def nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def pytest_spec(**parts: Any) -> dict[str, Any]:
    return {**PYTEST, **parts}


def program_spec(**parts: Any) -> dict[str, Any]:
    return {**PROGRAM, **parts}


def calls_spec(**parts: Any) -> dict[str, Any]:
    return {**CALLS, "calls": [{"function": "f", **parts}]}


def test_the_least_that_is_taken() -> None:
    assert parse_test_spec(PYTEST) == PytestSpec(files=FILES, expected=("test_a.py::test_a",))
    assert parse_test_spec(PYTEST).trusts == "values"
    assert parse_test_spec(CALLS) == CallsSpec(module="m", calls=(Call(function="f"),))
    assert parse_test_spec(PROGRAM) == ProgramSpec(arguments=("m.py",), expected_stdout="x\n")


@pytest.mark.parametrize("spec", [pytest_spec(expected=[]), pytest_spec(files={}), {**CALLS, "calls": []}])
def test_a_specification_of_nothing_is_refused(spec: dict[str, object]) -> None:
    with pytest.raises(DataError, match="at least 1 item"):
        parse_test_spec(spec)


def test_a_specification_is_taken_as_it_is() -> None:
    spec = PytestSpec(files=FILES, expected=("test_a.py::test_a",))
    assert parse_test_spec(spec) is spec


ACCEPTED = {
    "as many files as may be": pytest_spec(files={f"{n}.py": "" for n in range(200)}, expected=["0.py::a"]),
    "as long a file as may be": pytest_spec(files={**FILES, "data.txt": "x" * MEGABYTE}),
    "a path and a parameter": pytest_spec(
        files={"tests/unit/test_a.py": ""}, expected=["tests/unit/test_a.py::TestA::test_a[x::y]"]
    ),
    "half a character": pytest_spec(expected=["test_a.py::test_é[\ud800]"]),
    "as many calls as may be": {**CALLS, "calls": [{"function": "f"}] * 1000},
    "a module in a package": {**CALLS, "module": "package.module_1"},
    "a function in a class": calls_spec(function="A.b.__c"),
    "arguments": calls_spec(args=[None, True, 1, 1.5, "\ud800", [1], {"a": {}}], kwargs={"a b": 1}),
    "a literal": calls_spec(expected_python="(1, {2}, b'x', {1: -2.5, None: ()})"),
    "input": program_spec(program="node", stdin="x" * MEGABYTE, expected_exit_code=255),
    "no output": program_spec(program="java", expected_stdout=""),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_taken(name: str) -> None:
    spec = ACCEPTED[name]
    assert parse_test_spec(spec).kind == spec["kind"]


NO_JSON = "calls: arguments have to be what JSON can say (those of call 0 are not)"
NO_LITERAL = "expected_python: no literal of Python ("
NAME, KEY = "file name ", "Extra inputs are not permitted"
NO_TEST = "is no test of ['test_a.py']; write 'file.py::test_name'"
REFUSED = {
    "another kind": (pytest_spec(kind="bash"), "kind: expected one of 'pytest', 'calls', 'program' (got 'bash')"),
    "an unknown key": (pytest_spec(nodes=[]), f"pytest.nodes: {KEY}"),
    "too many files": (pytest_spec(files={f"{n}.py": "" for n in range(201)}), "pytest.files: Dictionary should have at most"),
    "too long a file": (pytest_spec(files={**FILES, "a.txt": LONG}), "'a.txt' has 1048577 characters; at most 1048576"),
    "an absolute name": (pytest_spec(files={**FILES, "/etc/x": ""}), f"{NAME}'/etc/x': must be relative and use forward"),
    "a name that leads out": (pytest_spec(files={**FILES, "a/../../x": ""}), f"{NAME}'a/../../x': must stay inside"),
    "a name that leads out, of a program": (program_spec(files={"../x": ""}), f"{NAME}'../x': must stay inside its folder"),
    "a control character": (pytest_spec(files={**FILES, "a\n": ""}), f"{NAME}'a\\n': holds a control character"),
    "a file without a test": (pytest_spec(expected=["test_a.py"]), f"expected: 'test_a.py' {NO_TEST}"),
    "an empty test": (pytest_spec(expected=["test_a.py::"]), f"expected: 'test_a.py::' {NO_TEST}"),
    "a test of another file": (pytest_spec(expected=["test_b.py::test_a"]), f"expected: 'test_b.py::test_a' {NO_TEST}"),
    "a module that is a file": ({**CALLS, "module": "m.py/x"}, "calls.module: String should match pattern"),
    "a call of an expression": (calls_spec(function="f()"), "calls.calls.0.function: String should match pattern"),
    "a set as an argument": (calls_spec(args=[{1}]), NO_JSON),
    "bytes as an argument": (calls_spec(kwargs={"a": b"x"}), NO_JSON),
    "no number as an argument": (calls_spec(args=[float("nan")]), NO_JSON),
    "arguments of great depth": (calls_spec(args=[nest(5000)]), NO_JSON),
    "a call as a literal": (calls_spec(expected_python="f()"), NO_LITERAL),
    "a literal with a zero byte": (calls_spec(expected_python="1\0"), NO_LITERAL),
    "a literal of great depth": (calls_spec(expected_python="[" * 5000 + "]" * 5000), NO_LITERAL),
    "a literal of great depth, of signs": (calls_spec(expected_python="-" * 50_000 + "1"), NO_LITERAL),
    "a literal that is too long": (calls_spec(expected_python="1" * 100_001), "expected_python: String should have at most"),
    "another program": (program_spec(program="bash"), "program.program: Input should be 'python', 'node' or 'java'"),
    "no output": ({"kind": "program", "arguments": ["m.py"]}, "program.expected_stdout: Field required"),
    "another trust": (pytest_spec(trusts="all"), "trusts: Input should be 'values', 'comparisons' or 'report'"),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_a_refusal_names_the_place_and_the_fault(fault: str) -> None:
    spec, reason = REFUSED[fault]
    with pytest.raises(DataError) as caught:
        parse_test_spec(spec)
    message = str(caught.value)
    assert message.startswith("test specification: ")
    assert reason in message


@pytest.mark.parametrize(
    "spec",
    [{}, {"files": FILES}, pytest_spec(kind=None), *([PYTEST], "pytest", None, 1)],
    ids=lambda spec: repr(spec)[:20],
)
def test_without_a_kind_the_kinds_are_listed(spec: Any) -> None:
    with pytest.raises(DataError, match="'pytest', 'calls', 'program'"):
        parse_test_spec(spec)


SENSELESS = {
    "a literal that cannot be": calls_spec(expected_python="{[]}"),
    "another literal that cannot be": calls_spec(expected_python="{[]: 1}"),
    "two expected values": calls_spec(expected=1, expected_python="2"),
    "a value and an exception": calls_spec(expected=1, raises="ValueError"),
    # what has no form that tells two of its kind apart would pass for any other one
    "an object as a value": calls_spec(expected=object()),
    "a decimal number as a value": calls_spec(expected=Decimal(1)),
    "a decimal number within a value": calls_spec(expected=[{"a": Decimal(1)}]),
    "a value of great depth": calls_spec(expected=nest(5000)),
    "a key that JSON would change": calls_spec(args=[{1: 2}]),
    "a zero byte in an argument": program_spec(arguments=["m.py", "a\0b"]),
    "half a character in an argument": program_spec(arguments=["m.py", "\ud800"]),
    "an argument that is too long": program_spec(arguments=["m.py", "x" * (10 * MEGABYTE)]),
    "too long a file of a program": program_spec(files={"a.txt": "x" * (MEGABYTE + 1)}),
    "a file that is a folder, too": pytest_spec(files={**FILES, "a": "", "a/b": ""}),
    "one file under two names": pytest_spec(files={**FILES, "./test_a.py": ""}),
    "a name that ends as folders do": pytest_spec(files={**FILES, "a/": ""}),
    "a name that reads as an option": pytest_spec(files={"-x.py": ""}, expected=["-x.py::test_a"]),
    "a name that reads as a file of options": pytest_spec(files={"@x.py": ""}, expected=["@x.py::test_a"]),
    "too many tests": pytest_spec(expected=["test_a.py::test_a"] * 1_000_000),
    "too long a test": pytest_spec(expected=["test_a.py::" + "x" * (10 * MEGABYTE)]),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_what_cannot_be_meant_is_refused(name: str) -> None:
    with pytest.raises(DataError):
        parse_test_spec(SENSELESS[name])


@pytest.mark.parametrize(
    "spec",
    [
        pytest_spec(kind="x" * MEGABYTE),
        {**PYTEST, "x" * MEGABYTE: 1},
        pytest_spec(files={**FILES, "../" + "x" * MEGABYTE: ""}),
        pytest_spec(expected=["x" * MEGABYTE]),
        pytest_spec(files={f"{'x' * 200}_{number}.py": "" for number in range(200)}),
        calls_spec(expected_python="x" * 100_000),
        calls_spec(**{"x" * MEGABYTE: 1}),
    ],
    ids=["kind", "key", "name", "test", "names", "literal", "part of a call"],
)
def test_a_refusal_stays_short(spec: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        parse_test_spec(spec)
    assert len(str(caught.value)) < 5000
