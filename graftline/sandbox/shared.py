"""One sandbox for several threads: each waits for its turn, and who wants to is told how long an answer took."""

import threading
import time
from collections.abc import Callable, Sequence

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.sandbox.base import Isolation, Request, Sandbox, SandboxResult, Verdict

Answered = Callable[[Verdict, float], None]
"""Called with every verdict, and the seconds from the question to it."""


class SharedSandbox:
    """Lets threads take turns at `sandbox`, which belongs to the caller."""

    def __init__(self, sandbox: Sandbox, answered: Answered = lambda verdict, seconds: None) -> None:
        self._sandbox, self._answered = sandbox, answered
        self._lock = threading.Lock()

    @property
    def isolation(self) -> Isolation:
        with self._lock:
            return self._sandbox.isolation

    def apply_many(
        self, source: str, language: Language, actions: Sequence[PatternAction | RuleAction]
    ) -> list[SandboxResult]:
        [results] = self.apply_each([Request(source, language, tuple(actions))])
        return results

    def apply_each(self, requests: Sequence[Request]) -> list[list[SandboxResult]]:
        with self._lock:
            began = time.monotonic()
            results = self._sandbox.apply_each(requests)
            seconds = time.monotonic() - began
        verdicts = [result.verdict for of_request in results for result in of_request]
        for verdict in verdicts:
            self._answered(verdict, seconds / len(verdicts))
        return results

    def close(self) -> None:
        """The sandbox is closed by whom it belongs to."""
