"""Results of calls and outputs of programs, which are compared outside of the jail."""

import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

from graftline.sandbox import TestResult, Verdict, judge_tests
from graftline.sandbox.jail.served import ServedJail
from graftline.sandbox.runner import parse_test_spec
from tests.code_under_test import by_calls, in_namespaces, outcomes

SAME = {
    "an integer": ("1", "1"),
    "a long integer": ("10 ** 4000", "1" + "0" * 4000),
    "a longer integer than texts of integers may be": ("1 << 30_000", hex(1 << 30_000)),
    "a negative zero": ("-0.0", "-0.0"),
    "infinity": ("float('inf')", "1e999"),
    "a tuple": ("(1, 2)", "(1, 2)"),
    "a set": ("{3, 1, 'a', (None, 1)}", "{'a', (None, 1), 1, 3}"),
    "a dictionary in another order": ("{'b': 1, 'a': {2: 3, 4: 5}}", "{'a': {4: 5, 2: 3}, 'b': 1}"),
    "bytes": ("b'\\xff\\0'", "b'\\xff\\0'"),
    "any character": ("'\\0\\x7f\\u2028é\\U0001f600'", "'\\0\\x7f\\u2028é\\U0001f600'"),
    "half a character": ("'\\ud800'", "'\\ud800'"),
    "nothing": ("None", "None"),
    "an empty list": ("[]", "[]"),
    "a complex number": ("1j", "1j"),
}


@in_namespaces
@pytest.mark.parametrize("case", SAME)
def test_equal_values_of_the_same_types_pass(jail: ServedJail, case: str) -> None:
    value, target = SAME[case]
    result = by_calls(jail, f"def f():\n    return {value}\n", {"function": "f", "expected_python": target})
    assert (outcomes(result), result.passed) == (["passed"], True)


DIFFERENT = {
    "True for 1": ("True", "1"),
    "1 for True": ("1", "True"),
    "1.0 for 1": ("1.0", "1"),
    "0.0 for -0.0": ("0.0", "-0.0"),
    "a tuple for a list": ("(1,)", "[1]"),
    "a frozen set for a set": ("frozenset({1})", "{1}"),
    "a byte array for bytes": ("bytearray(b'a')", "b'a'"),
    "a key of another type": ("{1: 1}", "{True: 1}"),
    "a list in another order": ("[1, 2]", "[2, 1]"),
    "a longer list": ("[1, 2]", "[1]"),
    "a text for an integer": ("'1'", "1"),
    "a generator": ("(n for n in [1])", "[1]"),
    "a subclass of int": ("type('int', (int,), {})(3)", "3"),
    "a subclass of list": ("type('list', (list,), {})([1])", "[1]"),
    "an object that is equal to all": ("type('A', (), {'__eq__': lambda self, other: True})()", "3"),
    "another complex number": ("2j", "1j"),
    "the encoding of a value": ("{'int': '3'}", "3"),
    "a negative for a positive": ("-(1 << 30_000)", hex(1 << 30_000)),
}


@in_namespaces
@pytest.mark.parametrize("case", DIFFERENT)
def test_other_values_or_types_fail(jail: ServedJail, case: str) -> None:
    value, target = DIFFERENT[case]
    result = by_calls(jail, f"def f():\n    return {value}\n", {"function": "f", "expected_python": target})
    assert (result.verdict, outcomes(result), result.passed) == (Verdict.OK, ["failed"], False)


@in_namespaces
def test_not_a_number_is_the_same_as_itself(jail: ServedJail) -> None:
    module = "def f():\n    return float('nan')\n"
    assert by_calls(jail, module, {"function": "f", "expected": float("nan")}).passed is True


@in_namespaces
def test_a_list_is_no_tuple_in_json_either(jail: ServedJail) -> None:
    result = by_calls(jail, "def f():\n    return (1, 2)\n", {"function": "f", "expected": [1, 2]})
    assert [test.error for test in result.tests] == [
        'returned {"tuple": [{"int": "1"}, {"int": "2"}]}, expected {"list": [{"int": "1"}, {"int": "2"}]}'
    ]


@in_namespaces
def test_arguments_arrive_by_place_and_by_name(jail: ServedJail) -> None:
    module = "class A:\n    class B:\n        @staticmethod\n        def f(a, /, *b, **c):\n            return [a, list(b), c]\n"
    call = {"function": "A.B.f", "args": [1, [2], None], "kwargs": {"d": {"e": 1.5}}}
    assert by_calls(jail, module, {**call, "expected": [1, [[2], None], {"d": {"e": 1.5}}]}).passed is True


@in_namespaces
def test_calls_are_made_in_their_order_in_one_process(jail: ServedJail) -> None:
    module = "seen = []\ndef f(a):\n    seen.append(a)\n    return seen\n"
    calls = [{"function": "f", "args": [n], "expected": [*range(n + 1)]} for n in range(3)]
    result = by_calls(jail, module, *calls)
    assert [(test.name, test.outcome) for test in result.tests] == [(f"{n}: f", "passed") for n in range(3)]


@in_namespaces
@pytest.mark.parametrize(
    ("module", "raises", "error"),
    [
        ("def f():\n    raise ValueError(1)\n", "ValueError", None),
        ("def f():\n    raise UnicodeError(1)\n", "ValueError", "raised UnicodeError, expected ValueError"),
        ("def f():\n    return 1\n", "ValueError", "raised nothing, expected ValueError"),
        ("def f():\n    raise ValueError(1)\n", None, "raised ValueError, expected a value"),
        ("f = 1\n", None, "raised TypeError, expected a value"),
        ("g = 1\n", None, "raised AttributeError, expected a value"),
        ("def f():\n    return f()\n", "RecursionError", None),
        ("class E(Exception):\n    def __str__(self):\n        raise self\ndef f():\n    raise E\n", "E", None),
    ],
)
def test_what_is_raised_has_to_be_what_is_expected(
    jail: ServedJail, module: str, raises: str | None, error: str | None
) -> None:
    result = by_calls(jail, module, {"function": "f", "raises": raises})
    assert (result.passed, result.tests[0].error) == (error is None, error or "")


@in_namespaces
@pytest.mark.parametrize(
    "module",
    [
        "import absent\ndef f():\n    return 3\n",
        "def",
        "import os\nos._exit(0)\n",
        "import os\ndef f():\n    os._exit(0)\n",
        "def f():\n    raise SystemExit(0)\n",
        "def f():\n    raise KeyboardInterrupt\n",
        "def f():\n    x = []\n    while True:\n        x.append(bytearray(1 << 20))\n",
    ],
    ids=["import error", "syntax error", "exit at import", "exit in a call", "SystemExit", "interrupt", "memory"],
)
def test_a_process_that_ends_before_has_not_passed(jail: ServedJail, module: str) -> None:
    result = by_calls(jail, module, {"function": "f", "expected": 3}, {"function": "f", "expected": 3})
    assert (result.passed, outcomes(result)) == (False, ["not_run", "not_run"])


@in_namespaces
def test_what_is_printed_does_not_disturb(jail: ServedJail) -> None:
    module = 'import os\nprint("x")\ndef f():\n    os.write(1, b"{\\"nonce\\": 1}\\n")\n    return 3\n'
    result = by_calls(jail, module, {"function": "f", "expected": 3})
    assert (result.passed, result.stdout) == (True, 'x\n{"nonce": 1}\n')


@in_namespaces
@pytest.mark.parametrize(
    "patch",
    [
        "json.dumps = lambda *args, **more: '3'",
        'json.JSONEncoder.encode = lambda self, line: \'{"int": "3"}\'',
        'json.JSONEncoder.iterencode = lambda self, line, _one_shot=False: iter([\'{"int": "3"}\'])',
        "os.write = lambda descriptor, data: len(data)",
        "builtins.type = lambda value: int",
        "builtins.str = lambda value: '3'",
    ],
)
def test_patching_what_writes_the_answer_down_does_not_pass(jail: ServedJail, patch: str) -> None:
    module = f"import builtins, json, os\n{patch}\ndef f():\n    return 4\n"
    assert by_calls(jail, module, {"function": "f", "expected": 3}).passed is False


@in_namespaces
def test_the_case_does_not_know_what_is_target(jail: ServedJail) -> None:
    module = "import os\ndef f():\n    for top, _, names in os.walk('.'):\n        for name in names:\n"
    module += "            print(name, open(os.path.join(top, name)).read())\n"
    result = by_calls(jail, module, {"function": "f", "args": [], "expected": "a secret"})
    assert "secret" not in result.stdout
    assert "calls.json" in result.stdout


@in_namespaces
def test_an_answer_beyond_what_is_kept_has_not_passed(jail: ServedJail) -> None:
    result = by_calls(jail, "def f():\n    return 'x' * (20 << 20)\n", {"function": "f", "expected": "x"})
    assert result.passed is False


@pytest.mark.parametrize(
    ("value", "target"),
    [("value = [value]", "[" * 60 + "1" + "]" * 60), ("value = {1: value}", "{1:" * 40 + "1" + "}" * 40)],
    ids=["lists", "dictionaries"],
)
def test_nested_values_are_compared_in_little_time_and_memory(value: str, target: str) -> None:
    module = f"def f():\n    value = 1\n    for _ in range({target.count('[') or target.count('{')}):\n        {value}\n    return value\n"
    assert in_a_small_process(module, target) == "True"


def test_a_value_that_differs_far_inside_fails() -> None:
    module = "def f():\n    value = 1\n    for _ in range(50):\n        value = [value]\n    return value\n"
    assert in_a_small_process(module, "[" * 50 + "2" + "]" * 50) == "False"


def test_a_value_that_holds_itself_fails() -> None:
    assert in_a_small_process("def f():\n    value = []\n    value.append(value)\n    return value\n", "[]") == "False"


def in_a_small_process(module: str, target: str) -> str:
    """Return what the judge says, in a process with little memory: what is compared is made by foreign code."""
    program = """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        from graftline.sandbox import CaseLimits, judge_tests
        from graftline.sandbox.runner import parse_test_spec
        from graftline.sandbox.jail.served import ServedJail
        jail = ServedJail("namespaces", "namespaces", CaseLimits(memory_mb=512, cpu_s=5), ("calls",))
        call = {"function": "f", "expected_python": sys.argv[2]}
        spec = parse_test_spec({"kind": "calls", "module": "m", "calls": [call]})
        try:
            print(judge_tests(jail, {"m.py": sys.argv[1].encode()}, spec).passed)
        except MemoryError:
            print("the judge has no memory left")
        jail.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program), module, target],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    return done.stdout.strip() or done.stderr


def program(jail: ServedJail, text: str, expected: str, **more: Any) -> TestResult:
    spec = {"kind": "program", "arguments": ["main.py", "x"], "expected_stdout": expected, **more}
    return judge_tests(jail, {"main.py": text.encode()}, parse_test_spec(spec))


@in_namespaces
def test_the_output_that_is_expected_passes(jail: ServedJail) -> None:
    result = program(jail, "import sys\nprint(sys.argv[1], input())\n", "x é\n", stdin="é\n")
    assert (result.verdict, result.passed, outcomes(result)) == (Verdict.OK, True, ["passed"])


@in_namespaces
@pytest.mark.parametrize(
    ("text", "more", "error"),
    [
        ("print('y')", {}, "another output than expected"),
        ("print('x', end='')", {}, "another output than expected"),
        ("print('x\\n')", {}, "another output than expected"),
        ("print('x ')", {}, "another output than expected"),
        ("import sys\nprint('x', file=sys.stderr)", {}, "another output than expected"),
        ("import os\nos._exit(0)\nprint('x')", {}, "another output than expected"),
        ("print('x')\nraise SystemExit(1)", {}, "exit code 1"),
        ("print('x')", {"expected_exit_code": 1}, "exit code 0"),
        ("print('x', flush=True)\nimport os\nos.kill(os.getpid(), 9)", {}, "it ended by crash, exit code None"),
    ],
)
def test_anything_else_fails(jail: ServedJail, text: str, more: dict[str, Any], error: str) -> None:
    result = program(jail, text, "x\n", **more)
    assert (result.passed, [(test.outcome, test.error) for test in result.tests]) == (False, [("failed", error)])


@in_namespaces
def test_an_exit_code_may_be_expected(jail: ServedJail) -> None:
    assert program(jail, "print('x')\nraise SystemExit(3)", "x\n", expected_exit_code=3).passed is True


@in_namespaces
def test_output_that_was_cut_off_has_not_passed(jail: ServedJail) -> None:
    limit = 64 << 10
    assert program(jail, f"print('x' * {limit} + 'y', end='')", "x" * limit).passed is False


@in_namespaces
def test_its_own_files_do_not_take_the_place_of_ours(jail: ServedJail) -> None:
    spec = {"arguments": ["main.py"], "expected_stdout": "ours\n", "files": {"main.py": "print('ours')"}}
    result = judge_tests(jail, {"main.py": b"print('theirs')"}, parse_test_spec({"kind": "program", **spec}))
    assert result.passed is True
