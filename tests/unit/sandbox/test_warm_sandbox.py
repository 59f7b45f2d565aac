"""The warm sandbox as its caller sees it: batches, what goes to the command line, and what a lost worker costs."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest

from graftline.actions.action import PatternAction, RuleAction
from graftline.sandbox.base import Request, Verdict
from graftline.sandbox.limits import Limits
from graftline.sandbox.warm import WarmSandbox

RENAME = PatternAction(pattern="f($A)", rewrite="g($A)")
# a pattern as deep as the text overflows the matcher's stack
CRASHING = PatternAction(pattern="x = " + "-" * 16_000 + "1", rewrite="y")
DEEP = "x = " + "-" * 16_000 + "1\n"


@pytest.fixture(scope="module", params=[1, 3])
def warm(request: pytest.FixtureRequest) -> Iterator[WarmSandbox]:
    sandbox = WarmSandbox(Limits(cpu_s=1), workers=request.param)
    yield sandbox
    sandbox.close()


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "warm_worker" in " ".join(child.cmdline())]


def test_more_actions_than_a_batch_holds_are_all_answered(warm: WarmSandbox) -> None:
    actions = [PatternAction(pattern="f($A)", rewrite=f"g{number}($A)") for number in range(200)]
    results = warm.apply_many("f(1)\n", "python", actions)
    assert [result.after for result in results] == [f"g{number}(1)\n" for number in range(200)]


def test_each_of_many_crashes_costs_one_action(warm: WarmSandbox) -> None:
    good = PatternAction(pattern="x = $A", rewrite="y")
    requests = [Request(DEEP, "python", (good, CRASHING, good)), Request("f(1)\n", "python", (RENAME,))] * 4
    results = warm.apply_each(requests)
    expected = [[Verdict.OK, Verdict.CRASH, Verdict.OK], [Verdict.OK]] * 4
    assert [[result.verdict for result in of_one] for of_one in results] == expected


def test_an_action_that_takes_too_long_costs_itself_alone(warm: WarmSandbox) -> None:
    states = RuleAction(rule={"kind": "string", "regex": "(?:a{500}){500}b"}, fix="x")
    source = "f('" + "a" * 9_000 + "')\n" * 40
    results = warm.apply_many(source, "python", [RENAME, states, RENAME])
    assert results[0].after == results[2].after
    assert results[1].verdict in (Verdict.CPU_TIMEOUT, Verdict.NO_MATCH)


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("f(1)\n# ast-grep-ignore\nf(2)\n", "g(1)\n# ast-grep-ignore\nf(2)\n"),
        ("f('" + "a" * 20_000 + "')\n", "g('" + "a" * 20_000 + "')\n"),
    ],
    ids=["a comment that suppresses", "a long line"],
)
def test_what_the_binding_cannot_do_is_done_by_the_command_line(warm: WarmSandbox, source: str, after: str) -> None:
    [result] = warm.apply_many(source, "python", [RENAME])
    assert (result.after, result.isolation.implementation) == (after, "process")


def test_a_large_source_travels_whole(warm: WarmSandbox) -> None:
    [result] = warm.apply_many("x = 'é'\n" * 60_000 + "f(1)\n", "python", [RENAME])
    # a line of 8 characters
    assert [(match.start, match.end) for match in result.matches] == [(480_000, 480_004)]


def test_one_batch_cannot_change_what_the_next_one_sees(warm: WarmSandbox) -> None:
    before = [worker.pid for worker in workers()]
    for number in range(20):
        [result] = warm.apply_many(f"f({number})\n", "python", [RENAME])
        assert result.after == f"g({number})\n"
    assert [worker.pid for worker in workers()] == before
    # of twenty-one children one is left, which waits for the next batch
    assert sum(len(worker.children()) for worker in workers()) == len(before)


# the longer one does not fit into the pipe that nobody reads
@pytest.mark.parametrize("source", ["f(1)\n", "f(1)\n" * 80_000], ids=["short", "long"])
def test_a_stopped_worker_is_a_wall_timeout_and_is_replaced(source: str) -> None:
    others = workers()
    sandbox = WarmSandbox(Limits(wall_s=0.3))
    try:
        assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].verdict is Verdict.OK
        [worker] = [found for found in workers() if found not in others]
        worker.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        assert [result.verdict for result in sandbox.apply_many(source, "python", [RENAME])] == [Verdict.WALL_TIMEOUT]
        assert time.monotonic() - started < 20
        assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].verdict is Verdict.OK
        assert worker.pid not in [found.pid for found in workers()]
    finally:
        sandbox.close()


def test_a_closed_sandbox_opens_again_when_it_is_used(warm: WarmSandbox) -> None:
    warm.close()
    assert workers() == []
    assert warm.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"


GOOD = {"verdict": "no_match", "error": "", "matches": []}
FORGED = {"verdict": "ok", "error": "", "matches": [[0, 1, "forged"]]}
SPEAKING = """
import json, os, struct, sys
def send(kind, value):
    data = kind + json.dumps(value).encode()
    os.write(1, struct.pack(">I", len(data)) + data)
send(b"", {{"features": ["seccomp"]}})
while head := os.read(0, 4):
    os.read(0, struct.unpack(">I", head)[0])
    for answer in {answers!r}:
        send(b"R", answer)
    send(b"E", {{"end": "exit", "code": 0, "stderr": ""}})
"""


@pytest.fixture
def speaking(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any]], WarmSandbox]:
    """A sandbox whose worker is a program that gives the same answers to every batch, as a child might that was taken over."""
    popen = subprocess.Popen

    def opened(answers: list[Any]) -> WarmSandbox:
        program = SPEAKING.format(answers=answers)
        monkeypatch.setattr(subprocess, "Popen", lambda command, **how: popen([sys.executable, "-c", program], **how))
        return WarmSandbox(Limits())

    return opened


def test_what_a_child_says_after_its_answers_is_not_taken_for_those_of_the_next_call(
    speaking: Callable[[list[Any]], WarmSandbox],
) -> None:
    with closing(speaking([GOOD, FORGED])) as sandbox:
        verdicts = [sandbox.apply_many("f(1)\n", "python", [RENAME])[0].verdict for _ in range(3)]
    assert verdicts == [Verdict.NO_MATCH] * 3


@pytest.mark.parametrize(
    "answer",
    [
        *(7, None, [], {}, "ok"),
        {**GOOD, "verdict": "verified"},
        {**GOOD, "verdict": "wall_timeout"},  # that would stop the program that asked
        {**GOOD, "more": 1},
        {**FORGED, "matches": [[0, 1]]},
        {**FORGED, "matches": [[0, "1", "x"]]},
        {**FORGED, "matches": [[-1, 1, "x"]]},
    ],
)
def test_an_answer_in_another_form_is_a_violation(speaking: Callable[[list[Any]], WarmSandbox], answer: Any) -> None:
    with closing(speaking([answer])) as sandbox:
        assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].verdict is Verdict.VIOLATION
