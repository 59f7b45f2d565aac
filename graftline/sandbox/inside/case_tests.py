"""Tests by pytest, with a report that what is tested should not be able to write.

pytest's own report, its exit code and what it prints are all made in the process that runs the code under test, which
may patch any of them. What is reported here is made of the tests themselves:

* the code of every trusted file is compiled before anything foreign is imported; a test function whose code is not
  among it when the test is collected, or that is another one when it is to be called, is `tampered`;
* test functions are called from here, not by pytest; a test counts as passed when its set-up, its call and its
  tear-down have returned, as seen by hooks that stand around all others, and nobody has reported a failure;
* a control, a test of our own that has to fail, runs among them under a name drawn anew each time;
* every line carries a nonce, and goes over a descriptor that nothing else writes to.

Beyond what one process can tell is code that finds these hooks in its own memory or frames and speaks for them, that
jumps over a line by a trace, or that patches what tests use. So the code under test has a process of its own
(`remote_objects`), unless the specification says that the report of one process will do.

    {"nonce", "test": node id, "outcome": "passed" | "failed" | "skipped" | "tampered" | "not_judged", "error": text,
     "s": seconds}
    {"nonce", "end": number of tests that ran}
"""

import ast
import gc
import io
import os
import sys
import tempfile
import time
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from _pytest.assertion.rewrite import _rewrite_test
from _pytest.outcomes import Skipped
from _pytest.unittest import TestCaseFunction

_OPTIONS = (
    *("-q", "-rN", "--color=no", "--tb=short", "-c", "/dev/null", "--noconftest", "-p", "no:cacheprovider"),
    "--continue-on-collection-errors",
    *("-p", "no:unraisableexception", "-p", "no:threadexception", "-p", "no:faulthandler"),
)
_ERROR_CHARACTERS = 2000
_WRAPPERS = 20


class _CollectedTest(NamedTuple):
    """What a test was when it was collected."""

    function: Any
    codes: tuple[Any, ...]
    """Of the function, and of what it is wrapped around."""
    is_as_written: bool
    phases: int


class _Notes(Protocol):
    """What is known of a test besides what pytest sees; `remote_session.Session` is one."""

    def begin_test(self) -> None: ...

    def judge(self, outcome: str, error: str) -> tuple[str, str]: ...


def _hooks(
    write: Callable[[bytes], None],
    nonce: str,
    folder: str,
    trusted: Sequence[str],
    control: str,
    notes: _Notes | None = None,
) -> Any:
    """Return a plugin of closures: what they need stands in no module and no class that foreign code can import."""
    codes: set[types.CodeType] = set()
    wrapped: set[tuple[str, int]] = set()
    collected: dict[str, _CollectedTest] = {}
    failed: dict[str, tuple[str, str]] = {}
    returned: dict[str, int] = {}
    count = 0
    clock, text_of, is_a, kind_of = time.perf_counter, encode_basestring_ascii, isinstance, type
    functions, methods, unittests = types.FunctionType, types.MethodType, TestCaseFunction

    def line(fields: str) -> None:
        write(f'{{"nonce": {text_of(nonce)}, {fields}}}\n'.encode())

    def describe(error: BaseException) -> str:
        try:
            text = f"{kind_of(error).__name__}: {error}"
        except BaseException:
            text = kind_of(error).__name__
        return text.encode("utf-8", "backslashreplace").decode()[:_ERROR_CHARACTERS]

    def compile_trusted(config: pytest.Config) -> None:
        for name in trusted:
            path = Path(folder, name)
            if path.suffix != ".py":
                continue
            try:
                _, rewritten = _rewrite_test(path, config)
                tree = ast.parse(path.read_bytes())
                # what a test file imports is not rewritten
                plain = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError):
                continue  # data that looks like code; as a test it would not be collected either
            codes.update(_all_in(rewritten), _all_in(plain))
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and node.decorator_list:
                    wrapped.add((node.name, node.decorator_list[0].lineno))

    def code_of(item: pytest.Item) -> tuple[Any, tuple[Any, ...]]:
        function: Any = getattr(item, "obj", None)
        function = function.__func__ if kind_of(function) is methods else function
        chain = [function]
        while kind_of(chain[-1]) is functions and "__wrapped__" in chain[-1].__dict__ and len(chain) < _WRAPPERS:
            chain.append(chain[-1].__dict__["__wrapped__"])
        return function, tuple(part.__code__ if kind_of(part) is functions else None for part in chain)

    def is_as_written(function_codes: tuple[Any, ...]) -> bool:
        if function_codes[0] in codes:
            return True
        # a decorator of a library stands around it, where the file says that there is one
        inner = function_codes[-1]
        return inner in codes and (inner.co_name, inner.co_firstlineno) in wrapped

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(session: pytest.Session) -> None:
        compile_trusted(session.config)
        gc.enable()

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(item: pytest.Item) -> None:
        function, function_codes = code_of(item)
        phases = 3 if kind_of(item) is unittests else 4
        collected[item.nodeid] = _CollectedTest(function, function_codes, is_as_written(function_codes), phases)

    def count_phase(item: pytest.Item) -> None:
        returned[item.nodeid] = returned.get(item.nodeid, 0) + 1

    def watch(item: pytest.Item) -> Iterator[Any]:
        try:
            result = yield
        except (Skipped, unittest.SkipTest) as error:
            failed.setdefault(item.nodeid, ("skipped", describe(error)))
            raise
        except BaseException as error:
            failed.setdefault(item.nodeid, ("failed", describe(error)))
            raise
        # unittest's way of failing is to write it down
        for failure in getattr(item, "_excinfo", None) or ():
            outcome = "skipped" if is_a(failure.value, (Skipped, unittest.SkipTest)) else "failed"
            failed.setdefault(item.nodeid, (outcome, describe(failure.value)))
        count_phase(item)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(item: pytest.Item) -> Iterator[Any]:
        return (yield from watch(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
        entry = collected.get(item.nodeid)
        if entry is None or not entry.is_as_written or code_of(item) != entry[:2]:
            failed[item.nodeid] = ("tampered", "its code is not that of the file")
        return (yield from watch(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(item: pytest.Item) -> Iterator[Any]:
        return (yield from watch(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        test = pyfuncitem.obj
        function, owner = (test.__func__, (test.__self__,)) if kind_of(test) is methods else (test, ())
        entry = collected.get(pyfuncitem.nodeid)
        if entry is None or function is not entry.function:
            failed[pyfuncitem.nodeid] = ("tampered", "another function took its place")
        result = function(*owner, **arguments)
        if hasattr(kind_of(result), "__await__") or hasattr(kind_of(result), "__aiter__"):
            if kind_of(result) is types.CoroutineType:
                result.close()
            raise TypeError("a test that returns what has to be awaited is not run by pytest alone")
        count_phase(pyfuncitem)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
        nonlocal count
        started = clock()
        if notes is not None:
            notes.begin_test()
        result = yield
        entry = collected.get(item.nodeid)
        is_whole = entry is not None and returned.pop(item.nodeid, 0) == entry.phases
        unless_failed = ("passed", "") if is_whole else ("tampered", "it was not called as tests are")
        outcome, error = failed.pop(item.nodeid, unless_failed)
        if notes is not None:
            outcome, error = notes.judge(outcome, error)
        count += 1
        line(
            f'"test": {text_of(item.nodeid)}, "outcome": {text_of(outcome)}, "error": {text_of(error)},'
            f' "s": {float(clock() - started)!r}'
        )
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(report: Any) -> None:
        if report.failed:  # of a part of a test, which does not fail by itself
            failed.setdefault(report.nodeid, ("failed", str(report.longrepr)[-_ERROR_CHARACTERS:]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
        # nobody who reads what pytest prints wants to hear of the control
        return ("", "", "") if report.nodeid.startswith(control) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(session: pytest.Session) -> None:
        line(f'"end": {count}')
        session.testsfailed -= 1
        if session.testsfailed == 0 and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.OK

    hooks = dict(locals())
    return types.SimpleNamespace(**{name: hook for name, hook in hooks.items() if name.startswith("pytest_")})


def _all_in(whole: types.CodeType) -> Iterator[types.CodeType]:
    pending = [whole]
    while pending:
        code = pending.pop()
        yield code
        pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def run(
    arguments: Sequence[str], trusted: Sequence[str], folder: str, report: int, nonce: str, notes: _Notes | None = None
) -> int:
    """Run the tests named by `arguments`, the last of them the control; return an exit code, which proves nothing."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    reporter = _hooks(_writer(report), nonce, folder, trusted, arguments[-1], notes)
    options = [*_OPTIONS, "--rootdir", folder, "--confcutdir", folder, "--import-mode=prepend", *arguments]
    del nonce, report
    gc.disable()  # until tests are collected: what pytest makes to start with stays anyway, and looking at it takes long
    return int(pytest.main(options, plugins=[reporter]))


def warm_up(path: str) -> None:
    """Run the tests of `path` without a word, and forget them."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    streams, folder, paths, modules = (sys.stdout, sys.stderr), os.getcwd(), list(sys.path), set(sys.modules)  # noqa: PTH109
    sys.stdout = sys.stderr = io.StringIO()
    try:
        inside, name = os.path.split(path)
        os.chdir(inside)
        os.environ["TMPDIR"], tempfile.tempdir = inside, None  # pytest cleans up what it finds there of its runs before
        nowhere = os.open("/dev/null", os.O_WRONLY)
        reporter = _hooks(_writer(nowhere), "", inside, [name], name)
        pytest.main([*_OPTIONS, "--rootdir", inside, "--confcutdir", inside, "--capture=sys", name], plugins=[reporter])
        os.close(nowhere)
    finally:
        sys.stdout, sys.stderr = streams
        os.chdir(folder)
        sys.path[:] = paths
        for name in set(sys.modules) - modules:
            if name.startswith("test_"):
                del sys.modules[name]
        sys.path_importer_cache.clear()


def _writer(descriptor: int) -> Callable[[bytes], None]:
    write = os.write  # now: whoever patches `os` later changes nothing here

    def all_of(data: bytes) -> None:
        while data:
            data = data[write(descriptor, data) :]

    return all_of
