"""What the judge says of honest code and of tests in every form: passed, failed, and why."""

from contextlib import closing
from itertools import count

import pytest

from graftline.sandbox import Verdict
from graftline.sandbox.jail.served import ServedJail
from tests.code_under_test import ADD, LIMITS, RIGHT, TESTS, WRONG, by_pytest, in_namespaces, outcomes

# long enough for what a case does before it waits, on a busy machine too
SHORT = LIMITS.model_copy(update={"wall_s": 2.0})


def test_right_code_passes(jail: ServedJail) -> None:
    result = by_pytest(jail, RIGHT)
    assert (result.verdict, result.passed, outcomes(result)) == (Verdict.OK, True, ["passed", "passed"])
    assert (result.error, result.left_out, result.exit_code, result.is_truncated) == ("", (), 0, False)
    assert result.stdout.endswith("2 passed in " + result.stdout.rpartition(" in ")[2])


def test_wrong_code_fails_and_says_how(jail: ServedJail) -> None:
    result = by_pytest(jail, WRONG)
    assert (result.verdict, result.passed, outcomes(result)) == (Verdict.OK, False, ["failed", "failed"])
    assert result.tests[0].error == "AssertionError: assert -1 == 3\n +  where -1 = add(1, 2)"
    assert "2 failed" in result.stdout


@in_namespaces
@pytest.mark.parametrize(
    ("module", "outcome"),
    [
        (RIGHT, "passed"),
        (WRONG, "failed"),
        ("def add(a, b):\n    raise ValueError('x')\n", "failed"),
        ("def add(a, b):\n    import pytest\n    pytest.skip('x')\n", "skipped"),
        ("def add(a, b):\n    import pytest\n    pytest.xfail('x')\n", "failed"),
        ("def add(a, b):\n    import unittest\n    raise unittest.SkipTest('x')\n", "skipped"),
    ],
)
def test_outcomes_are_those_of_the_call(jail: ServedJail, module: str, outcome: str) -> None:
    result = by_pytest(jail, module, TESTS, ADD, trusts="report")
    assert (outcomes(result), result.passed) == ([outcome], outcome == "passed")


FORMS = {
    "in a class": ("class TestA:\n    def test_add(self):\n        assert add(1, 2) == 3\n", "TestA::test_add"),
    "in a class in a class": (
        "class TestA:\n    class TestB:\n        def test_add(self):\n            assert add(1, 2) == 3\n",
        "TestA::TestB::test_add",
    ),
    "a static method": (
        "class TestA:\n    @staticmethod\n    def test_add():\n        assert add(1, 2) == 3\n",
        "TestA::test_add",
    ),
    "a class method": (
        "class TestA:\n    @classmethod\n    def test_add(cls):\n        assert add(1, 2) == 3\n",
        "TestA::test_add",
    ),
    "parametrized": (
        "@pytest.mark.parametrize('a', [1, 'x y'])\ndef test_add(a):\n    assert add(a, a) == 2 * a\n",
        "test_add[x y]",
    ),
    "an id with colons": (
        "@pytest.mark.parametrize('a', ['b::c'])\ndef test_add(a):\n    assert add(a, a) == 2 * a\n",
        "test_add[b::c]",
    ),
    "an id that is not ASCII": (
        "@pytest.mark.parametrize('a', ['é'])\ndef test_add(a):\n    assert add(a, a) == 2 * a\n",
        r"test_add[\xe9]",
    ),
    "an id with a surrogate": (
        "@pytest.mark.parametrize('a', ['\\ud800'])\ndef test_add(a):\n    assert add(a, a) == 2 * a\n",
        r"test_add[\ud800]",
    ),
    "with fixtures": (
        "@pytest.fixture(scope='module')\ndef three():\n    yield 3\n"
        "def test_add(three, tmp_path, capsys, monkeypatch, request):\n    (tmp_path / 'x').write_text('y')\n"
        "    monkeypatch.setenv('A', 'b')\n    print('z')\n    assert capsys.readouterr().out == 'z\\n'\n"
        "    assert add(1, 2) == three\n",
        "test_add",
    ),
    "with set-up and tear-down": (
        "class TestA:\n    def setup_method(self):\n        self.three = 3\n    def teardown_method(self):\n"
        "        del self.three\n    def test_add(self):\n        assert add(1, 2) == self.three\n",
        "TestA::test_add",
    ),
    "wrapped by a decorator of the file": (
        "def twice(f):\n    @functools.wraps(f)\n    def g():\n        f()\n        f()\n    return g\n"
        "@twice\ndef test_add():\n    assert add(1, 2) == 3\n",
        "test_add",
    ),
    "wrapped by a decorator of a library": (
        "@mock.patch('m.os', create=True)\ndef test_add(os):\n    assert add(1, 2) == 3\n",
        "test_add",
    ),
    "by unittest": (
        "class TestA(unittest.TestCase):\n    def setUp(self):\n        self.three = 3\n"
        "    def test_add(self):\n        self.assertEqual(add(1, 2), self.three)\n",
        "TestA::test_add",
    ),
    "by unittest with parts": (
        "class TestA(unittest.TestCase):\n    def test_add(self):\n        for n in (1, 2):\n"
        "            with self.subTest(n=n):\n                self.assertEqual(add(n, n), 2 * n)\n",
        "TestA::test_add",
    ),
    "by unittest in an event loop": (
        "class TestA(unittest.IsolatedAsyncioTestCase):\n    async def test_add(self):\n"
        "        self.assertEqual(add(1, 2), 3)\n",
        "TestA::test_add",
    ),
    "with parts": (
        "def test_add(subtests):\n    for n in (1, 2):\n        with subtests.test(n=n):\n"
        "            assert add(n, n) == 2 * n\n",
        "test_add",
    ),
}


@in_namespaces
@pytest.mark.parametrize("form", FORMS)
def test_right_code_passes_tests_of_every_form_and_wrong_code_fails_them(jail: ServedJail, form: str) -> None:
    text, name = FORMS[form]
    tests = "import functools, pytest, unittest\nfrom unittest import mock\nfrom m import add\n" + text
    right = by_pytest(jail, RIGHT, tests, f"test_m.py::{name}")
    assert (outcomes(right), right.passed, right.error) == (["passed"], True, "")
    wrong = by_pytest(jail, "def add(a, b):\n    return 0\n", tests, f"test_m.py::{name}")
    assert (outcomes(wrong), wrong.passed) == (["failed"], False)


@in_namespaces
@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("class TestA(unittest.TestCase):\n    def setUp(self):\n        1 / 0\n    def test_a(self):\n        pass", "failed"),
        ("class TestA(unittest.TestCase):\n    def tearDown(self):\n        1 / 0\n    def test_a(self):\n        pass", "failed"),
        ("class TestA(unittest.TestCase):\n    def test_a(self):\n        self.skipTest('x')", "skipped"),
        ("class TestA(unittest.TestCase):\n    @unittest.skip('x')\n    def test_a(self):\n        pass", "skipped"),
        ("class TestA(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_a(self):\n        1 / 0", "failed"),
        ("class TestA:\n    def test_a(self):\n        pass\n    def teardown_method(self):\n        1 / 0", "failed"),
        ("class TestA:\n    @pytest.mark.skip\n    def test_a(self):\n        pass", "skipped"),
        ("class TestA:\n    @pytest.mark.xfail\n    def test_a(self):\n        1 / 0", "failed"),
        ("class TestA:\n    async def test_a(self):\n        pass", "failed"),
        ("class TestA:\n    async def test_a(self):\n        yield", "failed"),
        ("class TestA:\n    @sync\n    async def test_a(self):\n        pass", "failed"),
    ],
    ids=[
        "unittest set-up", "unittest tear-down", "unittest skips", "unittest is skipped", "unittest expects failure",
        "tear-down", "skip", "xfail", "coroutine", "asynchronous generator", "wrapped coroutine",
    ],
)  # fmt: skip
def test_a_test_that_did_not_run_to_its_end_has_not_passed(jail: ServedJail, text: str, outcome: str) -> None:
    sync = "def sync(f):\n    def g(self):\n        return f(self)\n    return g\n"
    tests = f"import pytest, unittest\nfrom m import add\n{sync}{text}\n"
    result = by_pytest(jail, RIGHT, tests, "test_m.py::TestA::test_a")
    assert (outcomes(result), result.passed) == ([outcome], False)


BESIDE = "assert add(1, 2) == int((Path(__file__).parent / 'data' / 'three.txt').read_text())"
PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "in folders, with files beside them": (
        "tests/unit/test_a.py::test_add",
        {
            "tests/unit/test_a.py": f"from pathlib import Path\nfrom m import add\ndef test_add():\n    {BESIDE}\n",
            "tests/unit/data/three.txt": "3",
        },
    ),
    "beside what is no valid Python": (ADD, {"test_m.py": TESTS, "data/old.py": "print 'x'\n"}),
    "a function of another file": (ADD, {"shared.py": TESTS, "test_m.py": "from shared import test_add\n"}),
    "a class of another file": (
        "test_m.py::TestA::test_add",
        {
            "shared.py": "from m import add\nclass Shared:\n    def test_add(self):\n        assert add(1, 2) == 3\n",
            "test_m.py": "from shared import Shared\nclass TestA(Shared):\n    pass\n",
        },
    ),
}


@in_namespaces
@pytest.mark.parametrize("place", PLACES)
def test_tests_may_stand_in_several_files(jail: ServedJail, place: str) -> None:
    expected, tests = PLACES[place]
    assert [by_pytest(jail, code, tests, expected).passed for code in (RIGHT, WRONG)] == [True, False]


@in_namespaces
def test_what_is_expected_and_did_not_run_has_not_passed(jail: ServedJail) -> None:
    result = by_pytest(jail, RIGHT, TESTS, ADD, "test_m.py::test_absent", "test_m.py::TestA::test_add")
    assert (result.verdict, result.passed) == (Verdict.OK, False)
    assert outcomes(result) == ["passed", "not_run", "not_run"]


@in_namespaces
def test_what_is_not_expected_may_fail(jail: ServedJail) -> None:
    result = by_pytest(jail, "def add(a, b):\n    return 3\n", TESTS, ADD)
    assert (outcomes(result), result.passed) == (["passed"], True)


@in_namespaces
@pytest.mark.parametrize("module", ["1 / 0", "def", "import absent", "raise BaseException", "import sys; sys.exit(0)"])
def test_code_that_cannot_be_imported_has_not_passed(jail: ServedJail, module: str) -> None:
    result = by_pytest(jail, module)
    assert (outcomes(result), result.passed) == (["not_run", "not_run"], False)


@pytest.mark.parametrize("wait", ["time.sleep(60)", "os.kill(os.getpid(), signal.SIGSTOP)"])
def test_code_that_waits_until_its_time_is_over_has_failed(wait: str) -> None:
    with closing(ServedJail("namespaces", "namespaces", SHORT, ("pytest",))) as jail:
        result = by_pytest(jail, f"import os, signal, time\ndef add(a, b):\n    {wait}\n", trusts="report")
    assert (result.verdict, result.passed, outcomes(result)) == (Verdict.TIMED_OUT, False, ["not_run", "not_run"])
    assert result.error == "it did not end within 2 s (wall_s), though the machine was free"


def test_of_code_that_the_machine_kept_from_running_nothing_is_known() -> None:
    late = count(0, 1)  # a heartbeat takes a second
    with closing(ServedJail("namespaces", "namespaces", SHORT, ("pytest",), clock=lambda: next(late))) as jail:
        result = by_pytest(jail, "import time\ndef add(a, b):\n    time.sleep(60)\n", trusts="report")
    assert (result.verdict, result.passed, outcomes(result)) == (Verdict.WALL_TIMEOUT, None, ["not_run", "not_run"])
    assert result.error.startswith("wall_s is over, and the machine was not free: a heartbeat beside it was late by ")


@in_namespaces
@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("def add(a, b):\n    raise ValueError('\\ud800é\\0\\x1b')\n", "ValueError: \\ud800é\0\x1b"),
        ("def add(a, b):\n    raise ValueError('é' * 100_000)\n", "ValueError: " + "é" * 1988),
        (
            "class E:\n    def __repr__(self):\n        raise RuntimeError\ndef add(a, b):\n    return E()\n",
            "AssertionError: ",
        ),
        ("class E(Exception):\n    def __str__(self):\n        raise RuntimeError\ndef add(a, b):\n    raise E\n", "E"),
    ],
    ids=["surrogate", "long", "no repr", "no str"],
)
def test_any_message_can_be_told(jail: ServedJail, module: str, error: str) -> None:
    result = by_pytest(jail, module, TESTS, ADD)
    assert (result.verdict, outcomes(result)) == (Verdict.OK, ["failed"])
    assert result.tests[0].error.startswith(error)
    assert len(result.tests[0].error) <= 2000


@in_namespaces
def test_what_would_run_before_the_tests_is_left_out(jail: ServedJail) -> None:
    names = ["conftest.py", "a/Conftest.py", "sitecustomize.py", "x.pth", "__pycache__/m.pyc", "__PYCACHE__/x", "y.pyo"]
    result = by_pytest(jail, RIGHT, more={name: b"import os; os._exit(0)" for name in names})
    assert (result.passed, result.left_out) == (True, tuple(sorted(names)))
