"""What code that shares a process with its tests does to look as if it had passed, and what the judge makes of it.

Code that has a process of its own, as it has unless the specification trusts its report, is in `test_tests_apart`.
"""

import pytest

from graftline.sandbox.jail.served import ServedJail
from tests.code_under_test import WRONG, by_pytest

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
from graftline.sandbox.inside import case_tests
case_tests._Reporter.pytest_pyfunc_call.__code__ = (lambda self, pyfuncitem: True).__code__
""",
    "the code of the hook around calls": PATCHES + """
from graftline.sandbox.inside import case_tests
def forged(self, item):
    return (yield)
case_tests._Reporter.pytest_runtest_call.__code__ = forged.__code__
""",
    "the hook that calls calls another": PATCHES + """
from graftline.sandbox.inside import case_tests
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
from graftline.sandbox.inside import case_tests
class Any(int):
    def __add__(self, other): return self
    def __eq__(self, other): return True
case_tests._PHASES = Any()
pytest.Function.runtest = lambda s: None if s.path.name == "test_m.py" else s.ihook.pytest_pyfunc_call(pyfuncitem=s)
""",
    "what the reporter compares with": PATCHES + """
from graftline.sandbox.inside import case_tests
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
    result = by_pytest(jail, FORGED[way], trusts="report")
    assert (way, result.passed) == (way, False)
    assert len(result.tests) == 2
