"""The `warm` sandbox: processes that hold ast-grep's binding, and fork a child for every batch of actions.

Covered: no file can be opened, created or removed, no socket made, no program started, no signal sent, no memory made
executable (a list of the system calls that are allowed); no gain of privileges; CPU, memory, descriptor and output
limits; under root the actions run as a user of their own. Each batch has a child of its own, which cannot change what
later batches see. A child that dies takes one action with it, which is to blame; another child does the rest.

Not covered: total memory of many processes, CPU quota. Within a batch, an action that took over the child by a fault in
the parser could falsify the answers to those after it, so the actions of one call should be of equal trust.

What the binding cannot do as ast-grep's command line does goes to a `process` sandbox. The level it can reach is
`compute`.
"""

import json
import re
import signal
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.astgrep.action import Action, rule_of
from graftline.astgrep.binding import LANGUAGES, Language, is_safe
from graftline.core.errors import SandboxError
from graftline.sandbox.actions.process import ProcessSandbox
from graftline.sandbox.base import (
    Isolation,
    Limits,
    Match,
    Request,
    Sandbox,
    SandboxResult,
    Usage,
    Verdict,
    replace_matches,
)
from graftline.sandbox.inner_process import InnerProcess
from graftline.sandbox.inside import warm_worker

_BATCH_ACTIONS, _MAX_BATCH_ACTIONS = 64, 256
"""Where there are many actions, a child has more of them: to start one takes as long as some actions."""
_BATCH_CHARACTERS = 4 << 20
_HELLO_BYTES, _START_S = 1 << 16, 60.0
_ENVIRONMENT = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "RUST_BACKTRACE": "0", "TZ": "UTC"}
_VERDICTS = {verdict.value: verdict for verdict in Verdict}
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


class _Answer(BaseModel):
    """What a child answers about one action. It has run what nobody trusts, so its answer is validated."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    verdict: Literal["ok", "no_match", "action_error", "needs_cli", "out_of_memory"]
    error: str
    matches: list[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)], str]]
    cpu_s: float
    wall_s: float
    peak_kb: int


_Item = tuple[Language, str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Blame:
    """What the end of a child says about the action it was at."""

    verdict: Verdict
    error: str = ""
    cpu_s: float = 0.0
    """Of the whole child, the actions before included."""
    wall_s: float = 0.0
    peak_kb: int = 0


class WarmSandbox(Sandbox):
    """So many workers, each started on first use and again after it was lost."""

    def __init__(self, limits: Limits, workers: int = 1) -> None:
        self._workers = [_Worker(limits) for _ in range(workers)]
        self._command_line = ProcessSandbox(limits)
        self._isolation: Isolation | None = None

    @property
    def isolation(self) -> Isolation:
        if self._isolation is None:
            self._isolation = self._workers[0].start()
        return self._isolation

    def apply_each(self, requests: Sequence[Request]) -> list[list[SandboxResult]]:
        return list(self.apply_in_turn(requests))

    def apply_in_turn(self, requests: Sequence[Request]) -> Generator[list[SandboxResult], None, None]:
        # the binding takes time in the square of a line's length, and no half surrogate pairs
        are_safe = [is_safe(request.source) for request in requests]
        actions = sum(len(request.actions) for request in requests)
        most = min(max(_BATCH_ACTIONS, actions // (2 * len(self._workers))), _MAX_BATCH_ACTIONS)
        batches = _batches([request for request, safe in zip(requests, are_safe, strict=True) if safe], most)
        with closing(self._answers(batches)) as of_batches:
            answers = chain.from_iterable(of_batches)
            for request, safe in zip(requests, are_safe, strict=True):
                if safe:
                    yield [self._result(request, action, next(answers)) for action in request.actions]
                else:
                    yield self._command_line.apply_many(request.source, request.language, request.actions)

    def _answers(self, batches: Sequence[list[Request]]) -> Generator[list[_Answer | _Blame], None, None]:
        if len(self._workers) == 1 or len(batches) < 2:
            yield from (self._workers[0].answers(batch) for batch in batches)
            return
        free: SimpleQueue[_Worker] = SimpleQueue()
        for worker in self._workers:
            free.put(worker)

        def answers(batch: list[Request]) -> list[_Answer | _Blame]:
            worker = free.get()
            try:
                return worker.answers(batch)
            finally:
                free.put(worker)

        with ThreadPoolExecutor(len(self._workers)) as threads:
            yield from threads.map(answers, batches)

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._command_line.close()

    def _result(self, request: Request, action: Action, answer: _Answer | _Blame) -> SandboxResult:
        usage = Usage(answer.cpu_s, answer.wall_s, answer.peak_kb / 1024)
        match answer.verdict:
            case "ok" if isinstance(answer, _Answer):
                return replace_matches(request.source, [Match(*span) for span in answer.matches], self.isolation, usage)
            case "needs_cli":
                [result] = self._command_line.apply_many(request.source, request.language, [action])
                return result
            case verdict:
                return SandboxResult(_VERDICTS[verdict], None, self.isolation, error=answer.error, usage=usage)


def _batches(requests: Sequence[Request], most: int) -> list[list[Request]]:
    """Return the requests in parts that are worth a child each, of at most `most` actions; one that is large is divided."""
    batches: list[list[Request]] = []
    actions = characters = 0
    for request in requests:
        for start in range(0, len(request.actions), most):
            part = request.actions[start : start + most]
            if not batches or actions + len(part) > most or characters > _BATCH_CHARACTERS:
                batches.append([])
                actions = characters = 0
            batches[-1].append(Request(request.source, request.language, part))
            actions, characters = actions + len(part), characters + len(request.source)
    return batches


class _Worker:
    """One process, and the conversation with it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most = (limits.output_mb << 20) + (1 << 16)
        self._process: InnerProcess | None = None
        self._isolation: Isolation | None = None
        self._end_is_due = False
        """Of the child of the call before: when all is answered, nobody waits for its end."""

    def start(self) -> Isolation:
        """Start the process unless it runs, and return what confines it; SandboxError if it does not start."""
        if self._process is None or self._isolation is None or not self._process.is_running:
            self.stop()
            arguments = [self._limits.model_dump_json(), *LANGUAGES]
            self._process = InnerProcess([sys.executable, "-I", "-m", warm_worker.__name__, *arguments], _ENVIRONMENT)
            try:
                hello = self._process.receive(_HELLO_BYTES, time.monotonic() + _START_S)
                features = tuple(json.loads(hello)["features"])
            except (OSError, ValueError, EOFError) as error:
                self.stop()
                raise SandboxError(
                    f"warm sandbox: its warm_worker does not start ({error!r}); see `graftline doctor`"
                ) from error
            self._isolation = Isolation("compute" if "seccomp" in features else "none", "warm", features)
        return self._isolation

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process, self._end_is_due = None, False

    def answers(self, batch: Sequence[Request]) -> list[_Answer | _Blame]:
        """Return one answer per action of `batch`, in order; SandboxError if the machine failed, not an action."""
        rules = {id(action): rule_of(action) for request in batch for action in request.actions}
        items = [
            (request.language, request.source, rules[id(action)]) for request in batch for action in request.actions
        ]
        answers: list[_Answer | _Blame] = []
        looks_once = any(len(request.actions) >= warm_worker.MANY_RULES for request in batch)
        while len(answers) < len(items):
            answers += self._ask_child(items[len(answers) :], looks_once)
            if looks_once and isinstance(answers[-1], _Blame) and answers[-1].verdict is not Verdict.WALL_TIMEOUT:
                del answers[-1]  # which of the rules it was is told where they are not looked for together
            looks_once = False
        return answers

    def _ask_child(self, items: Sequence[_Item], looks_once: bool) -> list[_Answer | _Blame]:
        """Return the answers of one child: to all items, or to those up to the one that ended it."""
        self.start()
        assert self._process is not None
        answers: list[_Answer | _Blame] = []
        try:
            self._process.send(
                json.dumps([looks_once, *_group(items)]).encode(), time.monotonic() + self._limits.wall_s
            )
            while len(answers) < len(items):
                frame = self._process.receive(self._most, time.monotonic() + self._limits.wall_s)
                is_end = frame[:1] == b"E"
                if self._end_is_due:  # what the child before says when it has answered everything is not listened to
                    self._end_is_due = not is_end
                    continue
                if is_end:
                    end = json.loads(frame[1:])
                    usage = end["cpu_s"], end["wall_s"], end["peak_kb"]
                    return [*answers, _Blame(_blame(end), end["stderr"][:500], *usage)]
                answers.append(_Answer.model_validate_json(frame[1:]))
            self._end_is_due = True
        except TimeoutError:
            self.stop()
            return [*answers, _Blame(Verdict.WALL_TIMEOUT, wall_s=self._limits.wall_s)]
        except ValidationError:
            self.stop()
            return [*answers, _Blame(Verdict.VIOLATION, "its child answered in another form than it was asked to")]
        except (OSError, ValueError, EOFError) as error:
            self.stop()
            raise SandboxError(f"warm sandbox: its warm_worker died ({error!r}); see `graftline doctor`") from error
        except BaseException:
            self.stop()  # an interrupted answer would be taken for that of the next call
            raise
        return answers


def _group(items: Sequence[_Item]) -> tuple[list[dict[str, Any]], list[tuple[Language, str, list[int]]]]:
    """Return the rules, each once, and the sources with the numbers of theirs, so that each is sent and parsed once."""
    rules: dict[int, dict[str, Any]] = {}
    numbers: dict[int, int] = {}
    groups: list[tuple[Language, str, list[int]]] = []
    for language, source, rule in items:
        if not groups or groups[-1][0] != language or groups[-1][1] is not source:
            groups.append((language, source, []))
        rules[id(rule)] = rule
        groups[-1][2].append(numbers.setdefault(id(rule), len(numbers)))
    return [*rules.values()], groups


def _blame(end: dict[str, Any]) -> Verdict:
    """Return what the end of a child says about the action it was at.

    SandboxError if it says something about the machine instead.
    """
    match end["end"], end["code"]:
        case "signal", signal.SIGPROF | signal.SIGXCPU:
            return Verdict.CPU_TIMEOUT
        # of Rust's allocator, and of the parser; abort() ends otherwise where a process may not signal itself
        case "signal", code if code in _CRASHES and re.search("memory allocation|failed to allocate", end["stderr"]):
            return Verdict.OUT_OF_MEMORY
        case "signal", signal.SIGSYS:
            return Verdict.VIOLATION
        case "signal", code if code in _CRASHES:
            return Verdict.CRASH
        case "exit", warm_worker.NO_MEMORY:
            return Verdict.OUT_OF_MEMORY
        case "exit", warm_worker.FLOOD:
            return Verdict.OUTPUT_FLOOD
        case _:
            raise SandboxError(
                f"warm sandbox: a child ended by {end['end']} {end['code']} ({end['stderr'][:300]}); see `graftline doctor`"
            )
