"""Whether an answer to a mathematical problem is right, by math-verify (https://github.com/huggingface/Math-Verify).

Answers come from a model and are hostile: `9^{9^{9}}` never ends, and long nestings take minutes. So each pair is judged
in a process that is killed when its time is up, and bounded in memory on Linux. Covered: time, memory, a worker that
dies, with or without its parent. Not covered: foreign code; this is no jail (see `graftline.sandbox`).

Deviation from math-verify, which reads only text in `$`, `\\[`, `\\boxed` and the like as LaTeX, and of the bare
`2\\sqrt{2}` the number 2, of `6,7,8` 6.7: a text that is an expression alone, without words, is read as if in `$`.
"""

import atexit
import importlib
import logging
import math
import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self

from graftline.errors import ConfigError
from graftline.extras import install_command
from graftline.workers import WorkerDied, die_with, without_main

MAX_CHARACTERS = 10_000
"""Of a reference or a prediction. Of a longer completion, give the part after the model's thoughts."""

_SHOWN_CHARACTERS = 500
_START_S = 120.0  # the import alone took 4.5 s from a cold disk
_NUMBER = re.compile(r"[-+]?[\d. ]+%?")
_EXPRESSION = re.compile(
    r"(?:\\(?:text|math|begin|end)[a-z]*\{[^{}$]*\}|\\[A-Za-z]++|\\[^A-Za-z(\[]|[A-Za-z](?![A-Za-z])"
    r"|[\d \-+/^_=<>|!()\[\]{}.,:;&'%~])++"
)

_of_process: dict[int, "MathVerifier"] = {}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one prediction."""

    correct: bool | None
    """None where nothing is known about the answer: unparsed reference, timeout, error."""
    status: Literal["ok", "unparsed_reference", "unparsed_prediction", "timeout", "error"]
    parsed_reference: str | None = None
    parsed_prediction: str | None = None
    """What the text was read as, in sympy's notation, cut at 500 characters."""
    reason: str = ""
    """Why there is no answer, where the status does not say all."""


class MathVerifier:
    """`workers` processes that judge answers, each killed and replaced when a pair takes longer than `timeout_s`.

    They start with the first pairs (about 2 s), may be asked from any thread, and end with `close`; a fork needs a
    verifier of its own. A worker may use `memory_bytes` of address space.
    """

    def __init__(self, workers: int = 1, timeout_s: float = 3.0, memory_bytes: int = 2 << 30) -> None:
        if workers < 1 or not 0 < timeout_s < math.inf:
            raise ConfigError(f"math verification: {workers!r} workers, {timeout_s!r} s; expected 1 or more, above 0 s")
        # a worker dies with the thread that started it, not with the process; so these threads live as long as we do
        self._threads = ThreadPoolExecutor(workers, "math-verifier")
        self._workers: dict[int, _Worker] = {}
        self._timeout_s, self._memory_bytes, self._pid = timeout_s, memory_bytes, os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; a pair that is being judged is waited for."""
        if os.getpid() == self._pid:  # a fork runs what its parent left for the exit
            self._threads.shutdown(cancel_futures=True)
            while self._workers:
                self._workers.popitem()[1].kill()

    def verify_answer(self, reference: str, prediction: str, tolerance: float = 1e-6) -> Verdict:
        """Judge one prediction; see `batch_verify`."""
        return self.batch_verify([(reference, prediction)], tolerance)[0]

    def batch_verify(self, pairs: Sequence[tuple[str, str]], tolerance: float = 1e-6) -> list[Verdict]:
        """Judge pairs of reference and prediction, and return the verdicts in their order.

        A prediction that cannot be read is wrong. A reference that cannot be read is a fault of the data set, and of a
        pair that takes too long or ends its worker nothing is known: `correct` is None. Such a pair has a hostile
        prediction as a rule; whoever grades decides whether that is no sample or a wrong one.

        Args:
            pairs: reference first; the two are not alike, for an interval answers to `1 < x < 2`, but not that to an interval.
            tolerance: from 1e-12 to 1, as the number of decimals to which numbers are rounded before they are compared.

        Raises:
            ConfigError: `tolerance` is out of range, or math-verify is not installed.
            WorkerDied: a worker ended before its first pair.
        """
        if not 1e-12 <= tolerance <= 1:
            raise ConfigError(f"math verification: tolerance {tolerance!r}; expected a number from 1e-12 to 1")
        if os.getpid() != self._pid:
            raise RuntimeError("a MathVerifier serves the process that made it; make one after the fork")
        digits = round(-math.log10(tolerance))
        references, predictions = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return list(self._threads.map(self._verdict, references, predictions, repeat(digits)))

    def _verdict(self, reference: str, prediction: str, digits: int) -> Verdict:
        too_long = f"longer than {MAX_CHARACTERS} characters"
        if len(reference) > MAX_CHARACTERS:
            return Verdict(None, "unparsed_reference", reason=f"the reference is {too_long}")
        if len(prediction) > MAX_CHARACTERS:
            return Verdict(False, "unparsed_prediction", reason=f"the prediction is {too_long}")
        mine = threading.get_ident()
        if mine not in self._workers or self._workers[mine].has_ended():
            self._workers[mine] = _Worker(self._memory_bytes)
        return self._workers[mine].judge((reference, prediction, digits), self._timeout_s)


def verify_answer(reference: str, prediction: str, tolerance: float = 1e-6) -> Verdict:
    """Judge one prediction with the verifier of this process, as `MathVerifier.batch_verify` does."""
    return _verifier().verify_answer(reference, prediction, tolerance)


def batch_verify(pairs: Sequence[tuple[str, str]], tolerance: float = 1e-6) -> list[Verdict]:
    """Judge pairs with the verifier of this process (one worker), as `MathVerifier.batch_verify` does."""
    return _verifier().batch_verify(pairs, tolerance)


def _verifier() -> MathVerifier:
    if os.getpid() not in _of_process:
        made = MathVerifier()
        if _of_process.setdefault(os.getpid(), made) is made:  # and no other thread was quicker
            atexit.register(made.close)
    return _of_process[os.getpid()]


class _Worker:
    """A process that judges one pair at a time."""

    def __init__(self, memory_bytes: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the locks of our threads as they are
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, os.getpid(), memory_bytes), name="math-verifier", daemon=True
        )
        with theirs, without_main():
            self._process.start()
        try:
            missing = self._connection.recv() if self._connection.poll(_START_S) else None
        except (EOFError, OSError):
            missing = None
        if missing == "":
            return
        self.kill()
        if missing:
            raise ConfigError(f"{missing} is missing, but math verification needs it; {install_command('training')}")
        raise WorkerDied("a worker of math verification ended before its first pair; is memory short?")

    def has_ended(self) -> bool:
        """Say whether it was killed, by us or by others; while idle it has nothing else to say."""
        return self._connection.closed or self._connection.poll()

    def judge(self, question: tuple[str, str, int], timeout_s: float) -> Verdict:
        verdict, is_spent = Verdict(None, "timeout", reason=f"no verdict after {timeout_s:g} s"), True
        try:
            self._connection.send(question)
            if self._connection.poll(timeout_s):
                verdict, is_spent = self._connection.recv()
        except (EOFError, OSError):
            verdict = Verdict(None, "error", reason="the worker ended before its verdict")
        if is_spent:
            self.kill()
        return verdict

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()


def _serve(connection: Connection, parent: int, memory_bytes: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    die_with(parent)
    if sys.platform == "linux":
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(
            resource.RLIMIT_AS, (memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard), hard)
        )
    try:
        math_verify = importlib.import_module("math_verify")
    except ImportError as error:
        connection.send(error.name or str(error))
        return
    logging.disable()
    _judged(math_verify, "$x^2+2x+1$", "$(x+1)^2$", 6)  # the first comparison takes up to 1 s, which is nobody's fault
    connection.send("")
    with suppress(EOFError):
        while True:
            verdict = _judged(math_verify, *connection.recv())
            # sympy takes a lack of memory for "not equal", and keeps what it computed for later
            is_spent = _peak_bytes() > memory_bytes / 2
            if is_spent and not verdict.correct:
                verdict = Verdict(None, "error", reason=f"it needs more than half of {memory_bytes} bytes of memory")
            connection.send((verdict, is_spent))


def _judged(math_verify: ModuleType, reference: str, prediction: str, digits: int) -> Verdict:
    try:
        gold = _parsed(math_verify, reference)
        if not _shown(gold):
            return Verdict(None, "unparsed_reference")
        found = _parsed(math_verify, prediction)
        if not _shown(found):
            return Verdict(False, "unparsed_prediction", _shown(gold))
        # its own limits are alarms; ours is the parent
        is_correct = math_verify.verify(gold, found, float_rounding=digits, timeout_seconds=None)
        return Verdict(bool(is_correct), "ok", _shown(gold), _shown(found))
    except Exception as error:  # whatever sympy raises on hostile text
        return Verdict(None, "error", reason=f"{type(error).__name__}: {error}"[:_SHOWN_CHARACTERS])


def _parsed(math_verify: ModuleType, text: str) -> list[Any]:
    """Return what the text may mean: expressions, and the text of one; that alone, or nothing, if none can be read."""
    bare = text.strip()
    in_dollars = [f"${bare}$"] if _EXPRESSION.fullmatch(bare) and not _NUMBER.fullmatch(bare) else []
    parsed: list[Any] = []
    for reading in (*in_dollars, text):
        parsed = parsed if _shown(parsed) else math_verify.parse(reading, parsing_timeout=None)
    return parsed


def _shown(parsed: Sequence[Any]) -> str | None:
    for expression in parsed:
        if not isinstance(expression, str):
            try:
                return str(expression)[:_SHOWN_CHARACTERS]
            except ValueError:  # Python writes no integer of more than 4300 digits
                return type(expression).__name__
    return None


def _peak_bytes() -> int:
    if sys.platform != "linux":
        return 0
    # not of getrusage, whose peak begins with that of the parent
    peak = re.search(r"VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8", "replace"))
    return int(peak[1]) << 10 if peak else 0
