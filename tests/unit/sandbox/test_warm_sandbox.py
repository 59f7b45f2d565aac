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

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.core.errors import SandboxError
from graftline.sandbox.actions.warm import WarmSandbox
from graftline.sandbox.base import Limits, Request, Verdict
from graftline.sandbox.inside.warm_worker import FLOOD, NO_MEMORY
from tests.processes import children_with
from tests.security.hostile.action_cases import search

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
    """Return the workers that are not those of a sandbox that other tests leave open."""
    return [child for child in all_workers() if child not in OF_OTHERS]


def all_workers() -> list[psutil.Process]:
    return children_with("warm_worker")


OF_OTHERS: list[psutil.Process] = []


@pytest.fixture(autouse=True, scope="module")
def _others() -> None:
    OF_OTHERS.extend(all_workers())


def test_more_actions_than_a_batch_holds_are_all_answered(warm: WarmSandbox) -> None:
    actions = [PatternAction(pattern="f($A)", rewrite=f"g{number}($A)") for number in range(200)]
    results = warm.apply_many("f(1)\n", "python", actions)
    assert [result.after for result in results] == [f"g{number}(1)\n" for number in range(200)]


def test_a_rule_is_refused_beside_a_good_one_with_the_same_pattern(warm: WarmSandbox) -> None:
    named = RuleAction(
        rule={"kind": "string", "any": [{"matches": "own"}], "regex": "s"}, utils={"own": {"kind": "string"}}, fix="new"
    )
    bad = PatternAction(pattern="h($A)", rewrite="$B")
    good = PatternAction(pattern="h($A)", rewrite="$A")
    results = warm.apply_many("y = 1\n" * 2_000 + "'s'\n", "python", [good, bad, named, RENAME])
    assert [result.verdict for result in results] == ["no_match", "action_error", "ok", "no_match"]


def test_each_of_many_crashes_costs_one_action(warm: WarmSandbox) -> None:
    good = PatternAction(pattern="x = $A", rewrite="y")
    requests = [Request(DEEP, "python", (good, CRASHING, good)), Request("f(1)\n", "python", (RENAME,))] * 2
    results = warm.apply_each(requests)
    expected = [[Verdict.OK, Verdict.CRASH, Verdict.OK], [Verdict.OK]] * 2
    assert [[result.verdict for result in of_one] for of_one in results] == expected


def test_an_action_that_takes_too_long_costs_itself_alone(warm: WarmSandbox) -> None:
    source = "f(" * 250 + "1" + ")" * 250 + "\n"
    results = warm.apply_many(source, "python", [RENAME, RuleAction(rule=search("has", 4), fix="x"), RENAME])
    assert [result.verdict for result in results] == [Verdict.OK, Verdict.CPU_TIMEOUT, Verdict.OK]


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


def test_one_batch_cannot_change_what_the_next_one_sees(warm: WarmSandbox) -> None:
    before = [worker.pid for worker in workers()]
    for number in range(20):
        [result] = warm.apply_many(f"f({number})\n", "python", [RENAME])
        assert result.after == f"g({number})\n"
    assert [worker.pid for worker in workers()] == before
    # of the children one is left to each worker, which waits for the next batch; an answer does not wait for their ends
    deadline = time.monotonic() + 240
    while (children := sum(len(worker.children()) for worker in workers())) > len(
        before
    ) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children == len(before)


# the longer one does not fit into the pipe that nobody reads
@pytest.mark.parametrize("source", ["f(1)\n", "f(1)\n" * 80_000], ids=["short", "long"])
def test_a_stopped_worker_is_a_wall_timeout_and_is_replaced(source: str) -> None:
    earlier = workers()
    sandbox = WarmSandbox(Limits(wall_s=2.0))
    try:
        assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].verdict is Verdict.OK
        [worker] = [process for process in workers() if process not in earlier]
        worker.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        assert [result.verdict for result in sandbox.apply_many(source, "python", [RENAME])] == [Verdict.WALL_TIMEOUT]
        assert time.monotonic() - started < 60
        assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].verdict is Verdict.OK
        assert worker.pid not in [process.pid for process in workers()]
    finally:
        sandbox.close()


def test_a_closed_sandbox_opens_again_when_it_is_used(warm: WarmSandbox) -> None:
    warm.close()
    assert workers() == []
    assert warm.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"


USED = {"cpu_s": 0.5, "wall_s": 1.0, "peak_kb": 2048}
GOOD = {"verdict": "no_match", "error": "", "matches": [], **USED}
FORGED = {"verdict": "ok", "error": "", "matches": [[0, 1, "forged"]], **USED}
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
    send(b"E", {end!r})
"""


@pytest.fixture
def speaking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WarmSandbox]:
    """A sandbox whose worker is a program that gives the same answers to every batch, as a child might that was taken over."""
    popen = subprocess.Popen

    def open_worker(answers: list[Any], end: tuple[str, int] = ("exit", 0), stderr: str = "") -> WarmSandbox:
        message = {"end": end[0], "code": int(end[1]), "stderr": stderr, **USED}
        program = SPEAKING.format(answers=answers, end=message)
        monkeypatch.setattr(subprocess, "Popen", lambda command, **how: popen([sys.executable, "-c", program], **how))
        return WarmSandbox(Limits())

    return open_worker


def test_what_a_child_says_after_its_answers_is_not_taken_for_those_of_the_next_call(
    speaking: Callable[..., WarmSandbox],
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
def test_an_answer_in_another_form_is_a_violation(speaking: Callable[..., WarmSandbox], answer: Any) -> None:
    with closing(speaking([answer])) as sandbox:
        assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].verdict is Verdict.VIOLATION


@pytest.mark.parametrize(
    ("end", "stderr", "verdict"),
    [
        (("signal", signal.SIGPROF), "", Verdict.CPU_TIMEOUT),
        (("signal", signal.SIGSYS), "", Verdict.VIOLATION),
        (("signal", signal.SIGSEGV), "", Verdict.CRASH),
        (("signal", signal.SIGSEGV), "memory allocation of 80 bytes failed", Verdict.OUT_OF_MEMORY),
        (("signal", signal.SIGABRT), "tree-sitter failed to allocate 80 bytes", Verdict.OUT_OF_MEMORY),
        (("exit", NO_MEMORY), "", Verdict.OUT_OF_MEMORY),
        (("exit", FLOOD), "", Verdict.OUTPUT_FLOOD),
    ],
)
def test_how_a_child_ends_is_the_verdict_on_the_action_it_was_at(
    speaking: Callable[..., WarmSandbox], end: tuple[str, int], stderr: str, verdict: Verdict
) -> None:
    with closing(speaking([], end, stderr)) as sandbox:
        assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].verdict is verdict


# that of the kernel when memory is short, that of a parent, and a fault of the program inside
@pytest.mark.parametrize("end", [("signal", signal.SIGKILL), ("signal", signal.SIGTERM), ("exit", 99), ("exit", 0)])
def test_an_end_that_is_the_machines_is_no_verdict(speaking: Callable[..., WarmSandbox], end: tuple[str, int]) -> None:
    with (
        closing(speaking([], end)) as sandbox,
        pytest.raises(SandboxError, match=f"a child ended by {end[0]} {end[1]:d}"),
    ):
        sandbox.apply_many("f(1)\n", "python", [RENAME])
