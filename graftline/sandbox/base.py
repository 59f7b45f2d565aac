"""The `Sandbox` port: apply actions to a text, and run tests, away from everything else; verdicts, and levels of isolation.

Whatever an action does (match nothing, be invalid, run out of time or memory) is a result with a verdict. An error
is raised only when the sandbox itself cannot answer, so that a broken machine is never taken for a wrong action.
"""

import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from pydantic import Field

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language, tool_version
from graftline.core.config import Config
from graftline.core.errors import SandboxError

if TYPE_CHECKING:
    from graftline.sandbox.jail.judge import TestResult
    from graftline.sandbox.jail.spec import TestSpec

IsolationLevel = Literal["none", "compute", "confined", "namespaces", "full"]
"""From weakest to strongest."""
LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)

_IN_TURN = 64
"""Requests whose results are held at the same time, where a sandbox cannot work on some and answer others."""
_COMPUTE = ("rlimits", "no_new_privs", "seccomp")
_FEATURES: Mapping[IsolationLevel, tuple[str, ...]] = {
    "none": (),
    "compute": _COMPUTE,
    "confined": (*_COMPUTE, "landlock", "signals_kept_in"),
    "namespaces": (*_COMPUTE, "namespaces", "disk_limits"),
    "full": (
        *(*_COMPUTE, "landlock", "signals_kept_in", "namespaces", "disk_limits", "file_limits", "no_exec"),
        *("total_memory", "total_processes", "cpu_quota"),
    ),
}
REMEDIES: Mapping[str, str] = {
    "seccomp": "a kernel with seccomp filters (Linux 3.17 or newer, x86_64 or aarch64)",
    "no_new_privs": "Linux 3.5 or newer",
    "rlimits": "a system with resource limits",
    "landlock": "a kernel with Landlock (Linux 5.13 or newer, with 'landlock' among its security modules)",
    "signals_kept_in": "Landlock of version 6 (Linux 6.12), or graftline started as root",
    "namespaces": "user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0,"
    " user.max_user_namespaces above 0; in a container --security-opt seccomp=unconfined",
    "disk_limits": "a working folder in memory, of limited size; kind 'namespaces' has one",
    "file_limits": "a working folder of a limited number of files; kind 'namespaces' has one",
    "no_exec": "a working folder from which nothing can be run; kind 'namespaces' has one",
    "total_memory": "a control group for memory that may be written to (root, or a delegated one)",
    "total_processes": "a control group for processes that may be written to (root, or a delegated one)",
    "cpu_quota": "a control group for processor time that may be written to (root, or a delegated one)",
}
"""How to get a feature of isolation that is missing."""


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
    """The sandbox itself failed; used where many are answered at once and the others still count."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What stands between an action and the machine, as achieved, not as required."""

    level: IsolationLevel
    implementation: str
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What an action or a case used."""

    cpu_s: float
    wall_s: float
    peak_memory_mb: float
    """Resident, of the largest process."""
    files_mb: float = 0.0
    """In the folders of a jail at the end of a case, if they are in memory; 0 elsewhere."""


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
    """None where nobody measures (`memory`)."""
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
        """What `ast-grep run` ends with; None if its process was ended, or never came to an end."""
        return {Verdict.OK: 0, Verdict.NO_MATCH: 1, Verdict.ACTION_ERROR: 8}.get(self.verdict)

    @property
    def tools(self) -> dict[str, str]:
        """The version of ast-grep."""
        return {"ast-grep": tool_version()}


@dataclass(frozen=True, slots=True)
class Request:
    """Actions to be applied to one source, each on its own."""

    source: str
    language: Language
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class TestRequest:
    """Files, and what has to pass with them."""

    __test__ = False  # pytest collects by name

    files: Mapping[str, bytes]
    """By their path below the working folder."""
    spec: "TestSpec"


class Limits(Config):
    """What ast-grep may use while it applies one batch of actions to one source."""

    cpu_s: int = Field(default=5, ge=1, le=600)
    wall_s: float = Field(default=30.0, gt=0, le=3600)
    """A back-stop with a wide margin over `cpu_s`: verdicts should not depend on a busy machine."""
    memory_mb: int = Field(default=2048, ge=256)
    output_mb: int = Field(default=32, ge=1, le=1024)
    """Of the matches as JSON; a few kilobytes of nested calls can make gigabytes."""


class Sandbox(Protocol):
    """Applies actions; safe to use until `close`, from one thread. An implementation has one of the two ways to apply."""

    @property
    def isolation(self) -> Isolation:
        """What this sandbox achieves on this machine."""

    def apply_many(self, source: str, language: Language, actions: Sequence[Action]) -> list[SandboxResult]:
        """Apply each of `actions` to `source`, each on its own; the results stand in the order of `actions`.

        SandboxError if the sandbox itself failed; nothing is known about the actions.
        """
        [results] = self.apply_each([Request(source, language, tuple(actions))])
        return results

    def apply_each(self, requests: Sequence[Request]) -> list[list[SandboxResult]]:
        """Apply the actions of many requests as `apply_many` does; on as many cores as the sandbox has processes."""
        return [self.apply_many(request.source, request.language, request.actions) for request in requests]

    def apply_in_turn(self, requests: Sequence[Request]) -> Generator[list[SandboxResult], None, None]:
        """Yield what `apply_each` returns, one after the other, perhaps while the next are worked on.

        Nothing else may be asked for before the last one, or before the iterator is closed.
        """
        for start in range(0, len(requests), _IN_TURN):
            yield from self.apply_each(requests[start : start + _IN_TURN])

    def run_tests(self, requests: Sequence[TestRequest]) -> list["TestResult"]:
        """Run the tests of each request on its files, in a jail; the results stand in the order of `requests`.

        Raises:
            DataError: files or tests ask for what the jail does not take, or a program that is not installed.
            SandboxError: there is no jail, or it failed; nothing is known about the files.
        """
        raise SandboxError(f"{type(self).__name__} has no jail for tests; take what `open_sandbox` returns")

    def close(self) -> None:
        """Let go of processes and folders. A second call does nothing."""


class SharedSandbox(Sandbox):
    """Lets threads take turns at `sandbox`, which the caller closes.

    `on_verdict` is called with every verdict, and the seconds that it took.
    """

    def __init__(
        self, sandbox: Sandbox, on_verdict: Callable[[Verdict, float], None] = lambda verdict, seconds: None
    ) -> None:
        self._sandbox, self._on_verdict = sandbox, on_verdict
        self._lock = threading.Lock()

    @property
    def isolation(self) -> Isolation:
        with self._lock:
            return self._sandbox.isolation

    def apply_each(self, requests: Sequence[Request]) -> list[list[SandboxResult]]:
        with self._lock:
            began = time.monotonic()
            results = self._sandbox.apply_each(requests)
            seconds = time.monotonic() - began
        verdicts = [result.verdict for answers in results for result in answers]
        for verdict in verdicts:
            self._on_verdict(verdict, seconds / len(verdicts))
        return results

    def run_tests(self, requests: Sequence[TestRequest]) -> list["TestResult"]:
        with self._lock:
            return self._sandbox.run_tests(requests)

    def close(self) -> None:
        """Do nothing: the sandbox belongs to the caller."""


def ensure_decided(result: SandboxResult) -> SandboxResult:
    """Return `result` if it says something about the action.

    SandboxError if it ran into the wall clock, as every action does on a machine that is busy enough: to take that for
    an answer would make what is stored depend on the machine.
    """
    if result.verdict is Verdict.WALL_TIMEOUT:
        raise SandboxError("an action ran into the wall clock before its CPU limit; free the machine and start again")
    return result


def replace_matches(
    source: str, matches: Sequence[Match], isolation: Isolation, usage: Usage | None = None
) -> SandboxResult:
    """Return the result of replacing the outermost of `matches`, as `ast-grep --update-all` does."""
    replaced: list[Match] = []
    pieces, position = [], 0
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        if match.start < position or (replaced and match.start == replaced[-1].start == match.end):
            continue
        pieces += [source[position : match.start], match.replacement]
        position = match.end
        replaced.append(match)
    if not replaced:
        return SandboxResult(Verdict.NO_MATCH, None, isolation, usage=usage)
    return SandboxResult(Verdict.OK, "".join(pieces) + source[position:], isolation, tuple(replaced), usage=usage)


def is_at_least(achieved: IsolationLevel, required: IsolationLevel) -> bool:
    """Return whether `achieved` is as strong as `required`."""
    return LEVELS.index(achieved) >= LEVELS.index(required)


def level_of(features: Collection[str]) -> IsolationLevel:
    """Return the strongest level that some features reach."""
    return next(level for level in reversed(LEVELS) if not missing(features, level))


def missing(features: Collection[str], level: IsolationLevel) -> dict[str, str]:
    """Return what `level` needs beside `features`, and how to get it."""
    # who has a user of its own cannot signal others, whatever the version of Landlock
    present = {*features, "signals_kept_in"} if "own_user" in features else {*features}
    return {name: REMEDIES[name] for name in _FEATURES[level] if name not in present}


def describe_lack(isolation: Isolation, level: IsolationLevel) -> str:
    """Return which level `isolation` reaches, what it lacks for `level`, and how to get that."""
    lacks = "; ".join(f"{name}: {remedy}" for name, remedy in missing(isolation.features, level).items())
    return f"reaches {isolation.level!r}, and lacks {lacks}"
