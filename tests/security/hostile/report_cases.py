"""Code that is wrong and wants its tests to count as passed: by leaving early, skipping, patching pytest, laying files.

Each is tried twice: where the code has a process of its own, and where it shares that of its tests and its report is
trusted. That which speaks to its tests over a link is in `apart_cases`.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from graftline.sandbox.base import IsolationLevel
from graftline.sandbox.jail.spec import Call, CallsSpec, PytestSpec
from tests.code_under_test import ADD, OTHER, WRONG
from tests.code_under_test import TESTS as TEXT_OF_TESTS

TESTS = PytestSpec(files={"test_m.py": TEXT_OF_TESTS}, expected=(ADD, OTHER))
SHARED = TESTS.model_copy(update={"trusts": "report"})
"""The same in the process of the code under test."""
CALLS = CallsSpec(module="m", calls=(Call(function="add", args=(1, 2), expected=3),))


@dataclass(frozen=True, slots=True)
class ReportCase:
    """A module `m` whose `add` is wrong, and what it brings along."""

    program: str
    """What stands in the module, after the wrong function."""
    name: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """What else lies in the folder."""
    spec: PytestSpec | CallsSpec = TESTS
    instead: str = ""
    """The form of specification that has to be taken where such code is expected: tests in one process cannot tell."""
    needs: IsolationLevel = "none"
    group: str = "reports"

    def workspace(self) -> dict[str, bytes]:
        """Return the files that the tests run on."""
        return {name: text.encode() for name, text in {"m.py": WRONG + self.program, **self.files}.items()}


def with_names(
    cases: Mapping[str, str | ReportCase], shared: str = "", spec: PytestSpec | CallsSpec = TESTS
) -> tuple[ReportCase, ...]:
    """Return cases by their names, each with what is `shared` before its program; a text alone is tried on `spec`."""
    whole = {name: ReportCase(case, spec=spec) if isinstance(case, str) else case for name, case in cases.items()}
    return tuple(
        replace(case, name=name, program=shared + textwrap.dedent(case.program)) for name, case in whole.items()
    )


PASSING = "def test_add():\n    pass\n\n\ndef test_other():\n    pass\n"
_FORGING_HOOKS = """
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.outcome = "passed"
    return report

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    return True
"""
_LEAVING = "import os\nos._exit(0)\n"
_PYTEST_SECTION = "[pytest]\naddopts = --collect-only -p plugin_of_mine\n"
_TABLE_OF_OPTIONS = "[pytest]\naddopts = ['--collect-only', '-p', 'plugin_of_mine']\n"
_LAID = {
    "conftest.py": _FORGING_HOOKS,
    **dict.fromkeys(("sitecustomize.py", "usercustomize.py", "builtins.py"), _LEAVING),
    "own.pth": "import os; os._exit(0)\n",
    **dict.fromkeys(("pytest.ini", ".pytest.ini", "tox.ini"), _PYTEST_SECTION),
    **dict.fromkeys(("pytest.toml", ".pytest.toml"), _TABLE_OF_OPTIONS),
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p plugin_of_mine'\n",
    "setup.cfg": "[tool:pytest]\naddopts = -p plugin_of_mine\n",
    "json.py": "def dumps(*_, **__):\n    return '{}'\n",
    "pytest.py": "def main(*_, **__):\n    return 0\n",
    "_pytest/__init__.py": "",
    "test_m.py": PASSING,
    "test_m/__init__.py": PASSING,
}
_USED_MODULES = (
    *("pluggy.py", "graftline/__init__.py", "readline.py", "pdb.py", "pygments/__init__.py", "py.py", "doctest.py"),
    *("hypothesis.py", "numpy.py", "exceptiongroup.py", "attr.py"),
)
_LINES = """
import gc, json, os, sys, types
lines = [json.dumps({"test": f"test_m.py::test_{name}", "outcome": "passed", "error": "", "s": 0.01})[1:-1] for name in ("add", "other")]
lines.append(json.dumps({"end": 2})[1:-1])

def tell(function):
    for line in lines:
        try:
            function(line)
        except BaseException:
            pass
"""

_WRITTEN = {
    "lines_without_the_nonce": b'{"nonce": "", "test": "test_m.py::test_add", "outcome": "passed", "error": "", "s": 0.1}\n',
    "half_a_line": b'{"nonce": "',
    "an_empty_line": b"\n",
    "lines_of_json_that_no_report_has": b"[" * 100_000 + b"\n",
}

_ALONE = with_names(
    {
        **{
            f"lays_{name.rpartition('/')[0] or name}": ReportCase(
                "", files={name: text, "plugin_of_mine.py": _FORGING_HOOKS}
            )
            for name, text in _LAID.items()
        },
        "lays_modules_that_are_used": ReportCase("", files=dict.fromkeys(_USED_MODULES, _LEAVING)),
        **{
            name: f"for descriptor in range(3, 2048):\n    try: os.write(descriptor, {data!r})\n    except OSError: pass\n"
            for name, data in _WRITTEN.items()
        },
        "removes_the_tests": """
        for name in ("test_m.py", "../work/test_m.py"):
            try:
                os.unlink(name)
            except OSError:
                pass
        """,
        "writes_the_tests_anew": """
        try:
            os.chmod(".", 0o755)
            os.unlink("test_m.py")
            with open("test_m.py", "w") as stream:
                stream.write(TESTS)
        except OSError:
            pass
        sys.modules.pop("test_m", None)
        """.replace("TESTS", repr(PASSING)),
        "replaces_the_test_module": """
        module = types.ModuleType("test_m")
        exec(TESTS, vars(module))
        module.__file__ = sys.modules["test_m"].__file__ if "test_m" in sys.modules else "test_m.py"
        sys.modules["test_m"] = module
        """.replace("TESTS", repr(PASSING)),
        "replaces_the_tests_in_memory": """
        def passing():
            pass

        def add(a, b):
            frame = sys._getframe(1)
            for name in ("test_add", "test_other"):
                if name in frame.f_globals:
                    frame.f_globals[name].__code__ = passing.__code__
                    frame.f_globals[name] = passing
            return 3
        """,
        "skips_as_unittest_does": "import unittest\nraise unittest.SkipTest('not today')\n",
        "waits_and_writes_to_every_descriptor": """
        import threading, time

        def write():
            time.sleep(0.05)
            for descriptor in range(3, 1024):
                try:
                    os.write(descriptor, b'{"nonce": "", "test": "test_m.py::test_add", "outcome": "passed", "error": "", "s": 0.1}\\n')
                except OSError:
                    pass
            os._exit(0)

        threading.Thread(target=write, daemon=True).start()

        def add(a, b):
            time.sleep(0.5)
        """,
        "lets_a_child_fail_in_its_place": """
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        os.fork()
        """,
        "leaves_at_import": "os._exit(0)",
        "leaves_when_called": """
        def add(a, b):
            os._exit(0)
        """,
        "exits_at_import": "sys.exit(0)",
        "prints_what_pytest_prints": """
        os.write(1, b'..   [100%]\\n2 passed in 0.01s\\n')
        os._exit(0)
        """,
        "kills_itself": "os.kill(os.getpid(), 9)",
        "leaves_at_the_end": """
        import atexit
        atexit.register(os._exit, 0)
        """,
        "code_swapped_by_a_thread": """
        import threading, time
        def swap():
            while not hasattr(sys.modules.get("test_m"), "test_other"): time.sleep(0)
            for name in ("test_add", "test_other"):
                getattr(sys.modules["test_m"], name).__code__ = (lambda: None).__code__
        threading.Thread(target=swap, daemon=True).start()
        """,
        "functions_swapped_by_a_thread": """
        import threading, time
        def swap():
            while not hasattr(sys.modules.get("test_m"), "test_other"): time.sleep(0)
            for name in ("test_add", "test_other"):
                setattr(sys.modules["test_m"], name, lambda: None)
        threading.Thread(target=swap, daemon=True).start()
        """,
        "says_that_everything_is_a_coroutine": """
        import inspect
        inspect.iscoroutinefunction = lambda function: True
        """,
        "an_end_without_the_nonce": """
        for descriptor in range(3, 2048):
            try: os.write(descriptor, b'{"nonce": "", "end": 3}\\n')
            except OSError: pass
        os._exit(0)
        """,
        "half_a_line_at_the_end": """
        def add(a, b):
            for descriptor in range(3, 2048):
                try: os.write(descriptor, b'{"nonce": "')
                except OSError: pass
            os._exit(0)
        """,
        "descriptors_closed": "os.closerange(3, 2048)",
        "descriptors_led_elsewhere": """
        nowhere = os.open("/dev/null", os.O_WRONLY)
        for descriptor in range(3, 2048):
            try: os.fstat(descriptor)
            except OSError: continue
            os.dup2(nowhere, descriptor)
        """,
        "a_child_that_goes_on_too": "if child := os.fork(): os.waitpid(child, 0)",
        "a_child_that_goes_on_alone": "if os.fork(): os._exit(0)",
        "a_child_for_every_test": """
        def add(a, b):
            if child := os.fork():
                os.waitpid(child, 0)
                return a - b
            raise SystemExit(0)
        """,
        "patches_what_is_written": """
        write = os.write
        os.write = lambda descriptor, data: write(descriptor, data.replace(b"failed", b"passed"))
        """,
        "patches_json": """
        import json
        json.JSONEncoder.encode = lambda self, line: '{}'
        json.dumps = lambda *args, **more: '{}'
        """,
        "patches_json_one_call_down": """
        import json
        said = json.JSONEncoder.iterencode
        def forged(self, line, _one_shot=False):
            is_theirs = line.get("test", "").startswith("test_m.py")
            return said(self, {**line, "outcome": "passed", "error": ""} if is_theirs else line, _one_shot)
        json.JSONEncoder.iterencode = forged
        """,
        "stops_clocks": """
        import time
        time.perf_counter = lambda: 0.0
        """,
        "takes_all_frames": """
        def add(a, b):
            return add(a, b)
        """,
        "takes_all_descriptors": """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        """,
    },
    shared="import os, sys, types\n",
)
_OF_PYTEST = with_names(
    {
        "skips_when_called": """
        def add(a, b):
            pytest.skip("not today")
        """,
        "is_expected_to_fail": """
        def add(a, b):
            pytest.xfail("known")
        """,
        "patches_reports": """
        from _pytest import reports
        honest = reports.TestReport.__init__

        def forged(self, nodeid, location, keywords, outcome, longrepr, when, *others, **more):
            honest(self, nodeid, location, keywords, "passed", None, when, *others, **more)

        reports.TestReport.__init__ = forged
        """,
        "patches_the_runner": """
        from _pytest import runner
        honest = runner.CallInfo.from_call

        def forged(function, when, reraise=None):
            return honest((lambda: None) if when == "call" else function, when, reraise)

        runner.CallInfo.from_call = forged
        runner.check_interactive_exception = lambda *_: False
        """,
        "registers_a_plugin": """
        plugin = types.ModuleType("own")
        exec(HOOKS, vars(plugin))
        register(plugin)
        """.replace("HOOKS", repr(_FORGING_HOOKS)),
        "takes_other_plugins_away": """
        import gc
        for found in gc.get_objects():
            if isinstance(found, pytest.PytestPluginManager):
                for plugin in found.get_plugins():
                    if "Reporter" in type(plugin).__name__ or isinstance(plugin, types.SimpleNamespace):
                        found.unregister(plugin)
        """,
        "ends_the_session": "pytest.exit('x', 0)",
        "ends_the_session_when_called": """
        def add(a, b):
            pytest.exit('x', 0)
        """,
        "skips_at_import": "pytest.skip('x', allow_module_level=True)",
        "skips_for_want_of_a_module": "pytest.importorskip('absent')",
        "reports_that_say_passed": "pytest.TestReport.outcome = property(lambda s: 'passed', lambda s, v: None)",
        "reports_made_of_calls_without_errors": """
        made = pytest.TestReport.from_item_and_call.__func__
        def forged(cls, item, call):
            call.excinfo = None
            return made(cls, item, call)
        pytest.TestReport.from_item_and_call = classmethod(forged)
        """,
        "calls_that_are_not_made": """
        def forged(cls, func, when, reraise=None):
            return cls(None, None, 0, 0, 0, when, _ispytest=True)
        pytest.CallInfo.from_call = classmethod(forged)
        """,
        "calls_that_swallow": """
        made = pytest.CallInfo.from_call.__func__
        def forged(cls, func, when, reraise=None):
            call = made(cls, func, when, reraise)
            call.excinfo, call._result = None, None
            return call
        pytest.CallInfo.from_call = classmethod(forged)
        """,
        "no_test_is_run": "pytest.Function.runtest = lambda self: None",
        "some_tests_are_not_run": """
        run = pytest.Function.runtest
        pytest.Function.runtest = lambda self: None if is_theirs(self) else run(self)
        """,
        "another_kind_of_test_function": """
        class Idle(pytest.Function):
            def runtest(self): pass
        made = pytest.Function.from_parent.__func__
        def forged(cls, parent, **more):
            item = made(cls, parent, **more)
            if is_theirs(item): item.__class__ = Idle
            return item
        pytest.Function.from_parent = classmethod(forged)
        """,
        "a_test_function_from_nowhere": """
        from pathlib import Path
        made = pytest.Function.from_parent.__func__
        def forged(cls, parent, **more):
            item = made(cls, parent, **more)
            if is_theirs(item): item.obj, item.path = lambda: None, Path("/nowhere")
            return item
        pytest.Function.from_parent = classmethod(forged)
        """,
        "the_code_of_the_hook_of_pytest": """
        import _pytest.python
        _pytest.python.pytest_pyfunc_call.__code__ = (lambda pyfuncitem: True).__code__
        """,
        "an_object_that_shows_the_code_of_the_test": """
        class Idle:
            def __init__(self, function): self.__wrapped__, self.__code__, self.__name__ = function, function.__code__, "x"
            def __call__(self): pass
        got = pytest.Function._getobj
        pytest.Function._getobj = lambda self: Idle(got(self)) if is_theirs(self) else got(self)
        """,
        "an_object_that_shows_the_code_of_the_test_by_a_property": """
        old = pytest.Function.obj
        def forged(self):
            function = old.fget(self)
            class Idle:
                __code__ = function.__code__
                def __call__(self): pass
            return Idle() if is_theirs(self) else function
        pytest.Function.obj = property(forged, old.fset)
        """,
        "another_function_when_it_is_called": """
        old = pytest.Function.obj
        def forged(self):
            is_call = sys._getframe(1).f_code.co_name == "pytest_pyfunc_call"
            return (lambda: None) if is_call and is_theirs(self) else old.fget(self)
        pytest.Function.obj = property(forged, old.fset)
        """,
        "plugin_that_calls_nothing": """
        class Plugin:
            @pytest.hookimpl(tryfirst=True)
            def pytest_pyfunc_call(self, pyfuncitem): return True if is_theirs(pyfuncitem) else None
        register(Plugin())
        """,
        "plugin_that_swallows": """
        class Plugin:
            @pytest.hookimpl(tryfirst=True, wrapper=True)
            def pytest_pyfunc_call(self, pyfuncitem):
                try: return (yield)
                except BaseException:
                    if not is_theirs(pyfuncitem): raise
                    return True
        register(Plugin())
        """,
        "plugin_that_swallows_inside": """
        class Plugin:
            @pytest.hookimpl(trylast=True, wrapper=True)
            def pytest_runtest_call(self, item):
                try: return (yield)
                except BaseException:
                    if not is_theirs(item): raise
        register(Plugin())
        """,
        "plugin_that_swaps_the_function": """
        class Plugin:
            @pytest.hookimpl(tryfirst=True)
            def pytest_pyfunc_call(self, pyfuncitem):
                if is_theirs(pyfuncitem): pyfuncitem.obj = lambda: None
        register(Plugin())
        """,
        "plugin_that_deselects": """
        class Plugin:
            @pytest.hookimpl(tryfirst=True)
            def pytest_collection_modifyitems(self, items): items[:] = items[-1:]
        register(Plugin())
        """,
        "plugin_that_skips": """
        class Plugin:
            def pytest_collection_modifyitems(self, items):
                for item in items: item.add_marker(pytest.mark.skip)
        register(Plugin())
        """,
        "expected_failures": """
        made = pytest.Function.__init__
        def forged(self, *args, **more):
            made(self, *args, **more)
            self.add_marker(pytest.mark.xfail)
        pytest.Function.__init__ = forged
        """,
        "expected_failures_that_are_not_run": """
        made = pytest.Function.__init__
        def forged(self, *args, **more):
            made(self, *args, **more)
            self.add_marker(pytest.mark.xfail(run=False))
        pytest.Function.__init__ = forged
        """,
        "assertions_that_skip": """
        import builtins
        builtins.AssertionError = type('E', (pytest.skip.Exception,), {})
        """,
        "assertions_are_not_compiled": """
        import _pytest.assertion.rewrite as r
        r.rewrite_asserts = lambda *a, **k: None
        """,
        "tests_are_collected_twice": """
        perform = pytest.Session.genitems
        def forged(self, node):
            items = list(perform(self, node))
            return items + items
        pytest.Session.genitems = forged
        """,
    },
    shared="""
import os, sys, types, pytest

def is_theirs(item):
    return item.path.name == "test_m.py"

def register(plugin):
    import gc
    for config in [thing for thing in gc.get_objects() if isinstance(thing, pytest.Config)]:
        config.pluginmanager.register(plugin)
""",
)
_SEARCHING = with_names(
    {
        "looks_for_the_reporter": """
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType) and "case_tests" in (found.__module__ or "") and found.__closure__:
                tell(found)
        os._exit(0)
        """,
        "looks_for_the_reporter_in_the_frames": """
        frame = sys._getframe()
        while frame:
            for found in [*frame.f_locals.values()]:
                if callable(found) and "case_tests" in str(getattr(found, "__module__", "")):
                    tell(found)
            frame = frame.f_back
        os._exit(0)
        """,
    },
    shared=_LINES,
)
_BELIEVED = with_names(
    {
        # knows how the report is made, and that a test of unknown name has to fail
        "knows_how_reports_are_made": """
        import glob
        control = [name for name in glob.glob("test_*.py") if name != "test_m.py"]
        for name in control:
            lines[2:] = [json.dumps({"test": f"{name}::{name[:-3]}", "outcome": "failed", "error": "no", "s": 0.01})[1:-1]]
            lines.append(json.dumps({"end": 3})[1:-1])
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType) and found.__qualname__ == "_hooks.<locals>.line":
                tell(found)
                os._exit(0)
        """,
    },
    shared=_LINES,
)
_OF_CALLS = with_names(
    {
        "is_equal_to_everything": """
        class Anything:
            def __eq__(self, other):
                return True

            def __hash__(self):
                return 3

            def __reduce__(self):
                return int, (3,)

        def add(a, b):
            return Anything()
        """,
        "is_a_number_of_its_own": """
        class Number(int):
            def __eq__(self, other):
                return True

            def __str__(self):
                return "3"

            __repr__ = __str__
            __hash__ = int.__hash__

        def add(a, b):
            return Number(a - b)
        """,
        "calls_left_at_import": _LEAVING,
        "calls_answered_on_every_descriptor": """
        import json, os
        lines = [json.dumps({"nonce": "", "call": 0, "value": {"int": "3"}}), json.dumps({"nonce": "", "end": 1}), ""]
        for descriptor in range(1, 1024):
            try:
                os.write(descriptor, "\\n".join(lines).encode())
            except OSError:
                pass
        os._exit(0)
        """,
    },
    spec=CALLS,
)


def _in_one_process(case: ReportCase, instead: str = "") -> ReportCase:
    return replace(case, name=f"{case.name}_in_one_process", spec=SHARED, instead=instead)


REPORT_CASES = (
    *(twin for case in (*_ALONE, *_OF_PYTEST, *_SEARCHING) for twin in (case, _in_one_process(case))),
    *(twin for case in _BELIEVED for twin in (case, _in_one_process(case, "trusts: values"))),
    *_OF_CALLS,
)
