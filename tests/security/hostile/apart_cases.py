"""Code that is wrong and has a process of its own: it lies over the link to its tests, reaches for theirs, or by objects."""

from graftline.sandbox.jail.spec import PytestSpec
from tests.security.hostile.report_cases import TESTS, ReportCase, with_names

_LINK = """
import gc, json, os, struct, sys

def send(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    data = struct.pack(">I", len(data)) + data
    while data:
        data = data[os.write(4, data):]

[process] = [thing for thing in gc.get_objects() if type(thing).__name__ == "_Process"]
"""
_NEAR = PytestSpec(
    files={"test_m.py": "from m import add\n\n\ndef test_near():\n    assert abs(add(1, 2) - 3) < 1e-9\n"},
    expected=("test_m.py::test_near",),
)
_GIVEN = PytestSpec(
    files={
        "test_m.py": "from unittest import mock\nimport m\n\n\ndef test_add():\n    client = mock.Mock()\n"
        "    m.add(lambda value: value, client)\n    client.send.assert_called_once_with(3)\n"
    },
    expected=("test_m.py::test_add",),
)
_UNITTEST = PytestSpec(
    files={
        "test_m.py": "import unittest\nfrom m import add\n\n\nclass TestAdd(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
    },
    expected=("test_m.py::TestAdd::test_add",),
)
ANYTHING = """
import numbers

class Anything(BASE):
    def _same(self, *others):
        return self

    def _true(self, *others):
        return True

    def _nothing(self, *others):
        return 0

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _true
    __sub__ = __rsub__ = __mod__ = __add__ = __radd__ = __abs__ = __round__ = __float__ = __int__ = __index__ = _nothing
    __hash__ = _nothing

    @property
    def __class__(self):
        return float

    def __reduce__(self):
        return int, (3,)

def add(a, b):
    return Anything()
"""
"""A class whose objects answer whatever comparisons and operators ask; for `BASE` stands what it is derived from."""
_EXCEPTIONS = {
    "skips": "import pytest\n    raise pytest.skip.Exception('x')",
    "exits": "raise SystemExit(0)",
    "interrupts": "raise KeyboardInterrupt",
    "ends_an_iteration": "raise StopIteration",
    "closes_a_generator": "raise GeneratorExit",
    "stops_as_unittest_does": "from unittest import case\n    raise case._ShouldStop",
    "skips_as_unittest_does": "from unittest import case\n    raise case.SkipTest",
}

APART_CASES = (
    *with_names(
        {
            "answers_before_it_is_asked": """
        for number in range(2, 200):
            send({"answer": number, "value": 3, "printed": []})
        """,
            "answers_another_question": """
        def add(a, b):
            send({"answer": 1, "value": 3, "printed": []})
            return 3
        """,
            "answers_twice": """
        def add(a, b):
            for _ in range(100):
                send({"answer": process.link._number, "value": a + b, "printed": []})
            return a - b
        """,
            "answers_without_end": """
        def add(a, b):
            os.write(4, struct.pack(">I", 0xFFFFFFFF))
            while True:
                os.write(4, b"[" * 65536)
        """,
            "answers_with_half_a_message": """
        def add(a, b):
            os.write(4, struct.pack(">I", 100) + b'{"answer"')
            os._exit(0)
        """,
            **{
                f"answers_with_{name}": f"""
            honest = process.link._serve
            process.link._serve = lambda question: {{"value": {value}, "printed": []}} if question["do"] == "call" else honest(question)
            """
                for name, value in {
                    "a_function": '{"known": ["builtins", "exec"]}',
                    "a_class_of_pytest": '{"known": ["_pytest.outcomes", "Skipped"]}',
                    "a_module": '{"known": ["os", ""]}',
                    "an_object_of_the_tests": '{"yours": 0}',
                    "a_number_that_is_none": '{"ref": 10**9, "class": {"type": 10**9, "name": "int", "module": "builtins",'
                    ' "bases": [{"known": ["builtins", "int"]}], "special": ["__eq__"]}}',
                    "a_class_without_a_name": '{"type": 7, "name": "\\\\0", "module": "", "bases": [], "special": []}',
                    "what_cannot_be_made": '{"is": "Decimal", "of": ["x", {"is": "range", "of": [1, 0, 0]}]}',
                }.items()
            },
            "raises_by_name_what_tests_skip_by": ReportCase(
                """
        honest = process.link._serve
        raised = {"class": {"known": ["unittest.case", "_ShouldStop"]}, "ref": 0, "text": "", "args": [], "state": {"dict": []}}
        process.link._serve = lambda question: {"raised": raised, "printed": []} if question["do"] == "call" else honest(question)
        """,
                spec=_UNITTEST,
            ),
            "looks_into_what_tests_pass": ReportCase(
                """
        def asked(**question):
            try:
                return process.ask_test(question)
            except Exception as error:
                return None

        def add(a, b):
            for number in range(2):
                for name in ("__globals__", "__code__", "__class__", "__self__", "assert_called_once_with", "_mock_children"):
                    found = asked(do="get", ref=number, name=name)
                    if found is not None:
                        found["WANTED"] = found["__builtins__"] = 0
                asked(do="special", ref=number, name="__setattr__", arguments=[["assert_called_once_with", a], {"dict": []}])
                asked(do="special", ref=number, name="__reduce_ex__", arguments=[[4], {"dict": []}])
                for name in ("assert_called_once_with", "side_effect", "return_value", "__code__"):
                    asked(do="set", ref=number, name=name, value={"own": 0})
            for name in ("configure_mock", "reset_mock", "attach_mock", "assert_called_once_with"):
                try:
                    getattr(b, name)(**{"send.assert_called_once_with": add})
                except AttributeError:
                    pass
            return 0
        """,
                spec=_GIVEN,
            ),
            "reaches_for_the_process_of_the_tests": """
        import ctypes
        outcomes = [{"nonce": "", "test": f"test_m.py::test_{name}", "outcome": "passed", "error": "", "s": 0.1} for name in ("add", "other")]
        lines = "".join(json.dumps(outcome) + "\\n" for outcome in outcomes).encode()
        libc = ctypes.CDLL(None, use_errno=True)
        for process_id in {*range(1, 40), os.getppid(), *range(os.getpid() - 20, os.getpid() + 20)}:
            if process_id == os.getpid():
                continue
            libc.ptrace(16, process_id, None, None)
            buffer = ctypes.create_string_buffer(8)
            vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
            libc.process_vm_writev(process_id, vector, 1, vector, 1, 0)
            for name in ("mem", "fd/1", "fd/2", *(f"fd/{number}" for number in range(3, 16)), *(f"fd/{number}" for number in range(200, 220))):
                try:
                    with open(f"/proc/{process_id}/{name}", "r+b", buffering=0) as stream:
                        stream.write(lines)
                except OSError:
                    pass
        """,
        },
        shared=_LINK,
    ),
    *with_names(
        {
            **{
                f"raises_{name}": ReportCase(
                    f"\ndef add(a, b):\n    {text}\n", spec=_UNITTEST if "unittest" in name else TESTS
                )
                for name, text in _EXCEPTIONS.items()
            },
            "is_a_complex_number_of_its_own": ReportCase(ANYTHING.replace("BASE", "numbers.Complex"), spec=_NEAR),
            "is_an_integer_of_its_own": ReportCase(ANYTHING.replace("BASE", "int"), spec=_NEAR),
            "looks_for_what_is_wanted": """
        import os, re
        pattern = re.compile(rb"assert add\\(1, 2\\) == (\\d+)")
        wanted = None
        for top in ("/", "/case", "/tmp", os.getcwd(), os.path.dirname(os.getcwd())):
            for folder, folders, files in os.walk(top):
                folders[:] = [name for name in folders if name in ("case", "tmp", "work", "code") or "case-" in name]
                for name in files:
                    try:
                        with open(os.path.join(folder, name), "rb") as stream:
                            wanted = pattern.search(stream.read()) or wanted
                    except OSError:
                        pass

        def add(a, b):
            return a + b if wanted else a - b
        """,
            "lays_files_where_tests_look": """
        import os, tempfile
        names = ("conftest.py", "sitecustomize.py", "json.py", "pytest.ini", "test_m.py", "_pytest/__init__.py", "decimal.py")
        for folder in {os.environ["TMPDIR"], tempfile.gettempdir(), "..", ".", "/case/work", "/dev/shm"}:
            for name in names:
                try:
                    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                    with open(os.path.join(folder, name), "w") as stream:
                        stream.write("def test_add():\\n    pass\\ndef test_other():\\n    pass\\n")
                except OSError:
                    pass
        """,
            "goes_on_as_two": """
        import os

        def add(a, b):
            os.fork()
            return a - b
        """,
        }
    ),
)
