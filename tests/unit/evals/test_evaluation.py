"""Evaluations: who is asked what, what is asked again, and what is kept when one is killed."""

import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import BoundaryError, RecordError, SandboxError
from graftline.evals.cases import Question
from graftline.evals.evaluation import attempts_of, evaluate
from graftline.evals.figures import figures
from graftline.evals.grading import Grader
from graftline.evals.memory import MemoryContestant
from graftline.evals.replies import Cost, Replies, Said
from graftline.sandbox.actions.memory import MemorySandbox
from tests.contests import FORMAT, RIGHT, UNREADABLE, case
from tests.training_root import CHECKOUT

CASES = [case(number) for number in range(2, 5)]


def contestant(answer: Callable[[Question], str | Exception], draws: bool = True) -> MemoryContestant:
    return MemoryContestant(answer, FORMAT, draws)


def always(text: str) -> Callable[[Question], str | Exception]:
    return lambda question: text


@pytest.fixture
def grader() -> Grader:
    return Grader(MemorySandbox())


def test_contestants_are_asked_the_same_one_after_the_other(grader: Grader) -> None:
    right, wrong = contestant(always(RIGHT)), contestant(always(UNREADABLE))

    found = evaluate(CASES, {"right": right, "wrong": wrong}, grader, attempts=2)

    assert right.asked == wrong.asked == [(one.id, number) for one in CASES for number in (1, 2)]
    assert [one.contestant for one in found] == ["right"] * 6 + ["wrong"] * 6
    assert [one.is_verified for one in found] == [True] * 6 + [False] * 6


def test_who_always_says_the_same_is_asked_once(grader: Grader) -> None:
    same = contestant(always(RIGHT), draws=False)

    assert len(attempts_of("m", same, CASES, grader, attempts=4)) == 3


def test_what_says_nothing_is_asked_once_more_and_then_kept_apart(grader: Grader) -> None:
    asked: Counter[str] = Counter()

    def answer(question: Question) -> str | Exception:
        asked[question.case.id] += 1
        is_broken = question.case.id == "demo:2" or (question.case.id == "demo:3" and asked["demo:3"] == 1)
        return OSError("the line is cut") if is_broken else RIGHT

    found = attempts_of("m", contestant(answer), CASES, grader)

    assert asked == {"demo:2": 2, "demo:3": 2, "demo:4": 1}
    assert [(one.reward, one.is_infra) for one in found] == [(None, True), (1.0, False), (1.0, False)]


def test_an_evaluation_of_which_nothing_is_known_is_an_error(grader: Grader) -> None:
    nobody = contestant(lambda question: OSError("nobody is there"))

    with pytest.raises(BoundaryError, match=r"contestant 'm': of 3 attempts none says anything.*nobody is there"):
        attempts_of("m", nobody, CASES, grader)


def test_nobody_is_asked_for_long_who_does_not_answer(grader: Grader) -> None:
    nobody = contestant(lambda question: OSError("nobody is there"))

    with pytest.raises(BoundaryError, match="of 16 attempts"):
        attempts_of("m", nobody, [case(number) for number in range(2, 60)], grader)
    assert len(nobody.asked) <= 17


def test_two_cases_of_one_task_are_refused(grader: Grader) -> None:
    with pytest.raises(ValueError, match="demo:2"):
        attempts_of("m", contestant(always(RIGHT)), [CASES[0], CASES[0]], grader)


def test_what_is_in_the_journal_is_not_asked_again(grader: Grader, tmp_path: Path) -> None:
    def stops(question: Question) -> str | Exception:
        if question.case.id == "demo:4":
            raise KeyboardInterrupt
        return RIGHT

    with pytest.raises(KeyboardInterrupt):
        evaluate(CASES, {"m": contestant(stops)}, grader, journals=tmp_path)
    again = contestant(always(RIGHT))
    found = evaluate(CASES, {"m": again}, grader, journals=tmp_path)

    assert again.asked == [("demo:4", 1)]
    assert [one.is_verified for one in found] == [True, True, True]


def test_a_journal_of_other_tasks_or_another_contestant_is_begun_anew(grader: Grader, tmp_path: Path) -> None:
    attempts_of("m", contestant(always(RIGHT)), CASES[:2], grader, journals=tmp_path, made_by="a")
    other_tasks, other_settings = contestant(always(RIGHT)), contestant(always(RIGHT))
    attempts_of("m", other_tasks, CASES, grader, journals=tmp_path, made_by="a")
    attempts_of("m", other_settings, CASES, grader, journals=tmp_path, made_by="b")

    assert (len(other_tasks.asked), len(other_settings.asked)) == (3, 3)


def test_a_journal_of_another_model_is_begun_anew_whoever_keeps_it(grader: Grader, tmp_path: Path) -> None:
    class Named(MemoryContestant):
        digest = "another model"

    evaluate(CASES, {"m": contestant(always(RIGHT))}, grader, journals=tmp_path)
    other, nameless = Named(always(UNREADABLE), FORMAT), Named(always(RIGHT), FORMAT)
    found = evaluate(CASES, {"m": other}, grader, journals=tmp_path)
    Named.digest = ""

    assert (len(other.asked), [one.is_verified for one in found]) == (3, [False] * 3)
    with pytest.raises(ValueError, match="contestant 'm': does not say which model it asks"):
        evaluate(CASES, {"m": nameless}, grader, journals=tmp_path)


def test_what_every_try_used_is_counted(grader: Grader) -> None:
    class Paid(MemoryContestant):
        def replies(self, questions: Sequence[Question]) -> Replies:
            for one in super().replies(questions):
                yield replace(one, cost=Cost(10, 0.5, 1.0)) if isinstance(one, Said) else one

    # how often the sandbox still fails at the text of a task
    broken = {CASES[0].task.before: 2, CASES[1].task.before: 4}

    class Breaking(MemorySandbox):
        def apply_many(self, text: str, *given: Any) -> Any:
            if broken.get(text, 0):
                broken[text] -= 1
                raise SandboxError("the jail is broken")
            return super().apply_many(text, *given)

    found = attempts_of("m", Paid(always(RIGHT), FORMAT), CASES, Grader(Breaking()))
    [shown] = figures(found)

    # the first task could be graded when it had been asked again, the second never, and the third at once
    assert [(one.is_infra, one.cost_usd, one.tokens) for one in found] == [
        (False, 1.0, 20),
        (True, 1.0, 20),
        (False, 0.5, 10),
    ]
    assert (shown.n, shown.n_infra, shown.cost_usd, shown.tokens) == (2, 1, 2.5, 50)


def test_a_line_that_a_kill_left_half_written_is_made_again(grader: Grader, tmp_path: Path) -> None:
    attempts_of("m", contestant(always(RIGHT)), CASES, grader, journals=tmp_path)
    [journal] = tmp_path.iterdir()
    journal.write_bytes(journal.read_bytes()[:-20])
    again = contestant(always(RIGHT))
    attempts_of("m", again, CASES, grader, journals=tmp_path)

    assert again.asked == [("demo:4", 1)]
    assert len(journal.read_bytes().splitlines()) == 4


def test_a_journal_that_was_altered_is_named(grader: Grader, tmp_path: Path) -> None:
    attempts_of("m", contestant(always(RIGHT)), CASES, grader, journals=tmp_path)
    [journal] = tmp_path.iterdir()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + b"{}\n")

    with pytest.raises(RecordError, match="line 2 is no attempt; delete the file"):
        attempts_of("m", contestant(always(RIGHT)), CASES, grader, journals=tmp_path)


def test_what_a_machine_failed_at_is_not_in_the_journal(grader: Grader, tmp_path: Path) -> None:
    def answer(question: Question) -> str | Exception:
        return OSError("gone") if question.case.id == "demo:2" else RIGHT

    attempts_of("m", contestant(answer), CASES, grader, journals=tmp_path)
    again = contestant(always(RIGHT))
    found = attempts_of("m", again, CASES, grader, journals=tmp_path)

    assert again.asked == [("demo:2", 1)]
    assert [one.is_infra for one in found] == [False, False, False]


def test_an_evaluation_that_is_killed_goes_on_where_it_was(tmp_path: Path, grader: Grader) -> None:
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from graftline.evals.evaluation import evaluate
        from graftline.evals.grading import Grader
        from graftline.evals.memory import MemoryContestant
        from graftline.sandbox.actions.memory import MemorySandbox
        from tests.contests import FORMAT, RIGHT, case

        def answer(question):
            if question.case.id == "demo:4":
                print("at the last one", flush=True)
                time.sleep(60)
            return RIGHT

        cases = [case(number) for number in range(2, 5)]
        evaluate(cases, {"m": MemoryContestant(answer, FORMAT)}, Grader(MemorySandbox()), journals=Path(sys.argv[1]))
        """
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at the last one\n"
        process.send_signal(signal.SIGKILL)
    again = contestant(always(RIGHT))
    found = evaluate(CASES, {"m": again}, grader, journals=tmp_path)

    assert again.asked == [("demo:4", 1)]
    assert len(found) == 3
