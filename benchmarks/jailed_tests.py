"""How long a case of foreign code takes in the jail, and what the same takes without one."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from graftline.sandbox import Case, JailConfig, PytestSpec, Verdict, judge_tests, open_jail

_PROGRAM = b"print(sum(range(10)))\n"
_MODULE = b"def add(a, b):\n    return a + b\n"
_TESTS = (
    "from m import add\n\n\ndef test_small():\n    assert add(1, 2) == 3\n\n\ndef test_large():\n"
    "    assert add(10**9, 1) == 10**9 + 1\n"
)
_SPEC = PytestSpec(files={"test_m.py": _TESTS}, expected=("test_m.py::test_small", "test_m.py::test_large"))


def jailed_tests(repetitions: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return milliseconds of a program and of two tests by pytest, and those of the same as bare commands.

    Jail and bare command take turns, so that a slow minute slows both.
    """
    with closing(open_jail(JailConfig())) as jail, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "case.py").write_bytes(_PROGRAM)
        (folder / "m.py").write_bytes(_MODULE)
        (folder / "test_m.py").write_text(_TESTS, "utf-8")
        case = Case("python", ("case.py",), {"case.py": _PROGRAM})

        def program() -> None:
            assert jail.run(case).stdout == b"45\n"

        def tests() -> None:
            result = judge_tests(jail, {"m.py": _MODULE}, _SPEC)
            assert (result.verdict, result.passed) == (Verdict.OK, True), result

        def bare(*arguments: str) -> Callable[[], object]:
            command = [sys.executable, *arguments]
            return lambda: subprocess.run(command, cwd=folder, capture_output=True, check=True)

        seconds: dict[str, list[float]] = {}
        for repetition in range(-1, repetitions):
            ways: dict[str, Callable[[], object]] = {
                "program": program,
                "pytest": tests,
                "python case.py": bare("case.py"),
                "python -m pytest": bare("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_m.py"),
            }
            for way, work in ways.items():
                started = time.perf_counter()
                work()
                if repetition >= 0:
                    seconds.setdefault(way, []).append(time.perf_counter() - started)
        isolation = jail.isolation.level
    medians = {way: statistics.median(found) * 1000 for way, found in seconds.items()}
    figures = {
        "isolation": isolation,
        "program_ms": round(medians["program"], 1),
        "two_tests_ms": round(medians["pytest"], 1),
    }
    return figures, {
        way: {"ms": round(medians[way], 1), "times_as_fast": round(medians[way] / medians[ours], 1)}
        for way, ours in (("python case.py", "program"), ("python -m pytest", "pytest"))
    }
