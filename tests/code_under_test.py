"""Code that is to be judged, right and wrong, with its tests, and how the judge is asked about it."""

from collections.abc import Mapping
from typing import Any

import pytest

from graftline.sandbox import CaseLimits, TestResult, judge_tests
from graftline.sandbox.jail.served import ServedJail
from graftline.sandbox.runner import parse_test_spec

LIMITS = CaseLimits(cpu_s=5, wall_s=30, memory_mb=512, disk_mb=8, output_kb=64, processes=16, files=200)
RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
TESTS = "from m import add\n\ndef test_add():\n    assert add(1, 2) == 3\n\ndef test_other():\n    x = add(2, 2)\n    assert x == 4\n"
ADD, OTHER = "test_m.py::test_add", "test_m.py::test_other"

in_namespaces = pytest.mark.parametrize("jail", ["namespaces"], indirect=True, scope="module")
in_confined = pytest.mark.parametrize("jail", ["confined"], indirect=True, scope="module")


def by_pytest(
    jail: ServedJail,
    module: str,
    tests: str | Mapping[str, str] = TESTS,
    *expected: str,
    more: Mapping[str, bytes] | None = None,
    trusts: str = "values",
) -> TestResult:
    laid = {"m.py": module.encode(), **(more or {})}
    named = {"test_m.py": tests} if isinstance(tests, str) else dict(tests)
    spec = {"kind": "pytest", "files": named, "expected": expected or (ADD, OTHER), "trusts": trusts}
    return judge_tests(jail, laid, parse_test_spec(spec))


def by_calls(jail: ServedJail, module: str, *calls: Mapping[str, Any]) -> TestResult:
    laid = {"m.py": module.encode("utf-8", "surrogatepass")}
    return judge_tests(jail, laid, parse_test_spec({"kind": "calls", "module": "m", "calls": calls}))


def outcomes(result: TestResult) -> list[str]:
    return [test.outcome for test in result.tests]
