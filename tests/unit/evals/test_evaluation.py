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

from graftline.core.config import validate
from graftline.core.errors import BoundaryError, SandboxError
from graftline.evals.attempt import Answered, Attempt, Cost, Question, Replies
from graftline.evals.evaluation import evaluate, run_solver
from graftline.evals.evaluation_file import EvaluationFile
from graftline.evals.grading import Grader
from graftline.evals.metrics import summarize
from graftline.sandbox.actions.memory import MemorySandbox
from tests.eval_cases import FORMAT, RIGHT, UNREADABLE, FunctionSolver, attempt, case
from tests.training_root import CHECKOUT

CASES = [case(number) for number in range(2, 5)]


def solver(answer: Callable[[Question], str | Exception], draws: bool = True) -> FunctionSolver:
    return FunctionSolver(answer, FORMAT, draws)


def always(text: str) -> Callable[[Question], str | Exception]:
    return lambda question: text


@pytest.fixture
def grader() -> Grader:
    return Grader(MemorySandbox())


def test_solvers_are_asked_the_same_one_after_the_other(grader: Grader) -> None:
    right, wrong = solver(always(RIGHT)), solver(always(UNREADABLE))

    found = evaluate(CASES, {"right": right, "wrong": wrong}, grader, attempts=2)

    assert right.questions == wrong.questions == [(one.id, number) for one in CASES for number in (1, 2)]
    assert [one.solver for one in found] == ["right"] * 6 + ["wrong"] * 6
    assert [one.is_verified for one in found] == [True] * 6 + [False] * 6


def test_who_always_says_the_same_is_asked_once(grader: Grader) -> None:
    same = solver(always(RIGHT), draws=False)

    assert len(run_solver("m", same, CASES, grader, attempts=4)) == 3


def test_what_says_nothing_is_asked_once_more_and_then_kept_apart(grader: Grader) -> None:
    asked: Counter[str] = Counter()

    def answer(question: Question) -> str | Exception:
        asked[question.case.id] += 1
        is_broken = question.case.id == "demo:2" or (question.case.id == "demo:3" and asked["demo:3"] == 1)
        return OSError("the line is cut") if is_broken else RIGHT

    found = run_solver("m", solver(answer), CASES, grader)

    assert asked == {"demo:2": 2, "demo:3": 2, "demo:4": 1}
    assert [(one.reward, one.is_infra) for one in found] == [(None, True), (1.0, False), (1.0, False)]


@pytest.mark.parametrize(("tasks", "attempts"), [(3, 3), (58, 16)])
def test_nobody_is_asked_for_long_who_does_not_answer(grader: Grader, tasks: int, attempts: int) -> None:
    nobody = solver(lambda question: OSError("nobody is there"))

    with pytest.raises(BoundaryError, match=rf"solver 'm': of {attempts} attempts none says.*nobody is there"):
        run_solver("m", nobody, [case(number) for number in range(2, 2 + tasks)], grader)
    assert len(nobody.questions) <= 17


def test_two_cases_of_one_task_are_refused(grader: Grader) -> None:
    with pytest.raises(ValueError, match="demo:2"):
        run_solver("m", solver(always(RIGHT)), [CASES[0], CASES[0]], grader)


def test_a_journal_of_other_tasks_or_another_solver_is_begun_anew(grader: Grader, tmp_path: Path) -> None:
    run_solver("m", solver(always(RIGHT)), CASES[:2], grader, journals=tmp_path, settings_digest="a")
    other_tasks, other_settings = solver(always(RIGHT)), solver(always(RIGHT))
    run_solver("m", other_tasks, CASES, grader, journals=tmp_path, settings_digest="a")
    run_solver("m", other_settings, CASES, grader, journals=tmp_path, settings_digest="b")

    assert (len(other_tasks.questions), len(other_settings.questions)) == (3, 3)


def test_a_journal_of_another_model_is_begun_anew_whoever_keeps_it(grader: Grader, tmp_path: Path) -> None:
    evaluate(CASES, {"m": solver(always(RIGHT))}, grader, journals=tmp_path)
    other, nameless = solver(always(UNREADABLE)), solver(always(RIGHT))
    other.digest, nameless.digest = "another model", ""
    found = evaluate(CASES, {"m": other}, grader, journals=tmp_path)

    assert (len(other.questions), [one.is_verified for one in found]) == (3, [False] * 3)
    with pytest.raises(ValueError, match="solver 'm': does not say which model it asks"):
        evaluate(CASES, {"m": nameless}, grader, journals=tmp_path)


def test_what_every_try_used_is_counted(grader: Grader) -> None:
    class Paid(FunctionSolver):
        def replies(self, questions: Sequence[Question]) -> Replies:
            for one in super().replies(questions):
                yield replace(one, cost=Cost(10, 0.5, 1.0)) if isinstance(one, Answered) else one

    # how often the sandbox still fails at the text of a task
    broken = {CASES[0].task.before: 2, CASES[1].task.before: 4}

    class Breaking(MemorySandbox):
        def apply_many(self, text: str, *given: Any) -> Any:
            if broken.get(text, 0):
                broken[text] -= 1
                raise SandboxError("the jail is broken")
            return super().apply_many(text, *given)

    found = run_solver("m", Paid(always(RIGHT), FORMAT), CASES, Grader(Breaking()))
    [shown] = summarize(found)

    # the first task could be graded when it had been asked again, the second never, and the third at once
    assert [(one.is_infra, one.cost_usd, one.tokens) for one in found] == [
        (False, 1.0, 20),
        (True, 1.0, 20),
        (False, 0.5, 10),
    ]
    assert (shown.n, shown.n_infra, shown.cost_usd, shown.tokens) == (2, 1, 2.5, 50)


def test_what_a_machine_failed_at_is_not_in_the_journal(grader: Grader, tmp_path: Path) -> None:
    def answer(question: Question) -> str | Exception:
        return OSError("gone") if question.case.id == "demo:2" else RIGHT

    run_solver("m", solver(answer), CASES, grader, journals=tmp_path)
    again = solver(always(RIGHT))
    found = run_solver("m", again, CASES, grader, journals=tmp_path)

    assert again.questions == [("demo:2", 1)]
    assert [one.is_infra for one in found] == [False, False, False]


def test_an_evaluation_that_is_killed_goes_on_where_it_was(tmp_path: Path, grader: Grader) -> None:
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from graftline.evals.evaluation import evaluate
        from graftline.evals.grading import Grader
        from tests.eval_cases import FunctionSolver
        from graftline.sandbox.actions.memory import MemorySandbox
        from tests.eval_cases import FORMAT, RIGHT, case

        def answer(question):
            if question.case.id == "demo:4":
                print("at the last one", flush=True)
                time.sleep(60)
            return RIGHT

        cases = [case(number) for number in range(2, 5)]
        evaluate(cases, {"m": FunctionSolver(answer, FORMAT)}, Grader(MemorySandbox()), journals=Path(sys.argv[1]))
        """
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at the last one\n"
        process.send_signal(signal.SIGKILL)
    again = solver(always(RIGHT))
    found = evaluate(CASES, {"m": again}, grader, journals=tmp_path)

    assert again.questions == [("demo:4", 1)]
    assert len(found) == 3


def test_files_and_attempts_of_version_0_1_0_call_solvers_contestants() -> None:
    entry = {"kind": "teacher"}
    tree = {"tasks": [{"kind": "pairs", "path": "pairs.jsonl"}], "contestants": {"m": entry}}
    assert [*validate(tree, EvaluationFile, "a.yaml").solvers] == ["m"]
    values = attempt("m", "a").model_dump(mode="json")
    assert Attempt.model_validate({"contestant": values.pop("solver"), **values}) == attempt("m", "a")
