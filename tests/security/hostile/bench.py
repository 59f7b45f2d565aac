"""One jail or one sandbox, and the cases that are tried on it."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from graftline.astgrep.action import ACTION, PatternAction
from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.base import Sandbox, Verdict
from graftline.sandbox.jail import Jail
from graftline.sandbox.jail.judge import judge_tests
from tests.code_under_test import RIGHT
from tests.security.hostile.action_cases import ActionCase
from tests.security.hostile.cases import ACTION_LIMITS, AFTERWARDS, HostileCase
from tests.security.hostile.facts import Host
from tests.security.hostile.judging import MARGIN_S, Judgment, Outcome, at_level, judge_end, with_feature
from tests.security.hostile.machine_cases import JailMachineCase, SandboxMachineCase
from tests.security.hostile.report_cases import CALLS, SHARED, TESTS, ReportCase

JailCase = HostileCase | ReportCase | JailMachineCase
SandboxCase = ActionCase | SandboxMachineCase

BackendT = TypeVar("BackendT", Jail, Sandbox)

_RENAME = PatternAction(pattern="f($A)", rewrite="g($A)")


class _Bench(Generic[BackendT]):
    """A back end that is opened when it is needed, and again after it failed; to be closed by its owner."""

    def __init__(self, name: str, open_backend: Callable[[], BackendT]) -> None:
        self._name, self._open = name, open_backend
        self._backend: BackendT | None = None

    def outcome(self, case: Any) -> Outcome:
        """Return what became of `case`; whatever the back end raises is a case that was not run."""
        try:
            judgment = self._judge(case)
            isolation = self._open_once().isolation
            judgment = at_level(judgment, case.needs, isolation.level)
            if isinstance(case, HostileCase):
                judgment = with_feature(judgment, case.feature, isolation.features)
        except Exception as error:
            self.close()
            judgment = Judgment("not run", f"{type(error).__name__}: {error}")
        return Outcome(self._name, case.name, case.group, *judgment)

    def close(self) -> None:
        if self._backend is not None:
            with suppress(SandboxError):
                self._backend.close()
            self._backend = None

    def _open_once(self) -> BackendT:
        if self._backend is None:
            self._backend = self._open()
        return self._backend

    def _judge(self, case: Any) -> Judgment:
        raise NotImplementedError


class JailBench(_Bench[Jail]):
    """One jail."""

    def __init__(self, name: str, open_jail: Callable[[], Jail], host: Host) -> None:
        super().__init__(name, open_jail)
        self._host = host
        self._fault_of_reports: str | None = None

    def close(self) -> None:
        self._host.findings()  # nobody is blamed for what a jail that failed has left
        super().close()

    def _judge(self, case: JailCase) -> Judgment:
        match case:
            case HostileCase():
                return self._of_program(case)
            case ReportCase():
                return self._of_report(case)
            case JailMachineCase():
                return case.attempt(self._open, self._host)

    def _of_program(self, case: HostileCase) -> Judgment:
        judgment = self._try(case)
        after = self._try(AFTERWARDS)
        if judgment.status == "escaped" or after.status == "contained":
            return judgment
        if after.status == "escaped":
            return Judgment("escaped", f"left behind: {after.detail}")
        return Judgment("not run", f"the jail answers no more: {after.detail}")

    def _try(self, case: HostileCase) -> Judgment:
        began = time.monotonic()
        end = self._open_once().run(case.case(self._host.facts))
        took_s = time.monotonic() - began
        return judge_end(case, end, self._host.findings(), took_s)

    def _of_report(self, case: ReportCase) -> Judgment:
        if self._fault_of_reports is None:
            results = [judge_tests(self._open_once(), {"m.py": RIGHT.encode()}, spec) for spec in (TESTS, CALLS)]
            self._fault_of_reports = "; ".join(
                f"{result.verdict}, {result.error or result.tests}" for result in results if result.passed is not True
            )
        if self._fault_of_reports:
            return Judgment("not run", f"what is right does not pass: {self._fault_of_reports}")
        try:
            result = judge_tests(self._open_once(), case.workspace(), case.spec)
        except DataError as error:
            return Judgment("contained", f"refused: {error}")
        outcomes = ", ".join(test.outcome for test in result.tests)
        if result.passed is True and case.instead:
            return Judgment("beyond level", f"needs {case.instead}: what is wrong passed: {outcomes}")
        if result.passed is True:
            return Judgment("escaped", f"what is wrong passed: {outcomes}")
        if result.passed is None and case.spec is SHARED:
            return Judgment("escaped", f"nothing is known of what is wrong: {result.error}")
        return Judgment("contained", f"{result.verdict}: {result.error or outcomes}")


class SandboxBench(_Bench[Sandbox]):
    """One sandbox."""

    def _judge(self, case: SandboxCase) -> Judgment:
        if self._open_once().isolation.level == "none":
            # an action that overflows the stack would take this process along
            return Judgment("beyond level", f"needs {case.needs}: not tried")
        if isinstance(case, SandboxMachineCase):
            return case.attempt(self._open)
        judgment = self._apply(case)
        [after] = self._open_once().apply_many("f(1)\n", "python", [_RENAME])
        if after.after != "g(1)\n":
            return Judgment("not run", f"the sandbox answers no more: {after.verdict}")
        return judgment

    def _apply(self, case: ActionCase) -> Judgment:
        try:
            action = ACTION.validate_python(case.action)
        except ValidationError:
            return Judgment("contained", "refused before it was applied")
        began = time.monotonic()
        [result] = self._open_once().apply_many(case.source, "python", [action])
        took_s = time.monotonic() - began
        if took_s > ACTION_LIMITS.wall_s + MARGIN_S:
            return Judgment("escaped", f"held the sandbox for {took_s:.0f} s")
        if result.verdict is Verdict.OK and result.after == case.after:
            return Judgment("contained", "the text is the right one")
        if result.verdict in case.ends and result.after is None:
            return Judgment("contained", f"{result.verdict} {result.error[:200]}".strip())
        return Judgment("escaped", f"ended as {result.verdict}, {result.after!r:.100}")
