"""What becomes of replies: answers of all kinds, attempts of teachers, and machines that fail."""

from typing import Any

import pytest

from graftline.codemod.equality import Level
from graftline.core.errors import SandboxError
from graftline.evals.attempt import Answered, Attempt, Cost, Failed, Question, Reply, Unaskable
from graftline.evals.grading import Grader, grading_workers
from graftline.evals.solvers import TeacherSolver
from graftline.rollouts.teachers.answer import AnswerFormat
from graftline.rollouts.teachers.induction import InductionTeacher
from graftline.sandbox.actions import MemorySandboxConfig
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import Verdict
from tests.eval_cases import FORMAT, LITERAL, RIGHT, TOO_MUCH, UNREADABLE, case


def answer(text: str, **of_case: Any) -> Answered:
    return Answered(Question(case(2, **of_case), 1), text, FORMAT, Cost(7, 0.25, 1.5))


def grade(reply: Reply) -> Attempt:
    return Grader(MemorySandbox()).attempt("m", reply)


def test_a_right_answer_is_verified_with_all_that_is_known_of_it() -> None:
    attempt = grade(answer(RIGHT))

    assert (attempt.solver, attempt.task_id, attempt.edit_class, attempt.attempt) == ("m", "demo:2", "rename", 1)
    assert (attempt.reward, attempt.cause, attempt.verdict, attempt.level) == (1, "verified", Verdict.OK, Level.EXACT)
    assert (attempt.over_application, attempt.right_on_unseen, attempt.is_infra) == (False, None, False)
    assert (attempt.tokens, attempt.cost_usd, attempt.latency_s) == (7, 0.25, 1.5)
    assert attempt.after == case(2).task.target


@pytest.mark.parametrize(
    ("text", "cause", "over", "unseen"),
    [
        (RIGHT, "verified", False, True),
        (LITERAL, "partial", False, False),
        # of three matches one must stay; blended rewards are `trajectories.reward`'s
        (TOO_MUCH, "no_progress", True, False),
        ('{"pattern": "gone($A)", "rewrite": "new($A)"}', "no_match", None, False),
        (UNREADABLE, "bad_format", None, False),
        # it only knows its example
        ('{"rule": {"any": [{"pattern": "old(1)"}, {"pattern": "old(2)"}]}, "fix": "new(1)"}', "partial", True, False),
    ],
)
def test_what_an_answer_changes_that_must_stay_and_what_it_does_elsewhere(
    text: str, cause: str, over: bool | None, unseen: bool
) -> None:
    attempt = grade(answer(text, has_unseen=True))

    assert (attempt.over_application, attempt.right_on_unseen, attempt.is_infra) == (over, unseen, False)
    assert attempt.cause in (cause, "partial")


CODE = AnswerFormat(layout="code")
DONE = "x = new(1)\ny = new(2)\nz = keep(3)"


@pytest.mark.parametrize(
    ("text", "reward", "cause", "over", "unseen"),
    [
        (f"Here it is:\n```python\n{DONE}\n```\nI renamed it.", 1.0, "verified", False, True),
        (DONE, 1.0, "verified", False, True),
        ("```python\nx = new(1)\ny = old(2)\nz = keep(3)\n```", None, "partial", False, False),
        (f"```python\n{DONE.replace('keep', 'new')}\n```", 0.0, "partial", True, False),
        # as it was, but for white space
        ("```python\nx = old(1)\ny = old(2)   \n\nz = keep(3)\n```", 0.0, "no_progress", None, False),
        ("```python\nx = new(1)", 0.0, "bad_format", None, False),
        ("", 0.0, "bad_format", None, False),
    ],
)
def test_code_is_worth_what_the_actions_are_that_induction_makes_of_it(
    text: str, reward: float | None, cause: str, over: bool | None, unseen: bool
) -> None:
    attempt = grade(Answered(Question(case(2, has_unseen=True), 1), text, CODE))

    assert (attempt.cause, attempt.over_application, attempt.right_on_unseen) == (cause, over, unseen)
    assert attempt.reward == reward if reward is not None else 0 < (attempt.reward or 0) < 1
    assert attempt.is_verified == (cause == "verified")


@pytest.mark.parametrize(
    ("reply", "reward", "cause", "is_infra", "unseen"),
    [
        # the fault of who cannot be asked, and none of a machine
        (Unaskable(Question(case(1, has_unseen=True), 1), "too_long"), 0.0, "too_long", False, False),
        (Failed(Question(case(1), 1), "actor 'a' is gone"), None, "actor 'a' is gone", True, None),
        # an answer that is no text can be stored
        (answer("\ud800"), 0.0, "bad_format", False, None),
    ],
)
def test_replies_without_an_action_are_graded(
    reply: Reply, reward: float | None, cause: str, is_infra: bool, unseen: bool | None
) -> None:
    attempt = grade(reply)

    assert (attempt.reward, attempt.cause, attempt.is_infra) == (reward, cause, is_infra)
    assert (attempt.right_on_unseen, attempt.text) == (unseen, "?" if isinstance(reply, Answered) else "")


class BrokenSandbox(MemorySandbox):
    """Fails for the first `times`."""

    def __init__(self, times: int) -> None:
        self.left = times

    def apply_many(self, *given: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise SandboxError("the jail is broken")
        return super().apply_many(*given)


def test_nothing_is_known_where_the_sandbox_failed_and_it_is_not_remembered() -> None:
    grader = Grader(BrokenSandbox(2))

    first, second = grader.attempt("m", answer(RIGHT)), grader.attempt("m", answer(RIGHT))

    assert (first.reward, first.is_infra, first.cause) == (None, True, "the jail is broken")
    # it is paid for all the same
    assert (first.tokens, first.cost_usd, first.latency_s) == (7, 0.25, 1.5)
    assert (second.reward, second.is_infra) == (1.0, False)


def test_an_answer_is_graded_once_more_before_another_is_asked_for() -> None:
    found = Grader(BrokenSandbox(1)).attempt("m", answer(RIGHT))

    assert (found.reward, found.is_infra, found.cost_usd) == (1.0, False, 0.25)


def test_the_same_answer_to_the_same_task_is_graded_once() -> None:
    sandbox = BrokenSandbox(0)
    grader = Grader(sandbox)
    first = grader.attempt("m", answer(RIGHT))
    used = sandbox.left

    assert grader.attempt("n", answer(RIGHT)) == first.model_copy(update={"solver": "n"})
    assert sandbox.left == used


def test_the_same_answer_is_graded_again_where_other_code_is_not_shown() -> None:
    grader = Grader(MemorySandbox())

    assert [grader.attempt("m", answer(RIGHT, has_unseen=has)).right_on_unseen for has in (False, True)] == [None, True]


def test_an_attempt_of_a_teacher_counts_with_all_its_steps() -> None:
    sandbox = MemorySandbox()
    solver = TeacherSolver(InductionTeacher(sandbox), sandbox)
    [reply] = solver.replies([Question(case(2, has_unseen=True), 1)])
    found = Grader(sandbox).attempt("induction", reply)

    assert (found.is_verified, found.right_on_unseen, found.text, found.tokens) == (True, True, "", 0)
    assert (len(found.actions), found.cost_usd) == (1, 0.0)


def test_workers_grade_as_this_process_does_and_in_order() -> None:
    replies = [answer(text) for text in (RIGHT, LITERAL, TOO_MUCH, UNREADABLE)]
    with grading_workers(2, MemorySandboxConfig()) as grading:
        found = list(grading("m", iter(replies)))

    assert found == [Grader(MemorySandbox()).attempt("m", reply) for reply in replies]
