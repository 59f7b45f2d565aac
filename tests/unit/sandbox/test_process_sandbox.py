"""The process sandbox as its caller sees it: what is too large, what is split, and what an interruption leaves."""

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.core.errors import SandboxError
from graftline.sandbox.actions.process import ProcessSandbox
from graftline.sandbox.base import Limits, Match, Verdict
from tests.processes import children_with
from tests.security.hostile.action_cases import search

RENAME = PatternAction(pattern="f($A)", rewrite="g($A)")


@pytest.fixture
def process() -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(Limits())
    yield sandbox
    sandbox.close()


@pytest.mark.parametrize(
    "action",
    [
        PatternAction(pattern="f($A)", rewrite="\N{GRINNING FACE}" * 16_384),
        PatternAction(pattern="f($A)", rewrite="g($A)", selector="k" * 200_000),
        RuleAction(rule={"kind": "call"}, fix="\N{GRINNING FACE}" * 20_000),
    ],
    ids=["rewrite", "selector", "fix"],
)
def test_an_action_too_large_for_a_command_line_is_a_result_and_harms_no_other(
    process: ProcessSandbox, action: PatternAction | RuleAction
) -> None:
    results = process.apply_many("f(1)\n", "python", [RENAME, action, RENAME])
    assert [result.verdict for result in results] == [Verdict.OK, Verdict.ACTION_ERROR, Verdict.OK]
    assert results[1].error.endswith("at most 100000 are applied")


def test_the_size_is_named_in_the_bytes_that_count(process: ProcessSandbox) -> None:
    # {"id": "a0", "language": "python", "rule": {"kind": "call"}, "fix": "…"} is 71 bytes and 6 for each letter
    [result] = process.apply_many("f(1)\n", "python", [RuleAction(rule={"kind": "call"}, fix="é" * 20_000)])
    assert result.error == "rule of 120071 bytes as JSON; at most 100000 are applied"


def test_actions_too_large_together_are_applied_in_several_calls(process: ProcessSandbox) -> None:
    actions = [PatternAction(pattern="f($A)", rewrite=f"{letter}" * 16_000) for letter in "abcdefghijkl"]
    results = process.apply_many("f(1)\n", "python", actions)
    assert [result.after for result in results] == [letter * 16_000 + "\n" for letter in "abcdefghijkl"]


def test_a_large_source_travels_whole(process: ProcessSandbox) -> None:
    source = "x = 'é'\n" * 60_000 + "f(1)\n"
    [result] = process.apply_many(source, "python", [RENAME])
    # a line of 8 characters
    assert result.matches == (Match(480_000, 480_004, "g(1)"),)


def test_a_source_sent_while_nobody_reads_it_is_no_failure(process: ProcessSandbox) -> None:
    # the rule is refused before the source is read
    [result] = process.apply_many("x = 1\n" * 80_000, "python", [RuleAction(rule={"kind": "no_such_kind"}, fix="")])
    assert result.verdict is Verdict.ACTION_ERROR


class Interruption(BaseException):
    pass


def test_an_interrupted_answer_is_not_taken_for_that_of_the_next_call(process: ProcessSandbox) -> None:
    def interrupt(*_: object) -> None:
        raise Interruption

    process.apply_many("f(1)\n", "python", [RENAME])
    slow = RuleAction(rule=search("has", 4), fix="x")
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Interruption):
            process.apply_many("f(" * 250 + "1" + ")" * 250, "python", [slow])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert process.apply_many("f(2)\n", "python", [RENAME])[0].after == "g(2)\n"


def test_a_closed_sandbox_opens_again_when_it_is_used(process: ProcessSandbox) -> None:
    process.close()
    assert process.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"


def test_a_jail_whose_folder_is_gone_says_nothing_about_the_action(process: ProcessSandbox) -> None:
    process.apply_many("f(1)\n", "python", [RENAME])
    shutil.rmtree(folder_of(process))
    with pytest.raises(SandboxError, match="ended by exit 6"):
        process.apply_many("f(1)\n", "python", [RENAME])
    assert process.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"


def test_a_child_that_somebody_kills_says_nothing_about_the_action(process: ProcessSandbox) -> None:
    process.apply_many("f(1)\n", "python", [RENAME])
    [spawner] = children_with("inside.spawner")
    slow = RuleAction(rule=search("has", 4), fix="x")
    finished = threading.Event()

    def kill() -> None:
        while not finished.wait(0.001):
            with suppress(psutil.NoSuchProcess):
                for child in spawner.children():
                    child.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(SandboxError, match="ended by signal 9"):
            process.apply_many("f(" * 300 + ")" * 300, "python", [slow])
    finally:
        finished.set()
        killer.join()


def folder_of(process: ProcessSandbox) -> Path:
    [spawner] = children_with("inside.spawner")
    return Path(spawner.cwd())
