"""What a case runs of ours: a Python file, tests by pytest, or calls of functions.

They run in a fork of a process that has loaded pytest and what tests often import. `sandbox.jail.judge` reads their
reports, and says what they prove.

Calls are a file of JSON: a module, and calls with their arguments. Their results are compared outside, where the code under
test is not. What comes back is written down by exact type, so that no object can claim to be equal to another:

    {"nonce", "call": number, "value": as `encode` returns it} or {"nonce", "call": number, "raised": name of the class}
    {"nonce", "end": number of calls}
"""

import importlib
import io
import json
import os
import platform
import sys
import tempfile
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

OURS = ("python", "pytest", "calls")
REPORTING = ("pytest", "calls")
"""Those that report what they found by a descriptor of their own."""
REQUEST = "calls.json"
"""The file of calls."""
NO_MEMORY = 97
"""Exit code of a program that ends by a `MemoryError`."""
_DEEPEST_VALUE = 64
_COMMON = (
    *("ast", "asyncio", "base64", "bisect", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime"),
    *("decimal", "difflib", "doctest", "enum", "fractions", "functools", "hashlib", "heapq", "importlib.metadata"),
    *("inspect", "itertools", "logging", "math", "operator", "pathlib", "random", "re", "shutil", "statistics"),
    *("string", "subprocess", "tempfile", "textwrap", "threading", "time", "typing", "unittest", "unittest.mock"),
    "uuid",
)
_OF_ENTRYPOINTS = (
    *("argparse", "base64", "collections", "contextlib", "copy", "dataclasses", "datetime", "functools", "hashlib"),
    *("itertools", "json", "math", "os", "pathlib", "random", "re", "runpy", "shutil", "subprocess", "tempfile"),
    *("textwrap", "time", "traceback", "typing"),
)
"""Fewer: what is loaded is copied with every fork, and entrypoints find the rest compiled."""
_OF_EVERY_INTERPRETER = frozenset(
    ("abc", "codecs", "encodings", "genericpath", "io", "os", "posixpath", "site", "stat", *sys.builtin_module_names)
)
"""Loaded before any program of ours or of others."""
_WARM_TESTS = """
import pytest

@pytest.fixture
def one():
    return 1

@pytest.mark.parametrize("value", [1, 2])
def test_passes(value, one, tmp_path, capsys, monkeypatch):
    assert value

def test_fails():
    assert [1, 2, {"a": 1}] == [1, 3, {"a": 2}]

def test_raises():
    with pytest.raises(ValueError):
        int("x")
    raise KeyError("x")
"""


def load(programs: Mapping[str, str], is_container: bool = False) -> None:
    """Import what tests or entrypoints import, before there is isolation: what is loaded later is read from files."""
    for name in _OF_ENTRYPOINTS if is_container else _COMMON if programs.keys() & {*OURS} else ():
        importlib.import_module(name)
    if "pytest" in programs:
        importlib.import_module("graftline.sandbox.inside.case_tests")
        importlib.import_module("graftline.sandbox.inside.remote_session")


def warm_up(programs: Mapping[str, str], folder: str) -> None:
    """Run a few tests of our own, so that all that pytest loads at its first run is there."""
    if "pytest" not in programs or not folder:
        return
    from graftline.sandbox.inside import case_tests

    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    path = os.path.join(folder, "test_warm_up.py")  # noqa: PTH118
    with open(path, "w", encoding="utf-8") as stream:  # noqa: PTH123
        stream.write(_WARM_TESTS)
    case_tests.warm_up(path)
    os.unlink(path)  # noqa: PTH108


def tools(programs: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of what runs here."""
    pytest = {"pytest": sys.modules["pytest"].__version__} if "pytest" in programs else {}
    return {"python": platform.python_version(), **pytest}


def run(
    request: Mapping[str, Any], work: str, report: int, link: tuple[int, int], is_container: bool = False
) -> NoReturn:
    """Run the program of `request` in this process, and end with it.

    Args:
        request: As the server was sent it.
        work: The working folder.
        report: The descriptor that programs of ours report by.
        link: What leads to the process of the code under test, if it has one.
        is_container: Whether modules are searched for as an interpreter of its own does it, `PYTHONPATH` included.
    """
    arguments = request["arguments"]
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        mode = "rb" if descriptor == 0 else "wb"
        stream = io.TextIOWrapper(
            os.fdopen(descriptor, mode, closefd=False), "utf-8", "backslashreplace", line_buffering=descriptor > 0
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    tempfile.tempdir = None  # the one that was found before there was one of this case
    if request["program"] != "pytest":  # pytest itself needs what is loaded
        _forget_modules_hidden_by(work)
    sys.path[:0] = _search_path(arguments, work) if is_container else [work]
    sys.dont_write_bytecode = True
    if not is_container:
        sys.pycache_prefix = "/nonexistent"  # compiled files that a case brings along are not believed
    _exit(_run_program(request, arguments, work, report, link))


def _run_program(
    request: Mapping[str, Any], arguments: list[str], work: str, report: int, link: tuple[int, int]
) -> int:
    """Run one of our own programs; return its exit code."""
    if request["apart"] is None:
        for descriptor in link:
            os.close(descriptor)
    try:
        if request["program"] == "python":
            os.close(report)
            _run_python(arguments)
        elif request["program"] == "pytest":
            from graftline.sandbox.inside import case_tests

            trusted = [name for name, _ in request["trusted"]]
            session = _open_session(request["apart"], link, work)
            return case_tests.run(arguments, trusted, work, report, request["nonce"], session)
        else:
            _run_calls(arguments[0], work, report, request["nonce"])
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    except MemoryError:
        return NO_MEMORY
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _open_session(apart: Mapping[str, Any] | None, link: tuple[int, int], work: str) -> Any:
    """Return what tests reach the code under test by; None if they share their process with it."""
    if apart is None:
        return None
    from graftline.sandbox.inside import kernel, remote_objects, remote_session

    kernel.set_dumpable(False)  # others of the same user, the code among them, cannot look into this process
    session = remote_session.Session(link, apart["modules"], work, apart["trusts"])
    remote_objects.install(session)
    return session


def _forget_modules_hidden_by(folder: str) -> None:
    """Have modules of a case found where it has one of the same name, as a fresh interpreter does."""
    own = {name.removesuffix(".py") for name in os.listdir(folder)} - _OF_EVERY_INTERPRETER  # noqa: PTH208
    own = {name for name in own if name in sys.modules}
    # looked through only where it must be: to touch a module copies the memory it is in
    for name in [name for name in sys.modules if name.partition(".")[0] in own] if own else ():
        del sys.modules[name]


def _search_path(arguments: list[str], work: str) -> list[str]:
    of_the_file = os.path.dirname(os.path.join(work, arguments[0]))  # noqa: PTH118, PTH120
    named = [os.path.join(work, path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]  # noqa: PTH118
    return [*dict.fromkeys((of_the_file, *named, work))]


def _run_python(arguments: list[str]) -> None:
    """Run a file, or a module after `-m`."""
    if arguments[0] == "-m" and len(arguments) > 1:
        import runpy

        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = list(arguments)
    main = types.ModuleType("__main__")
    main.__dict__["__file__"] = arguments[0]
    sys.modules["__main__"] = main
    with open(arguments[0], "rb") as stream:  # noqa: PTH123
        code = compile(stream.read(), arguments[0], "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _exit(code: int) -> NoReturn:
    """End as an interpreter does, as far as a case can see: threads are waited for, and output is written."""
    try:
        import atexit
        import threading

        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = code or 1
    os._exit(code)


def _run_calls(module: str, folder: str, report: int, nonce: str) -> None:
    """Import `module` and make the calls that the request names."""
    calls = json.loads(Path(folder, REQUEST).read_text("utf-8"))
    write, to_json = os.write, json.JSONEncoder().encode

    def say(line: dict[str, Any]) -> None:
        data = to_json({"nonce": nonce, **line}).encode() + b"\n"
        while data:
            data = data[write(report, data) :]

    imported = importlib.import_module(module)
    for number, call in enumerate(calls):
        try:
            function = imported
            for part in call["function"].split("."):
                function = getattr(function, part)
            value = function(*call["args"], **call["kwargs"])  # type: ignore[operator]
        except Exception as error:
            say({"call": number, "raised": type(error).__name__})
        else:
            say({"call": number, "value": encode(value)})
    say({"end": len(calls)})


def encode(value: Any, depth: int = 0) -> Any:
    """Return `value` as JSON that tells the exact type of every part; an object of another class is its name alone."""
    kind = type(value)
    if depth > _DEEPEST_VALUE:
        return {"deep": kind.__name__}
    if value is None or kind is bool:
        return value
    if kind is str:
        # half a surrogate pair is no JSON to everybody
        data = value.encode("utf-8", "surrogatepass")
        return value if data.decode("utf-8", "ignore") == value else {"str": data.hex()}
    if kind is int:
        return {"int": str(value) if abs(value) < 1 << 4096 else hex(value)}
    if kind is float:
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind in (list, tuple):
        return {kind.__name__: [encode(part, depth + 1) for part in value]}
    if kind in (set, frozenset):
        parts = [encode(part, depth + 1) for part in value]
        return {kind.__name__: sorted(parts, key=lambda part: json.dumps(part, sort_keys=True))}
    if kind is dict:
        return {"dict": [[encode(key, depth + 1), encode(part, depth + 1)] for key, part in value.items()]}
    return {"object": kind.__name__}


def is_plain(value: Any) -> bool:
    """Return whether `encode` tells all of `value`: it has no object of another class, and is not too deep."""
    pending = [encode(value)]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if {"object", "deep"} & part.keys():
                return False
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return True
