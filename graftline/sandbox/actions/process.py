"""The `process` sandbox: ast-grep in a child process with limits, without sockets, in a folder of its own.

Covered: no sockets of any family, no ptrace, namespaces, mounts, keys or io_uring (seccomp, a list of refusals); no
gain of privileges; CPU, wall, memory, descriptor and output limits; nothing can be written into a file (size limit 0);
the whole process group is killed after every call; the source travels over stdin; no project or user configuration of
ast-grep is read; nothing of an action becomes a command line option; a killed parent takes its children along.

Not covered: reading, creating, renaming and removing files (the child has the file system of its user), a user and a process namespace of its
own, total memory of many processes, CPU quota. ast-grep runs no foreign code, therefore this is enough to apply
actions and not enough to run tests. The level it can reach is `compute`.
"""

import json
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language, executable, is_unicode, rules_document, scan_arguments
from graftline.core.errors import SandboxError
from graftline.sandbox.base import Isolation, Limits, Match, Sandbox, SandboxResult, Usage, Verdict, replace_matches
from graftline.sandbox.inner_process import InnerProcess, start_applier

_MAX_RULES_BYTES = 100_000  # the kernel takes 128 KiB for one argument
_MARGIN_S = 60.0
_PROJECT_FILE = "sgconfig.yml"  # in the folder the child runs in


class ProcessSandbox(Sandbox):
    """One spawner process, started on first use and again after it died."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most = 8 * (limits.output_mb << 20) + (1 << 20)  # a byte may take six as JSON
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._spawner: InnerProcess | None = None
        self._isolation: Isolation | None = None

    @property
    def isolation(self) -> Isolation:
        return self._isolation or self._start()

    def apply_many(self, source: str, language: Language, actions: Sequence[Action]) -> list[SandboxResult]:
        if not is_unicode(source):
            return [self._fail(Verdict.ACTION_ERROR, "source holds a lone surrogate") for _ in actions]
        results: list[SandboxResult] = []
        for batch in _batches(actions, language):
            results += self._apply(source, language, batch)
        return results

    def close(self) -> None:
        if self._spawner is not None:
            self._spawner.stop()
            self._spawner = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _apply(self, source: str, language: Language, actions: Sequence[Action]) -> list[SandboxResult]:
        rules = rules_document(actions, language)
        if len(rules) > _MAX_RULES_BYTES:  # then it is one action, for batches end before
            error = f"rule of {len(rules)} bytes as JSON; at most {_MAX_RULES_BYTES} are applied"
            return [self._fail(Verdict.ACTION_ERROR, error)]
        answer = self._ask(source, rules)
        usage = Usage(answer["cpu_s"], answer["wall_s"], answer["peak_kb"] / 1024)
        try:
            verdict = _verdict(answer)
        except SandboxError:
            self.close()  # the next call starts afresh
            raise
        if verdict is Verdict.OK:
            return self._results(source, answer["stdout"], len(actions), usage)
        if len(actions) == 1:
            return [self._fail(verdict, _error_text(answer["stderr"]), usage)]
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

    def _ask(self, source: str, rules: str) -> dict[str, Any]:
        if self._spawner is None or not self._spawner.is_running:
            self._start()
        assert self._spawner is not None
        argv = [str(executable()), *scan_arguments(Path(_PROJECT_FILE), rules)]
        deadline = time.monotonic() + self._limits.wall_s + _MARGIN_S  # the spawner keeps the limit itself
        try:
            self._spawner.send(json.dumps({"argv": argv, "source": source}).encode(), deadline)
            answer: dict[str, Any] = json.loads(self._spawner.receive(self._most, deadline))
            return answer
        except (OSError, ValueError, EOFError) as error:
            self.close()
            raise SandboxError(f"process sandbox: its spawner died ({error!r}); see `graftline doctor`") from error
        except BaseException:
            self.close()  # an interrupted answer would be taken for that of the next call
            raise

    def _start(self) -> Isolation:
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="graftline-jail-")
        (Path(self._folder.name) / _PROJECT_FILE).write_text("ruleDirs: []\n", "utf-8")
        arguments, folder = [self._limits.model_dump_json()], self._folder.name
        try:
            self._spawner, self._isolation = start_applier("process", "spawner", arguments, {"LANG": "C.UTF-8"}, folder)
        except SandboxError:
            self.close()
            raise
        return self._isolation


def _batches(actions: Sequence[Action], language: Language) -> list[Sequence[Action]]:
    batches: list[list[Action]] = []
    size = _MAX_RULES_BYTES
    for action in actions:
        length = len(rules_document([action], language).encode()) + 8
        if size + length > _MAX_RULES_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(action)
        size += length
    return [*batches]


def _verdict(answer: dict[str, Any]) -> Verdict:
    """Return what the end of ast-grep says about the action.

    SandboxError if it says something about the machine instead.
    """
    match answer["end"], answer["code"]:
        case "exit", 0 | 1:  # 1 says that a rule of severity "error" matched
            return Verdict.OK
        case "exit", 8 | 101:  # 101 is a panic, over a transformation of nothing for example
            return Verdict.ACTION_ERROR
        case "exit", 134:
            return Verdict.CRASH
        case "wall_timeout", _:
            return Verdict.WALL_TIMEOUT
        case "output_flood", _:
            return Verdict.OUTPUT_FLOOD
        case "signal", signal.SIGXCPU:
            return Verdict.CPU_TIMEOUT
        # of ast-grep, and of the parser it holds
        case "signal", signal.SIGABRT if re.search("memory allocation|failed to allocate", answer["stderr"]):
            return Verdict.OUT_OF_MEMORY
        case "signal", signal.SIGABRT | signal.SIGSEGV | signal.SIGBUS | signal.SIGILL | signal.SIGFPE | signal.SIGSYS:
            return Verdict.CRASH
        case _:
            # a project file that is gone, the machine out of memory, a stranger's kill: nothing about the action
            stderr = _error_text(answer["stderr"])
            raise SandboxError(
                f"process sandbox: ast-grep ended by {answer['end']} {answer['code']} ({stderr}); see `graftline doctor`"
            )


def _error_text(stderr: str) -> str:
    """Return the causes that ast-grep names, without its advice."""
    lines = [line.strip(" \u2502\u2570\u2500\u25bb\u00d7\u2716") for line in stderr.splitlines()]
    causes = lines[lines.index("Caused by") + 1 :] if "Caused by" in lines else lines
    return " ".join(filter(None, causes))[:500]


def _character_offsets(source: str) -> dict[int, int]:
    """Return the character offset of every byte offset at which a character of `source` starts or the text ends."""
    offsets, position = {0: 0}, 0
    for index, character in enumerate(source, 1):
        position += len(character.encode())
        offsets[position] = index
    return offsets
