"""The `Sandbox` port: apply actions to a text, away from everything else.

Whatever an action does (match nothing, be invalid, run out of time or memory) is a result with a verdict. An error
is raised only when the sandbox itself cannot answer, so that a broken machine is never taken for a wrong action.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, tool_version
from graftline.core.errors import SandboxError

IsolationLevel = Literal["none", "compute", "confined", "namespaces", "full"]
"""From weakest to strongest; see `sandbox.limits` for how they are ordered."""


class Verdict(StrEnum):
    """What became of one action."""

    OK = "ok"
    NO_MATCH = "no_match"
    ACTION_ERROR = "action_error"
    """ast-grep refuses the action; `SandboxResult.error` says why."""
    CPU_TIMEOUT = "cpu_timeout"
    WALL_TIMEOUT = "wall_timeout"
    """The time is over, and the machine may be to blame."""
    TIMED_OUT = "timed_out"
    """The time is over, though the machine was free: the code under test is to blame."""
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_FLOOD = "output_flood"
    CRASH = "crash"
    NEEDS_CLI = "needs_cli"
    """Only ast-grep's command line can do it, and this sandbox has none."""
    VIOLATION = "violation"
    """A system call that no action needs, or an answer in another form than the jail was asked for."""
    RUNNER_ERROR = "runner_error"
    """The sandbox itself failed; said where many are answered at once and the others still count."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What stands between an action and the machine, as achieved, not as asked for."""

    level: IsolationLevel
    implementation: str
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used."""

    cpu_s: float
    wall_s: float
    peak_memory_mb: float
    """Resident, of the largest process."""
    files_mb: float = 0.0
    """In the folders of a jail at the end of a case, where they are in memory; 0 elsewhere."""


@dataclass(frozen=True, slots=True)
class Match:
    """A place that the action rewrites; `start` and `end` count characters of the text before."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The answer to one action."""

    verdict: Verdict
    after: str | None
    """The text with all outermost, non-overlapping matches replaced; None unless the verdict is `ok`, and of a workspace
    in which not exactly one file changed."""
    isolation: Isolation
    matches: tuple[Match, ...] = ()
    """Those that were replaced, in the order of the text."""
    error: str = ""
    usage: Usage | None = field(default=None, compare=False)
    """What was used for it; None where nobody measures (`memory`)."""
    diff: str = ""
    """Of all files, as `diff -u` has it; of a workspace only."""
    changed_files: tuple[str, ...] = ()
    """Of a workspace, by their paths."""

    @property
    def stdout(self) -> str:
        """What `ast-grep --stdin -U` prints for it: the new text, or nothing."""
        return self.after or ""

    @property
    def stderr(self) -> str:
        """Why ast-grep refuses it, or how its process ended."""
        return self.error

    @property
    def exit_code(self) -> int | None:
        """What `ast-grep run` ends with; None where its process was ended, or never came to an end."""
        return {Verdict.OK: 0, Verdict.NO_MATCH: 1, Verdict.ACTION_ERROR: 8}.get(self.verdict)

    @property
    def tools(self) -> dict[str, str]:
        """Versions of what it was made with."""
        return {"ast-grep": tool_version()}


@dataclass(frozen=True, slots=True)
class Request:
    """Actions to be applied to one source, each on its own."""

    source: str
    language: Language
    actions: tuple[PatternAction | RuleAction, ...]


def decided(result: SandboxResult) -> SandboxResult:
    """Return `result` if it says something about the action.

    Raises:
        SandboxError: it ran into the wall clock, as every action does on a machine that is busy enough; to take that
            for an answer would make what is stored depend on the machine.
    """
    if result.verdict is Verdict.WALL_TIMEOUT:
        raise SandboxError("an action ran into the wall clock before its CPU limit; free the machine and start again")
    return result


class Sandbox(Protocol):
    """Applies actions; safe to use until `close`, from one thread."""

    @property
    def isolation(self) -> Isolation:
        """What this sandbox achieves on this machine."""

    def apply_many(
        self, source: str, language: Language, actions: Sequence[PatternAction | RuleAction]
    ) -> list[SandboxResult]:
        """Apply each of `actions` to `source`, each on its own; the results stand in the order of `actions`.

        Raises:
            SandboxError: the sandbox itself failed; nothing is known about the actions.
        """

    def apply_each(self, requests: Sequence[Request]) -> list[list[SandboxResult]]:
        """Apply the actions of many requests, on as many cores as the sandbox has processes; results stand in order.

        Raises:
            SandboxError: as `apply_many`.
        """

    def close(self) -> None:
        """Let go of processes and folders. A second call does nothing."""
