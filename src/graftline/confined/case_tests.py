"""Tests by pytest, with a report that what is tested should not be able to write.

pytest's own report, its exit code and what it prints are all made in the process that runs the code under test, which
may patch any of them. What is reported here is made of the tests themselves:

* the code of every trusted test is compiled before anything foreign is imported; a test whose code is another one when
  it is to be called is `tampered`;
* a test counts as passed when its set-up, its call and its tear-down have returned, as seen by a hook that stands
  around all others; test functions are called from here, not by pytest;
* a control, a test of our own that has to fail, runs among them under a name drawn anew each time;
* every line carries a nonce, and goes over a descriptor that nothing else writes to.

Code that searches the memory of its own process for the nonce, and speaks the lines itself, is beyond what one process
can tell; where that matters, let the values be compared outside (`calls`).

    {"nonce", "test": node id, "outcome": "passed" | "failed" | "skipped" | "tampered", "error": text, "s": seconds}
    {"nonce", "end": number of tests that ran}
"""

import inspect
import io
import json
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion.rewrite import _rewrite_test
from _pytest.outcomes import Skipped

_OPTIONS = (
    *("-q", "-rN", "--color=no", "--tb=short", "-c", "/dev/null", "--noconftest", "-p", "no:cacheprovider"),
    "--continue-on-collection-errors",
    *("-p", "no:unraisableexception", "-p", "no:threadexception", "-p", "no:faulthandler"),
)
_ERROR_CHARACTERS = 2000
_PHASES = 3  # set-up, call, tear-down; for functions also the call proper, which is ours


class _Reporter:
    """The hooks. What they need is held by closures, so that it does not stand in frames that foreign code can walk."""

    def __init__(
        self, report: Callable[[Mapping[str, Any]], None], folder: str, trusted: Sequence[str], control: str
    ) -> None:
        codes: dict[str, types.CodeType] = {}
        failed: dict[str, tuple[str, str]] = {}
        returned: dict[str, int] = {}
        started: dict[str, float] = {}
        count = 0
        clock, is_coroutine, function_item = time.perf_counter, inspect.iscoroutinefunction, pytest.Function

        def compiled(config: pytest.Config) -> None:
            for name in trusted:
                path = Path(folder, name)
                if path.suffix == ".py":
                    codes[str(path)] = _rewrite_test(path, config)[1]

        def is_as_written(item: pytest.Item) -> bool:
            function = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
            code = getattr(function, "__code__", None)
            whole = codes.get(str(item.path))
            return whole is None or (isinstance(code, types.CodeType) and _holds(whole, code))

        def seen(item: pytest.Item) -> Iterator[None]:
            try:
                result = yield
                returned[item.nodeid] = returned.get(item.nodeid, 0) + 1
                return result
            except Skipped as error:
                failed.setdefault(item.nodeid, ("skipped", str(error)))
                raise
            except BaseException as error:
                failed.setdefault(item.nodeid, ("failed", f"{type(error).__name__}: {error}"))
                raise

        def called(item: pytest.Item) -> Iterator[None]:
            if not is_as_written(item):
                failed[item.nodeid] = ("tampered", "its code is not that of the file any more")
            return seen(item)

        def call_proper(item: pytest.Function) -> bool | None:
            if is_coroutine(item.obj):
                return None  # pytest says why it cannot
            arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
            item.obj(**arguments)
            returned[item.nodeid] = returned.get(item.nodeid, 0) + 1
            return True

        def whole_test(item: pytest.Item) -> Iterator[Any]:
            nonlocal count
            started[item.nodeid] = clock()
            result = yield
            is_whole = returned.pop(item.nodeid, 0) == _PHASES + (type(item) is function_item)
            as_it_seems = ("passed", "") if is_whole else ("tampered", "it was not called as tests are")
            outcome, error = failed.pop(item.nodeid, as_it_seems)
            count += 1
            text = error.encode("utf-8", "backslashreplace").decode()[:_ERROR_CHARACTERS]
            report({"test": item.nodeid, "outcome": outcome, "error": text, "s": clock() - started[item.nodeid]})
            return result

        def finished(session: pytest.Session) -> None:
            report({"end": count})
            # nobody who reads what pytest prints wants to hear of the control
            session.testsfailed -= 1
            if session.testsfailed == 0 and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
                session.exitstatus = pytest.ExitCode.OK

        def shown(test: str) -> tuple[str, str, str] | None:
            return ("", "", "") if test.startswith(control) else None

        self._compiled, self._seen, self._called = compiled, seen, called
        self._whole_test, self._call_proper, self._finished, self._shown = whole_test, call_proper, finished, shown

    def pytest_collection(self, session: pytest.Session) -> None:
        self._compiled(session.config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        return (yield from self._whole_test(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._seen(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._called(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        return self._call_proper(pyfuncitem)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._seen(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return self._shown(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._finished(session)


def run(arguments: Sequence[str], trusted: Sequence[str], folder: str, report: int, nonce: str) -> int:
    """Run the tests named by `arguments`, the last of them the control; return an exit code, which proves nothing."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    reporter = _Reporter(_writer(report, nonce), folder, trusted, arguments[-1])
    options = [*_OPTIONS, "--rootdir", folder, "--confcutdir", folder, "--import-mode=prepend", *arguments]
    del nonce, report
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
        reporter = _Reporter(_writer(nowhere, ""), inside, [name], name)
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


def _writer(descriptor: int, nonce: str) -> Callable[[Mapping[str, Any]], None]:
    # bound now: whoever patches `os` or `json` later changes nothing here
    write, encode = os.write, json.JSONEncoder().encode

    def report(line: Mapping[str, Any]) -> None:
        data = encode({"nonce": nonce, **line}).encode() + b"\n"
        while data:
            data = data[write(descriptor, data) :]

    return report


def _holds(whole: types.CodeType, code: types.CodeType) -> bool:
    """Return whether `code` is that of a function somewhere in `whole`."""
    pending = [whole]
    while pending:
        found = pending.pop()
        if found == code:
            return True
        pending += [constant for constant in found.co_consts if isinstance(constant, types.CodeType)]
    return False
