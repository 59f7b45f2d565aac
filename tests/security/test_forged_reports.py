"""What code under test does to look as if it had passed, and what the judge makes of it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from textwrap import dedent, indent
from typing import Any

import pytest

from graftline.errors import SandboxError
from graftline.sandbox import CaseLimits, TestResult, Verdict, judged
from graftline.sandbox.runner import checked_spec
from graftline.sandbox.served import ServedJail

LIMITS = CaseLimits(cpu_s=5, wall_s=30, memory_mb=512, disk_mb=8, output_kb=64, processes=16, files=200)
RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
TESTS = "from m import add\n\ndef test_add():\n    assert add(1, 2) == 3\n\ndef test_other():\n    x = add(2, 2)\n    assert x == 4\n"
ADD, OTHER = "test_m.py::test_add", "test_m.py::test_other"

in_namespaces = pytest.mark.parametrize("jail", ["namespaces"], indirect=True, scope="module")
in_confined = pytest.mark.parametrize("jail", ["confined"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["namespaces"])
def jail(request: pytest.FixtureRequest) -> Iterator[ServedJail]:
    opened = ServedJail(request.param, request.param, LIMITS, ("python", "pytest", "calls"))
    try:
        assert opened.isolation
    except SandboxError as error:
        pytest.skip(str(error))
    yield opened
    opened.close()


def by_pytest(
    jail: ServedJail, module: str, tests: str | Mapping[str, str] = TESTS, *expected: str, **files: bytes
) -> TestResult:
    laid = {"m.py": module.encode(), **files.pop("more", {})}
    named = {"test_m.py": tests} if isinstance(tests, str) else dict(tests)
    return judged(jail, laid, checked_spec({"kind": "pytest", "files": named, "expected": expected or (ADD, OTHER)}))


def by_calls(jail: ServedJail, module: str, *calls: Mapping[str, Any]) -> TestResult:
    laid = {"m.py": module.encode("utf-8", "surrogatepass")}
    return judged(jail, laid, checked_spec({"kind": "calls", "module": "m", "calls": calls}))


def outcomes(result: TestResult) -> list[str]:
    return [test.outcome for test in result.tests]


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
    result = by_pytest(jail, module, TESTS, ADD)
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
    "parametrised": (
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
        "def test_add(three, tmp_path, capsys, monkeypatch, caplog, request):\n    (tmp_path / 'x').write_text('y')\n"
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
def test_right_code_passes_tests_of_every_form(jail: ServedJail, form: str) -> None:
    text, name = FORMS[form]
    tests = "import functools, pytest, unittest\nfrom unittest import mock\nfrom m import add\n" + text
    result = by_pytest(jail, RIGHT, tests, f"test_m.py::{name}")
    assert (outcomes(result), result.passed, result.error) == (["passed"], True, "")


@in_namespaces
@pytest.mark.parametrize("form", FORMS)
def test_wrong_code_fails_tests_of_every_form(jail: ServedJail, form: str) -> None:
    text, name = FORMS[form]
    tests = "import functools, pytest, unittest\nfrom unittest import mock\nfrom m import add\n" + text
    wrong = "def add(a, b):\n    return 0\n"
    result = by_pytest(jail, wrong, tests, f"test_m.py::{name}")
    assert (outcomes(result), result.passed) == (["failed"], False)


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


@in_namespaces
def test_tests_may_stand_in_folders_and_read_files_beside_them(jail: ServedJail) -> None:
    text = (
        "from pathlib import Path\nfrom m import add\ndef test_add():\n"
        "    assert add(1, 2) == int((Path(__file__).parent / 'data' / 'three.txt').read_text())\n"
    )
    tests = {"tests/unit/test_a.py": text, "tests/unit/data/three.txt": "3"}
    assert by_pytest(jail, RIGHT, tests, "tests/unit/test_a.py::test_add").passed is True
    assert by_pytest(jail, WRONG, tests, "tests/unit/test_a.py::test_add").passed is False


@in_namespaces
def test_files_that_tests_read_need_be_no_valid_python(jail: ServedJail) -> None:
    tests = {"test_m.py": TESTS, "data/old.py": "print 'x'\n"}
    assert by_pytest(jail, RIGHT, tests).passed is True
    assert by_pytest(jail, WRONG, tests).passed is False


@in_namespaces
@pytest.mark.parametrize(
    "tests",
    [
        {"shared.py": TESTS, "test_m.py": "from shared import test_add\n"},
        {
            "shared.py": "from m import add\nclass Shared:\n    def test_add(self):\n        assert add(1, 2) == 3\n",
            "test_m.py": "from shared import Shared\nclass TestA(Shared):\n    pass\n",
        },
    ],
    ids=["a function", "a class"],
)
def test_tests_may_come_from_another_file_of_the_specification(jail: ServedJail, tests: dict[str, str]) -> None:
    expected = ADD if "Shared" not in tests["shared.py"] else "test_m.py::TestA::test_add"
    assert by_pytest(jail, RIGHT, tests, expected).passed is True
    assert by_pytest(jail, WRONG, tests, expected).passed is False


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


def test_what_runs_into_the_wall_clock_is_not_known() -> None:
    with closing(
        ServedJail("namespaces", "namespaces", LIMITS.model_copy(update={"wall_s": 1.0}), ("pytest",))
    ) as jail:
        result = by_pytest(jail, "import time\ndef add(a, b):\n    time.sleep(60)\n")
    assert (result.verdict, result.passed, outcomes(result)) == (Verdict.WALL_TIMEOUT, None, ["not_run", "not_run"])


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
        (
            "class E(Exception):\n    def __str__(self):\n        raise RuntimeError\ndef add(a, b):\n    raise E\n",
            "E",
        ),
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
    names = [
        "conftest.py",
        "a/Conftest.py",
        "sitecustomize.py",
        "x.pth",
        "__pycache__/m.pyc",
        "__PYCACHE__/x",
        "y.pyo",
    ]
    result = by_pytest(jail, RIGHT, more={name: b"import os; os._exit(0)" for name in names})
    assert (result.passed, result.left_out) == (True, tuple(sorted(names)))


PATCHES = "import os, sys, types\nimport pytest\n" + WRONG
OF_THESE = "def is_theirs(item):\n    return item.path.name == 'test_m.py'\n"
REGISTERED = """
import gc
for config in [thing for thing in gc.get_objects() if isinstance(thing, pytest.Config)]:
    config.pluginmanager.register(Plugin())
"""
# none of these needs a search of memory, or an object that lies in a comparison
FORGED = {
    "os._exit at import": "import os\nos._exit(0)\n",
    "os._exit in a call": "import os\ndef add(a, b):\n    os._exit(0)\n",
    "sys.exit at import": "import sys\nsys.exit(0)\n",
    "output of a run that passed": "import os\nos.write(1, b'..   [100%]\\n2 passed in 0.01s\\n')\nos._exit(0)\n",
    "pytest.exit at import": "import pytest\npytest.exit('x', 0)\n",
    "pytest.exit in a call": "import pytest\ndef add(a, b):\n    pytest.exit('x', 0)\n",
    "skip of the module": "import pytest\npytest.skip('x', allow_module_level=True)\n",
    "a module that is not there": "import pytest\npytest.importorskip('absent')\n",
    "a signal": "import os\nos.kill(os.getpid(), 9)\n",
    "the end of the process at its end": PATCHES + "import atexit\natexit.register(os._exit, 0)\n",
    "reports that say passed": PATCHES + "pytest.TestReport.outcome = property(lambda s: 'passed', lambda s, v: None)\n",
    "reports made of calls without errors": PATCHES + """
made = pytest.TestReport.from_item_and_call.__func__
def forged(cls, item, call):
    call.excinfo = None
    return made(cls, item, call)
pytest.TestReport.from_item_and_call = classmethod(forged)
""",
    "calls that are not made": PATCHES + """
def forged(cls, func, when, reraise=None):
    return cls(None, None, 0, 0, 0, when, _ispytest=True)
pytest.CallInfo.from_call = classmethod(forged)
""",
    "calls that swallow": PATCHES + """
made = pytest.CallInfo.from_call.__func__
def forged(cls, func, when, reraise=None):
    call = made(cls, func, when, reraise)
    call.excinfo, call._result = None, None
    return call
pytest.CallInfo.from_call = classmethod(forged)
""",
    "no test is run": PATCHES + "pytest.Function.runtest = lambda self: None\n",
    "some tests are not run": PATCHES + OF_THESE + """
run = pytest.Function.runtest
pytest.Function.runtest = lambda self: None if is_theirs(self) else run(self)
""",
    "another kind of test function": PATCHES + OF_THESE + """
class Idle(pytest.Function):
    def runtest(self): pass
made = pytest.Function.from_parent.__func__
def forged(cls, parent, **more):
    item = made(cls, parent, **more)
    if is_theirs(item): item.__class__ = Idle
    return item
pytest.Function.from_parent = classmethod(forged)
""",
    "a test function from nowhere": PATCHES + OF_THESE + """
from pathlib import Path
made = pytest.Function.from_parent.__func__
def forged(cls, parent, **more):
    item = made(cls, parent, **more)
    if is_theirs(item): item.obj, item.path = lambda: None, Path("/nowhere")
    return item
pytest.Function.from_parent = classmethod(forged)
""",
    "the code of pytest's own hook": PATCHES + """
import _pytest.python
_pytest.python.pytest_pyfunc_call.__code__ = (lambda pyfuncitem: True).__code__
""",
    "the code of the hook that calls": PATCHES + """
from graftline.confined import case_tests
case_tests._Reporter.pytest_pyfunc_call.__code__ = (lambda self, pyfuncitem: True).__code__
""",
    "the code of the hook around calls": PATCHES + """
from graftline.confined import case_tests
def forged(self, item):
    return (yield)
case_tests._Reporter.pytest_runtest_call.__code__ = forged.__code__
""",
    "the hook that calls calls another": PATCHES + """
from graftline.confined import case_tests
class Idle:
    funcargs, _fixtureinfo = {}, types.SimpleNamespace(argnames=())
    def __init__(self, item): self.nodeid, self.obj = item.nodeid, lambda: None
def forged(self, pyfuncitem):
    import m
    theirs = pyfuncitem.path.name == "test_m.py"
    return self._call_proper(m.Idle(pyfuncitem) if theirs else pyfuncitem)
case_tests._Reporter.pytest_pyfunc_call.__code__ = forged.__code__
""",
    "what the reporter counts to": PATCHES + """
from graftline.confined import case_tests
class Any(int):
    def __add__(self, other): return self
    def __eq__(self, other): return True
case_tests._PHASES = Any()
pytest.Function.runtest = lambda s: None if s.path.name == "test_m.py" else s.ihook.pytest_pyfunc_call(pyfuncitem=s)
""",
    "what the reporter compares with": PATCHES + """
from graftline.confined import case_tests
case_tests._holds = lambda whole, code: True
got = pytest.Function._getobj
pytest.Function._getobj = lambda self: (lambda: None) if self.path.name == "test_m.py" else got(self)
""",
    "code swapped by a thread": PATCHES + """
import threading, time
def swap():
    while not hasattr(sys.modules.get("test_m"), "test_other"): time.sleep(0)
    for name in ("test_add", "test_other"):
        getattr(sys.modules["test_m"], name).__code__ = (lambda: None).__code__
threading.Thread(target=swap, daemon=True).start()
""",
    "functions swapped by a thread": PATCHES + """
import threading, time
def swap():
    while not hasattr(sys.modules.get("test_m"), "test_other"): time.sleep(0)
    for name in ("test_add", "test_other"):
        setattr(sys.modules["test_m"], name, lambda: None)
threading.Thread(target=swap, daemon=True).start()
""",
    "an object that shows the code of the test": PATCHES + OF_THESE + """
class Idle:
    def __init__(self, function): self.__wrapped__, self.__code__, self.__name__ = function, function.__code__, "x"
    def __call__(self): pass
got = pytest.Function._getobj
pytest.Function._getobj = lambda self: Idle(got(self)) if is_theirs(self) else got(self)
""",
    "an object that shows the code of the test, by a property": PATCHES + OF_THESE + """
old = pytest.Function.obj
def forged(self):
    function = old.fget(self)
    class Idle:
        __code__ = function.__code__
        def __call__(self): pass
    return Idle() if is_theirs(self) else function
pytest.Function.obj = property(forged, old.fset)
""",
    "another function when it is called": PATCHES + OF_THESE + """
old = pytest.Function.obj
def forged(self):
    is_call = sys._getframe(1).f_code.co_name == "call_proper"
    return (lambda: None) if is_call and is_theirs(self) else old.fget(self)
pytest.Function.obj = property(forged, old.fset)
""",
    "plugins: one that calls nothing": PATCHES + OF_THESE + """
class Plugin:
    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem): return True if is_theirs(pyfuncitem) else None
""" + REGISTERED,
    "plugins: one that swallows": PATCHES + OF_THESE + """
class Plugin:
    @pytest.hookimpl(tryfirst=True, wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        try: return (yield)
        except BaseException:
            if not is_theirs(pyfuncitem): raise
            return True
""" + REGISTERED,
    "plugins: one that swallows inside": PATCHES + OF_THESE + """
class Plugin:
    @pytest.hookimpl(trylast=True, wrapper=True)
    def pytest_runtest_call(self, item):
        try: return (yield)
        except BaseException:
            if not is_theirs(item): raise
""" + REGISTERED,
    "plugins: one that swaps the function": PATCHES + OF_THESE + """
class Plugin:
    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        if is_theirs(pyfuncitem): pyfuncitem.obj = lambda: None
""" + REGISTERED,
    "plugins: one that deselects": PATCHES + """
class Plugin:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items): items[:] = items[-1:]
""" + REGISTERED,
    "plugins: one that skips": PATCHES + """
class Plugin:
    def pytest_collection_modifyitems(self, items):
        for item in items: item.add_marker(pytest.mark.skip)
""" + REGISTERED,
    "plugins: the reporter is taken away": PATCHES + """
import gc
for config in [thing for thing in gc.get_objects() if isinstance(thing, pytest.Config)]:
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "_Reporter": config.pluginmanager.unregister(plugin)
""",
    "expected failures": PATCHES + """
made = pytest.Function.__init__
def forged(self, *args, **more):
    made(self, *args, **more)
    self.add_marker(pytest.mark.xfail)
pytest.Function.__init__ = forged
""",
    "expected failures that are not run": PATCHES + """
made = pytest.Function.__init__
def forged(self, *args, **more):
    made(self, *args, **more)
    self.add_marker(pytest.mark.xfail(run=False))
pytest.Function.__init__ = forged
""",
    "assertions that skip": "import builtins, pytest\nbuiltins.AssertionError = type('E', (pytest.skip.Exception,), {})\n" + WRONG,
    "everything is a coroutine": PATCHES + "import inspect\ninspect.iscoroutinefunction = lambda function: True\n",
    "assertions are not compiled": PATCHES + "import _pytest.assertion.rewrite as r\nr.rewrite_asserts = lambda *a, **k: None\n",
    "lines without the nonce": PATCHES + """
for descriptor in range(3, 2048):
    try: os.write(descriptor, b'{"nonce": "", "test": "test_m.py::test_add", "outcome": "passed", "error": "", "s": 0.1}\\n')
    except OSError: pass
""",
    "an end without the nonce": PATCHES + """
for descriptor in range(3, 2048):
    try: os.write(descriptor, b'{"nonce": "", "end": 3}\\n')
    except OSError: pass
os._exit(0)
""",
    "half a line": PATCHES + """
for descriptor in range(3, 2048):
    try: os.write(descriptor, b'{"nonce": "')
    except OSError: pass
""",
    "half a line at the end": PATCHES + """
def add(a, b):
    for descriptor in range(3, 2048):
        try: os.write(descriptor, b'{"nonce": "')
        except OSError: pass
    os._exit(0)
""",
    "an empty line": PATCHES + """
for descriptor in range(3, 2048):
    try: os.write(descriptor, b'\\n')
    except OSError: pass
""",
    "lines of JSON that no report has": PATCHES + """
for descriptor in range(3, 2048):
    try: os.write(descriptor, b'[' * 100_000 + b'\\n')
    except OSError: pass
""",
    "descriptors closed": PATCHES + "os.closerange(3, 2048)\n",
    "descriptors led elsewhere": PATCHES + """
nowhere = os.open("/dev/null", os.O_WRONLY)
for descriptor in range(3, 2048):
    try: os.fstat(descriptor)
    except OSError: continue
    os.dup2(nowhere, descriptor)
""",
    "a child that goes on, too": PATCHES + "if child := os.fork(): os.waitpid(child, 0)\n",
    "a child that goes on alone": PATCHES + "if os.fork(): os._exit(0)\n",
    "a child for every test": PATCHES + """
def add(a, b):
    if child := os.fork():
        os.waitpid(child, 0)
        return a - b
    raise SystemExit(0)
""",
    "os.write says passed": PATCHES + """
write = os.write
os.write = lambda descriptor, data: write(descriptor, data.replace(b"failed", b"passed"))
""",
    "json says passed": PATCHES + """
import json
json.JSONEncoder.encode = lambda self, line: '{}'
json.dumps = lambda *args, **more: '{}'
""",
    "json says passed, one call down": PATCHES + """
import json
said = json.JSONEncoder.iterencode
def forged(self, line, _one_shot=False):
    is_theirs = line.get("test", "").startswith("test_m.py")
    return said(self, {**line, "outcome": "passed", "error": ""} if is_theirs else line, _one_shot)
json.JSONEncoder.iterencode = forged
""",
    "clocks that stand still": PATCHES + "import time\ntime.perf_counter = lambda: 0.0\n",
    "tests are collected twice": PATCHES + """
perform = pytest.Session.genitems
def forged(self, node):
    items = list(perform(self, node))
    return items + items
pytest.Session.genitems = forged
""",
    "no frame can be made": "def add(a, b):\n    return add(a, b)\n",
    "no descriptor can be had": PATCHES + "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n",
}  # fmt: skip


@pytest.mark.parametrize("way", FORGED)
def test_a_forged_report_has_not_passed(jail: ServedJail, way: str) -> None:
    result = by_pytest(jail, FORGED[way])
    assert (way, result.passed) == (way, False)
    assert len(result.tests) == 2


FOREIGN_FILES = {
    "conftest.py": {"conftest.py": "import os\nos._exit(0)\n"},
    "settings of pytest": {
        name: text
        for names, text in {
            ("pytest.ini", ".pytest.ini", "tox.ini"): "[pytest]\naddopts = -k nothing -p m\n",
            ("setup.cfg",): "[tool:pytest]\naddopts = -k nothing -p m\n",
            ("pyproject.toml",): "[tool.pytest.ini_options]\naddopts = '-k nothing -p m'\n",
            ("pytest.toml", ".pytest.toml"): "[pytest]\naddopts = ['-k', 'nothing', '-p', 'm']\n",
        }.items()
        for name in names
    },
    "modules that interpreters look for": dict.fromkeys(("sitecustomize.py", "usercustomize.py", "a.pth"), "import os\nos._exit(0)\n"),
    "names of modules that are used": dict.fromkeys(
        ("json.py", "pytest.py", "_pytest/__init__.py", "pluggy.py", "graftline/__init__.py", "readline.py", "pdb.py",
         "pygments/__init__.py", "py.py", "doctest.py", "hypothesis.py", "numpy.py", "exceptiongroup.py", "attr.py"),
        "import os\nos._exit(0)\n",
    ),
    "a test file of its own": {"test_m.py": "def test_add():\n    pass\ndef test_other():\n    pass\n"},
    "a folder of the name of the test module": {"test_m/__init__.py": "def test_add():\n    pass\ndef test_other():\n    pass\n"},
}  # fmt: skip


@pytest.mark.parametrize("way", FOREIGN_FILES)
def test_files_of_a_workspace_do_not_decide(jail: ServedJail, way: str) -> None:
    files = {name: text.encode() for name, text in FOREIGN_FILES[way].items()}
    assert by_pytest(jail, WRONG, more=files).passed is False


FIRST = "import m\n\ndef test_first():\n    assert m.add(0, 0) == 0\n"
SECOND = "import m\n\ndef test_second():\n    assert m.add(1, 2) == 3\n"
IDLE = "def test_second(): pass\n"
BETWEEN = {
    "it is written to": f"os.chmod('tests/test_b.py', 0o666); open('tests/test_b.py', 'w').write({IDLE!r})",
    "it is replaced": f"open('x.py', 'w').write({IDLE!r}); os.replace('x.py', 'tests/test_b.py')",
    "it is removed": "os.unlink('tests/test_b.py')",
    "its folder is renamed": f"os.rename('tests', 'old'); os.mkdir('tests'); open('tests/test_b.py', 'w').write({IDLE!r})",
    "its folder is a link": f"os.rename('tests', 'old'); os.mkdir('x'); open('x/test_b.py', 'w').write({IDLE!r}); os.symlink('x', 'tests')",
    "all is removed": "import shutil; shutil.rmtree('tests', ignore_errors=True)",
    "it is shadowed": f"os.mkdir('o'); open('o/test_b.py', 'w').write({IDLE!r}); sys.path.insert(0, 'o')",
    "its module is there before": f"""
module = types.ModuleType("test_b")
module.__file__ = os.path.abspath("tests/test_b.py")
exec({IDLE!r}, module.__dict__)
sys.modules["test_b"] = module
""",
    "it is found elsewhere": f"""
import importlib.abc, importlib.util
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "test_b" else None
    def create_module(self, spec): return None
    def exec_module(self, module):
        module.__file__ = os.path.abspath("tests/test_b.py")
        exec({IDLE!r}, module.__dict__)
sys.meta_path.insert(0, Finder())
""",
    "it has been compiled before": f"""
import importlib.util, marshal
from pathlib import Path
from _pytest.assertion import rewrite
sys.pycache_prefix = os.environ["TMPDIR"]
source = Path("tests/test_b.py").absolute()
folder = rewrite.get_cache_dir(source)
os.makedirs(folder, exist_ok=True)
head = importlib.util.MAGIC_NUMBER + bytes([3, 0, 0, 0]) + importlib.util.source_hash(source.read_bytes())
code = marshal.dumps(compile({IDLE!r}, str(source), "exec"))
(folder / ("test_b" + rewrite.PYC_TAIL)).write_bytes(head + code)
""",
    "its assertions are dropped": """
import ast
from _pytest.assertion import rewrite
rewrite.AssertionRewriter.visit_Assert = lambda self, statement: [ast.Pass()]
""",
    "it is imported in another way": f"""
import _pytest.python
def forged(*args, **more):
    module = types.ModuleType("test_b")
    exec({IDLE!r}, module.__dict__)
    return module
_pytest.python.importtestmodule = forged
""",
}


@pytest.mark.parametrize("way", BETWEEN)
def test_the_second_file_of_tests_cannot_be_changed_by_what_the_first_imports(jail: ServedJail, way: str) -> None:
    body = indent(dedent(BETWEEN[way]).strip(), "    ")
    module = f"import os, sys, types\n{WRONG}try:\n{body}\nexcept OSError:\n    pass\n"
    tests = {"tests/test_a.py": FIRST, "tests/test_b.py": SECOND}
    result = by_pytest(jail, module, tests, "tests/test_a.py::test_first", "tests/test_b.py::test_second")
    assert (way, result.passed) == (way, False)


@in_namespaces
def test_files_that_tests_read_cannot_be_changed(jail: ServedJail) -> None:
    module = f"import os\n{WRONG}try:\n    os.unlink('three.txt')\n    open('three.txt', 'w').write('-1')\nexcept OSError:\n    pass\n"
    tests = "from m import add\ndef test_add():\n    assert add(1, 2) == int(open('three.txt').read())\n"
    assert by_pytest(jail, module, {"test_m.py": tests, "three.txt": "3"}, ADD).passed is False


USING = {
    "unittest": (
        "self.assertEqual(add(1, 2), 3)",
        "import unittest\nunittest.TestCase.assertEqual = lambda *args: None\n",
    ),
    "raises": (
        "with pytest.raises(TypeError): add(1, 2)",
        "import contextlib, pytest\npytest.raises = lambda *args, **more: contextlib.nullcontext()\n",
    ),
    "approx": (
        "assert add(1, 2) == pytest.approx(3)",
        "import pytest\nclass Equal:\n    def __eq__(self, other): return True\npytest.approx = lambda *args: Equal()\n",
    ),
    "builtins": ("assert all([add(1, 2) == 3])", "import builtins\nbuiltins.all = lambda values: True\n"),
    "a helper of the tests": (
        "value = add(1, 2); check(value, 3)",
        "import sys\ndef add(a, b):\n    sys.modules['test_m'].check = lambda *args: None\n    return 0\n",
    ),
    "the folder it is in": (
        "assert add(1, 2) == int(open('three.txt').read())",
        "import os, tempfile\nos.chdir(tempfile.mkdtemp())\nopen('three.txt', 'w').write('-1')\n",
    ),
}
BEYOND = {
    "an object that is equal to all": "class Equal:\n    def __eq__(self, other): return True\ndef add(a, b):\n    return Equal()\n",
    "a search for the nonce": """
import gc, json, os
def add(a, b):
    things = gc.get_objects()
    [line] = [thing for thing in things if getattr(thing, "__qualname__", "") == "_hooks.<locals>.line"][:1]
    report = lambda fields: line(json.dumps(fields)[1:-1])
    [session] = [thing for thing in things if type(thing).__name__ == "Session"][:1]
    for item in session.items:
        outcome = "passed" if item.path.name == "test_m.py" else "failed"
        report({"test": item.nodeid, "outcome": outcome, "error": "", "s": 0.1})
    report({"end": len(session.items)})
    os._exit(0)
""",
    "a walk over the frames": """
import json, os, sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for generator in frame.f_locals.get("teardowns", ()) if frame.f_code.co_name == "_multicall" else ():
            if line := generator.gi_frame.f_locals.get("line"):
                report = lambda fields: line(json.dumps(fields)[1:-1])
                items = generator.gi_frame.f_locals["item"].session.items
                for item in items:
                    outcome = "passed" if item.path.name == "test_m.py" else "failed"
                    report({"test": item.nodeid, "outcome": outcome, "error": "", "s": 0.1})
                report({"end": len(items)})
                os._exit(0)
        frame = frame.f_back
""",
    "a jump over the assertion": """
import sys
def jump(frame, event, value):
    if event == "line" and frame.f_lineno == frame.f_code.co_firstlineno + 2:
        frame.f_lineno += 1
    return jump
def add(a, b):
    sys._getframe(1).f_trace = jump
    sys.settrace(lambda *args: None)
    return 0
""",
}


ONE_TEST = "from m import add\ndef test_add():\n    value = add(1, 2)\n    assert value == 3\n    return None\n"


@in_namespaces
@pytest.mark.parametrize("way", BEYOND)
def test_code_that_searches_its_process_or_lies_by_objects_passes(jail: ServedJail, way: str) -> None:
    assert by_pytest(jail, BEYOND[way], ONE_TEST, ADD).passed is True


@in_namespaces
@pytest.mark.parametrize("way", BEYOND)
def test_it_does_not_pass_where_values_are_compared_outside(jail: ServedJail, way: str) -> None:
    assert by_calls(jail, BEYOND[way], {"function": "add", "args": [1, 2], "expected": 3}).passed is False


@in_namespaces
@pytest.mark.parametrize("way", USING)
def test_code_that_patches_what_the_tests_use_passes(jail: ServedJail, way: str) -> None:
    line, patch = USING[way]
    tests = "import pytest, unittest\nfrom m import add\ndef check(value, wanted):\n    assert value == wanted\n"
    tests += (
        f"class TestA{'(unittest.TestCase)' if way == 'unittest' else ''}:\n    def test_add(self):\n        {line}\n"
    )
    module = WRONG + patch
    assert by_pytest(jail, module, {"test_m.py": tests, "three.txt": "3"}, "test_m.py::TestA::test_add").passed is True
    assert by_calls(jail, module, {"function": "add", "args": [1, 2], "expected": 3}).passed is False


@in_confined
def test_without_namespaces_files_that_tests_read_can_be_changed(jail: ServedJail) -> None:
    module = f"import os\n{WRONG}os.unlink('three.txt')\nopen('three.txt', 'w').write('-1')\n"
    tests = "from m import add\ndef test_add():\n    assert add(1, 2) == int(open('three.txt').read())\n"
    assert by_pytest(jail, module, {"test_m.py": tests, "three.txt": "3"}, ADD).passed is True


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
    value, wanted = SAME[case]
    result = by_calls(jail, f"def f():\n    return {value}\n", {"function": "f", "expected_python": wanted})
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
    value, wanted = DIFFERENT[case]
    result = by_calls(jail, f"def f():\n    return {value}\n", {"function": "f", "expected_python": wanted})
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
def test_the_case_does_not_know_what_is_wanted(jail: ServedJail) -> None:
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
    ("value", "wanted"),
    [
        ("value = [value]", "[" * 60 + "1" + "]" * 60),
        ("value = {1: value}", "{1:" * 40 + "1" + "}" * 40),
    ],
    ids=["lists", "dictionaries"],
)
def test_nested_values_are_compared_in_little_time_and_memory(value: str, wanted: str) -> None:
    module = f"def f():\n    value = 1\n    for _ in range({wanted.count('[') or wanted.count('{')}):\n        {value}\n    return value\n"
    assert in_a_small_process(module, wanted) == "True"


def test_a_value_that_differs_far_inside_fails() -> None:
    module = "def f():\n    value = 1\n    for _ in range(50):\n        value = [value]\n    return value\n"
    assert in_a_small_process(module, "[" * 50 + "2" + "]" * 50) == "False"


def test_a_value_that_holds_itself_fails() -> None:
    assert in_a_small_process("def f():\n    value = []\n    value.append(value)\n    return value\n", "[]") == "False"


def in_a_small_process(module: str, wanted: str) -> str:
    """Return what the judge says, in a process with little memory: what is compared is made by foreign code."""
    program = """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        from graftline.sandbox import CaseLimits, judged
        from graftline.sandbox.runner import checked_spec
        from graftline.sandbox.served import ServedJail
        jail = ServedJail("namespaces", "namespaces", CaseLimits(memory_mb=512, cpu_s=5), ("calls",))
        call = {"function": "f", "expected_python": sys.argv[2]}
        spec = checked_spec({"kind": "calls", "module": "m", "calls": [call]})
        try:
            print(judged(jail, {"m.py": sys.argv[1].encode()}, spec).passed)
        except MemoryError:
            print("the judge has no memory left")
        jail.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program), module, wanted], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() or done.stderr


def program(jail: ServedJail, text: str, expected: str, **more: Any) -> TestResult:
    spec = {"kind": "program", "arguments": ["main.py", "x"], "expected_stdout": expected, **more}
    return judged(jail, {"main.py": text.encode()}, checked_spec(spec))


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
    kept = 64 << 10
    assert program(jail, f"print('x' * {kept} + 'y', end='')", "x" * kept).passed is False


@in_namespaces
def test_its_own_files_do_not_take_the_place_of_ours(jail: ServedJail) -> None:
    spec = {"arguments": ["main.py"], "expected_stdout": "ours\n", "files": {"main.py": "print('ours')"}}
    result = judged(jail, {"main.py": b"print('theirs')"}, checked_spec({"kind": "program", **spec}))
    assert result.passed is True
