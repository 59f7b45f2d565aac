"""What code under test does to the files, modules and tools of its tests, and how far that gets it."""

from textwrap import dedent, indent

import pytest

from graftline.sandbox.jail.served import ServedJail
from tests.code_under_test import ADD, RIGHT, WRONG, by_calls, by_pytest, in_confined, in_namespaces

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
    expected = ("tests/test_a.py::test_first", "tests/test_b.py::test_second")
    result = by_pytest(jail, module, tests, *expected, trusts="report")
    assert (way, result.passed) == (way, False)


@in_namespaces
@pytest.mark.parametrize("trusts", ["values", "report"])
def test_tests_with_many_files_in_one_folder_run(jail: ServedJail, trusts: str) -> None:
    data = {f"tests/deep/data/{number}.txt": str(number) for number in range(100)}
    tests = "from m import add\ndef test_add():\n    assert add(1, 2) == int(open('tests/deep/data/3.txt').read())\n"
    files, name = {"tests/test_m.py": tests, **data}, "tests/test_m.py::test_add"
    assert by_pytest(jail, RIGHT, files, name, trusts=trusts).passed is True


@in_namespaces
@pytest.mark.parametrize("trusts", ["values", "report"])
def test_files_that_tests_read_cannot_be_changed(jail: ServedJail, trusts: str) -> None:
    module = f"import os\n{WRONG}try:\n    os.unlink('three.txt')\n    open('three.txt', 'w').write('-1')\nexcept OSError:\n    pass\n"
    tests = "from m import add\ndef test_add():\n    assert add(1, 2) == int(open('three.txt').read())\n"
    files = {"test_m.py": tests, "three.txt": "3"}
    assert by_pytest(jail, module, files, ADD, trusts=trusts).passed is False


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
def test_code_that_searches_its_process_or_lies_by_objects_passes_only_where_its_report_is_trusted(
    jail: ServedJail, way: str
) -> None:
    assert by_pytest(jail, BEYOND[way], ONE_TEST, ADD, trusts="report").passed is True
    assert by_pytest(jail, BEYOND[way], ONE_TEST, ADD).passed is False
    assert by_calls(jail, BEYOND[way], {"function": "add", "args": [1, 2], "expected": 3}).passed is False


@in_namespaces
@pytest.mark.parametrize("way", USING)
def test_code_that_patches_what_the_tests_use_passes_only_where_its_report_is_trusted(
    jail: ServedJail, way: str
) -> None:
    line, patch = USING[way]
    tests = "import pytest, unittest\nfrom m import add\ndef check(value, wanted):\n    assert value == wanted\n"
    tests += (
        f"class TestA{'(unittest.TestCase)' if way == 'unittest' else ''}:\n    def test_add(self):\n        {line}\n"
    )
    module, files, name = WRONG + patch, {"test_m.py": tests, "three.txt": "3"}, "test_m.py::TestA::test_add"
    assert by_pytest(jail, module, files, name, trusts="report").passed is True
    assert by_pytest(jail, module, files, name).passed is False
    assert by_calls(jail, module, {"function": "add", "args": [1, 2], "expected": 3}).passed is False


@in_confined
def test_without_namespaces_files_that_tests_read_can_be_changed_by_code_that_shares_their_process(
    jail: ServedJail,
) -> None:
    module = f"import os\n{WRONG}os.unlink('three.txt')\nopen('three.txt', 'w').write('-1')\n"
    tests = "from m import add\ndef test_add():\n    assert add(1, 2) == int(open('three.txt').read())\n"
    files = {"test_m.py": tests, "three.txt": "3"}
    assert by_pytest(jail, module, files, ADD, trusts="report").passed is True
    assert by_pytest(jail, module, files, ADD).passed is False
