"""The `process` sandbox: ast-grep's command line, in a case of a jail without namespaces (`jail.served`, mode `confined`).

Covered, besides what that jail covers: nothing can be written into a file (size limit 0). The text travels over standard
input and the rules in a file, so that nothing of an action becomes an option of the command line; no project or user
configuration of ast-grep is read.

Not covered: a user, processes and a file system of its own. ast-grep runs no foreign code, therefore this is enough to
apply actions and not enough to run tests.
"""

import json
import os
import re
import signal
from collections.abc import Sequence

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language, executable, is_unicode, rules_document
from graftline.core.errors import SandboxError
from graftline.sandbox.base import Isolation, Limits, Match, Sandbox, SandboxResult, Usage, Verdict, replace_matches
from graftline.sandbox.jail import Case, CaseEnd, CaseLimits
from graftline.sandbox.jail.served import ServedJail

_PROJECT, _RULES = "sgconfig.yml", "rules.yml"  # in the folder the command runs in
_ARGUMENTS = (
    *("scan", "--config", _PROJECT, "--rule", _RULES, "--custom-languages=ignore"),
    *("--stdin", "--json=stream"),
)
_ENVIRONMENT = {"NO_COLOR": "1", "RUST_BACKTRACE": "0"}
_DISK_MB, _PROCESSES, _DESCRIPTORS = 1024, 4096, 64
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


class ProcessSandbox(Sandbox):
    """One jail, started on first use and again after it died."""

    def __init__(self, limits: Limits) -> None:
        of_a_case = CaseLimits(
            cores=len(os.sched_getaffinity(0)),
            cpu_s=limits.cpu_s,
            wall_s=limits.wall_s,
            memory_mb=limits.memory_mb,
            disk_mb=_DISK_MB,
            file_mb=0,
            processes=_PROCESSES,
            descriptors=_DESCRIPTORS,
            output_kb=limits.output_mb << 10,
        )
        # as the user that runs graftline: there may be no interpreter that another one may read
        self._jail = ServedJail("process", "confined", of_a_case, ("ast-grep",), has_own_user=False)

    @property
    def isolation(self) -> Isolation:
        return self._jail.isolation

    def apply_many(self, source: str, language: Language, actions: Sequence[Action]) -> list[SandboxResult]:
        if not is_unicode(source):
            return [self._fail(Verdict.ACTION_ERROR, "source holds a lone surrogate") for _ in actions]
        executable()  # says how to get it where it is missing
        return self._apply(source, language, actions) if actions else []

    def close(self) -> None:
        self._jail.close()

    def _apply(self, source: str, language: Language, actions: Sequence[Action]) -> list[SandboxResult]:
        files = {_PROJECT: b"ruleDirs: []\n", _RULES: rules_document(actions, language).encode()}
        end = self._jail.run(Case("ast-grep", _ARGUMENTS, files, stdin=source.encode(), environment=_ENVIRONMENT))
        verdict = _verdict(end)
        if verdict is Verdict.OK:
            return self._results(source, end.stdout.decode(), len(actions), end.usage)
        if len(actions) == 1:
            return [self._fail(verdict, _error_text(end), end.usage)]
        # one bad rule spoils the whole call: find it by halves
        half = len(actions) // 2
        return self._apply(source, language, actions[:half]) + self._apply(source, language, actions[half:])

    def _results(self, source: str, output: str, count: int, usage: Usage) -> list[SandboxResult]:
        """Return one result per action; each has what the whole call used."""
        offsets = None if source.isascii() else _character_offsets(source)
        matches: list[list[Match]] = [[] for _ in range(count)]
        # splitlines would also split at U+2028 and its like, which JSON leaves as they are
        for line in filter(None, output.split("\n")):
            match = json.loads(line)
            span = match["replacementOffsets"]
            start, end = (span[edge] if offsets is None else offsets[span[edge]] for edge in ("start", "end"))
            matches[int(match["ruleId"][1:])].append(Match(start, end, match["replacement"]))
        return [replace_matches(source, of_action, self.isolation, usage) for of_action in matches]

    def _fail(self, verdict: Verdict, error: str, usage: Usage | None = None) -> SandboxResult:
        return SandboxResult(verdict, None, self.isolation, error=error, usage=usage)


def _verdict(end: CaseEnd) -> Verdict:
    """Return what the end of ast-grep says about the action.

    SandboxError if it says something about the machine instead.
    """
    match end.verdict, end.exit_code, end.signal:
        case Verdict.OK, _, _ if end.is_truncated:
            return Verdict.OUTPUT_FLOOD
        case Verdict.OK, 0 | 1, _:  # 1 says that a rule of severity "error" matched
            return Verdict.OK
        case Verdict.OK, 8 | 101, _:  # 101 is a panic, over a transformation of nothing for example
            return Verdict.ACTION_ERROR
        case Verdict.OK, 134, _:
            return Verdict.CRASH
        # of ast-grep, and of the parser it holds
        case Verdict.CRASH, _, signal.SIGABRT if re.search(b"memory allocation|failed to allocate", end.stderr):
            return Verdict.OUT_OF_MEMORY
        case Verdict.CRASH, _, number if number in _CRASHES:
            return Verdict.CRASH
        case Verdict.OK | Verdict.CRASH, code, number:
            # a project file that is gone, a stranger's kill: nothing about the action
            how = f"exit {code}" if number is None else f"signal {number}"
            raise SandboxError(f"process sandbox: ast-grep ended by {how} ({_error_text(end)}); see `graftline doctor`")
        case Verdict.TIMED_OUT, _, _:  # limits of processor time are for actions that take too long
            return Verdict.WALL_TIMEOUT
    return end.verdict


def _error_text(end: CaseEnd) -> str:
    """Return the causes that ast-grep names, without its advice."""
    lines = [
        line.strip(" \u2502\u2570\u2500\u25bb\u00d7\u2716")
        for line in end.stderr.decode("utf-8", "replace").splitlines()
    ]
    causes = lines[lines.index("Caused by") + 1 :] if "Caused by" in lines else lines
    return " ".join(filter(None, causes))[:500] or end.error


def _character_offsets(source: str) -> dict[int, int]:
    """Return the character offset of every byte offset at which a character of `source` starts or the text ends."""
    offsets, position = {0: 0}, 0
    for index, character in enumerate(source, 1):
        position += len(character.encode())
        offsets[position] = index
    return offsets
