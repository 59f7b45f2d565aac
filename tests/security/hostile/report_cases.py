"""Code that is wrong and wants its tests to count as passed: by leaving early, skipping, patching pytest, laying files.

That which forges the report itself is in `forgery_cases`.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from graftline.sandbox.base import IsolationLevel
from graftline.sandbox.jail.spec import Call, CallsSpec, PytestSpec

TESTS = PytestSpec(
    files={
        "test_m.py": "from m import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_more():\n    assert add(2, 2) == 4\n"
    },
    expected=("test_m.py::test_add", "test_m.py::test_more"),
)
SHARED = TESTS.model_copy(update={"trusts": "report"})
"""The same in the process of the code under test."""
CALLS = CallsSpec(module="m", calls=(Call(function="add", args=(1, 2), expected=3),))
RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"


@dataclass(frozen=True, slots=True)
class ReportCase:
    """A module `m` whose `add` is wrong, and what it brings along."""

    name: str
    program: str
    """What stands in the module, after the wrong function."""
    shared: str = ""
    """What stands before it, where several need it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What else lies in the folder."""
    spec: PytestSpec | CallsSpec = TESTS
    instead: str = ""
    """The form of specification that has to be taken where such code is expected: tests in one process cannot tell."""
    needs: IsolationLevel = "none"
    group: str = "reports"

    def workspace(self) -> dict[str, bytes]:
        """Return the files that the tests run on."""
        module = {"m.py": WRONG + self.shared + textwrap.dedent(self.program)}
        return {name: text.encode() for name, text in {**module, **self.files}.items()}


PASSING = "def test_add():\n    pass\n\n\ndef test_more():\n    pass\n"
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
_LAID = {
    "conftest.py": _FORGING_HOOKS,
    "sitecustomize.py": "import os\nos._exit(0)\n",
    "usercustomize.py": "import os\nos._exit(0)\n",
    "own.pth": "import os; os._exit(0)\n",
    "pytest.ini": "[pytest]\naddopts = --collect-only -p plugin_of_mine\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p plugin_of_mine'\n",
    "setup.cfg": "[tool:pytest]\naddopts = -p plugin_of_mine\n",
    "tox.ini": "[pytest]\naddopts = -p plugin_of_mine\n",
    "json.py": "def dumps(*_, **__):\n    return '{}'\n",
    "pytest.py": "def main(*_, **__):\n    return 0\n",
    "_pytest/__init__.py": "",
    "test_m/__init__.py": PASSING,
    "builtins.py": "raise SystemExit(0)\n",
}

REPORT_CASES = (
    ReportCase("leaves_at_import", "import os\nos._exit(0)\n"),
    ReportCase("exits_at_import", "import sys\nsys.exit(0)\n"),
    ReportCase(
        "prints_what_pytest_prints",
        """
        import os
        os.write(1, b"..                                            [100%]\\n2 passed in 0.01s\\n")
        os._exit(0)
        """,
    ),
    ReportCase(
        "leaves_at_the_end",
        """
        import atexit, os
        atexit.register(os._exit, 0)
        """,
    ),
    ReportCase(
        "leaves_when_called",
        """
        import os

        def add(a, b):
            os._exit(0)
        """,
    ),
    ReportCase(
        "patches_reports",
        """
        from _pytest import reports
        honest = reports.TestReport.__init__

        def forged(self, nodeid, location, keywords, outcome, longrepr, when, *others, **more):
            honest(self, nodeid, location, keywords, "passed", None, when, *others, **more)

        reports.TestReport.__init__ = forged
        """,
    ),
    ReportCase(
        "patches_the_runner",
        """
        from _pytest import runner
        honest = runner.CallInfo.from_call

        def forged(function, when, reraise=None):
            return honest((lambda: None) if when == "call" else function, when, reraise)

        runner.CallInfo.from_call = forged
        runner.check_interactive_exception = lambda *_: False
        """,
    ),
    ReportCase(
        "patches_the_test_item",
        """
        from _pytest import python
        python.Function.runtest = lambda self: None
        python.pytest_pyfunc_call = lambda pyfuncitem: True
        """,
    ),
    ReportCase(
        "registers_a_plugin",
        """
        import gc, sys, types, pytest
        plugin = types.ModuleType("own")
        exec(HOOKS, vars(plugin))
        for found in gc.get_objects():
            if isinstance(found, pytest.PytestPluginManager):
                found.register(plugin)
        """.replace("HOOKS", repr(_FORGING_HOOKS)),
    ),
    ReportCase(
        "takes_other_plugins_away",
        """
        import gc, pytest
        for found in gc.get_objects():
            if isinstance(found, pytest.PytestPluginManager):
                for name, plugin in found.list_name_plugin():
                    if plugin is not None and "Reporter" in type(plugin).__name__:
                        found.unregister(plugin)
        """,
    ),
    ReportCase(
        "patches_what_fails",
        """
        import builtins, pytest
        builtins.AssertionError = pytest.skip.Exception
        """,
    ),
    ReportCase(
        "patches_what_is_written",
        """
        import json, os
        write, dumps, encode = os.write, json.dumps, json.JSONEncoder.encode
        os.write = lambda where, data: write(where, bytes(data).replace(b"failed", b"passed")) and len(data)
        json.dumps = lambda *what, **how: dumps(*what, **how).replace("failed", "passed")
        json.JSONEncoder.encode = lambda *what: encode(*what).replace("failed", "passed")
        """,
    ),
    ReportCase("skips_at_import", "import pytest\npytest.skip('not today', allow_module_level=True)\n"),
    ReportCase("skips_as_unittest_does", "import unittest\nraise unittest.SkipTest('not today')\n"),
    ReportCase(
        "skips_when_called",
        """
        import pytest

        def add(a, b):
            pytest.skip("not today")
        """,
    ),
    ReportCase(
        "is_expected_to_fail",
        """
        import pytest

        def add(a, b):
            pytest.xfail("known")
        """,
    ),
    ReportCase("ends_the_session", "import pytest\npytest.exit('done', returncode=0)\n"),
    ReportCase(
        "removes_the_tests",
        """
        import os
        for name in ("test_m.py", "../work/test_m.py"):
            try:
                os.unlink(name)
            except OSError:
                pass
        """,
    ),
    ReportCase(
        "writes_the_tests_anew",
        """
        import os, sys
        try:
            os.chmod(".", 0o755)
            os.unlink("test_m.py")
            with open("test_m.py", "w") as stream:
                stream.write(TESTS)
        except OSError:
            pass
        sys.modules.pop("test_m", None)
        """.replace("TESTS", repr(PASSING)),
    ),
    *(
        ReportCase(f"lays_{name.partition('/')[0]}", "", files={name: text, "plugin_of_mine.py": _FORGING_HOOKS})
        for name, text in _LAID.items()
    ),
)
