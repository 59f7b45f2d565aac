"""A sandbox that runs tests as well: actions go to the one it is made of, tests to jails, opened when they are first asked for."""

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language
from graftline.core.processes import default_workers
from graftline.sandbox.base import Isolation, Request, Sandbox, SandboxResult, TestRequest
from graftline.sandbox.jail import Jail
from graftline.sandbox.jail.judge import TestResult, judge_tests
from graftline.sandbox.jail.open import JailConfig, open_jail


class SandboxWithTests(Sandbox):
    """Applies actions in `sandbox`, which it closes, and runs tests in jails: one per core, but no more than are put to use."""

    def __init__(self, sandbox: Sandbox, tests: JailConfig) -> None:
        self._sandbox, self._tests, self._most_jails = sandbox, tests, default_workers()
        self._jails: list[Jail] = []

    @property
    def isolation(self) -> Isolation:
        return self._sandbox.isolation

    def apply_many(self, source: str, language: Language, actions: Sequence[Action]) -> list[SandboxResult]:
        return self._sandbox.apply_many(source, language, actions)

    def apply_each(self, requests: Sequence[Request]) -> list[list[SandboxResult]]:
        return self._sandbox.apply_each(requests)

    def apply_in_turn(self, requests: Sequence[Request]) -> Generator[list[SandboxResult], None, None]:
        return self._sandbox.apply_in_turn(requests)

    def run_tests(self, requests: Sequence[TestRequest]) -> list[TestResult]:
        # here and not in a thread: a process of a jail may end with the thread that started it
        while len(self._jails) < min(self._most_jails, len(requests)):
            self._jails.append(open_jail(self._tests))
        if len(self._jails) <= 1:
            return [judge_tests(self._jails[0], request.files, request.spec) for request in requests]
        idle: SimpleQueue[Jail] = SimpleQueue()
        for jail in self._jails:
            idle.put(jail)

        def run(request: TestRequest) -> TestResult:
            jail = idle.get()
            try:
                return judge_tests(jail, request.files, request.spec)
            finally:
                idle.put(jail)

        with ThreadPoolExecutor(len(self._jails)) as threads:
            return list(threads.map(run, requests))

    def close(self) -> None:
        self._sandbox.close()
        for jail in self._jails:
            jail.close()
        self._jails.clear()
