"""What becomes of replies: answers of all kinds, attempts of teachers, and machines that fail."""

from typing import Any

import pytest

from graftline.codemod.equality import Level
from graftline.core.errors import SandboxError
from graftline.evals.attempt import Answered, Cost, Failed, Question, Unaskable
from graftline.evals.grading import Grader, grading_workers
from graftline.evals.solvers import TeacherSolver
from graftline.rollouts.teachers.induction import InductionTeacher
from graftline.sandbox.actions import MemorySandboxConfig
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import Verdict
from tests.eval_cases import FORMAT, LITERAL, RIGHT, TOO_MUCH, UNREADABLE, case


def said(text: str, **of_case: Any) -> Answered:
    return Answered(Question(case(2, **of_case), 1), text, FORMAT, Cost(7, 0.25, 1.5))


def test_a_right_answer_is_verified_with_all_that_is_known_of_it() -> None:
    found = Grader(MemorySandbox()).attempt("m", said(RIGHT))

    assert (found.contestant, found.task_id, found.edit_class, found.attempt) == ("m", "demo:2", "rename", 1)
    assert (found.reward, found.cause, found.verdict, found.level) == (1.0, "verified", Verdict.OK, Level.EXACT)
    assert (found.level is Level.EXACT, found.over_application, found.right_on_unseen, found.is_infra) == (
        True,
        False,
        None,
        False,
    )
    assert (found.tokens, found.cost_usd, found.latency_s) == (7, 0.25, 1.5)
    assert found.after == case(2).task.target


@pytest.mark.parametrize(
    ("text", "cause", "over", "unseen"),
    [
        (RIGHT, "verified", False, True),
        (LITERAL, "partial", False, False),
        # of three matches one must stay; blended rewards are `trajectories.reward`'s
        (TOO_MUCH, "no_progress", True, False),
        ('{"pattern": "gone($A)", "rewrite": "new($A)"}', "no_match", None, False),
        (UNREADABLE, "bad_format", None, False),
    ],
)
def test_what_an_answer_changes_that_must_stay_and_what_it_does_elsewhere(
    text: str, cause: str, over: bool | None, unseen: bool
) -> None:
    found = Grader(MemorySandbox()).attempt("m", said(text, has_unseen=True))

    assert (found.over_application, found.right_on_unseen, found.is_infra) == (over, unseen, False)
    assert found.cause in (cause, "partial")


def test_an_action_that_only_knows_its_example_is_not_right_on_unseen_code() -> None:
    both = '{"rule": {"any": [{"pattern": "old(1)"}, {"pattern": "old(2)"}]}, "fix": "new(1)"}'
    found = Grader(MemorySandbox()).attempt("m", said(both, has_unseen=True))

    assert (found.is_verified, found.right_on_unseen) == (False, False)


def test_a_question_that_cannot_be_asked_is_worth_nothing_and_is_no_failure_of_a_machine() -> None:
    found = Grader(MemorySandbox()).attempt("m", Unaskable(Question(case(1, has_unseen=True), 1), "too_long"))

    assert (found.reward, found.cause, found.is_infra, found.right_on_unseen) == (0.0, "too_long", False, False)


def test_an_answer_that_is_no_text_can_be_stored() -> None:
    found = Grader(MemorySandbox()).attempt("m", said("\ud800"))

    assert (found.text, found.cause) == ("?", "bad_format")


def test_nothing_is_known_where_nobody_answered() -> None:
    found = Grader(MemorySandbox()).attempt("m", Failed(Question(case(1), 1), "actor 'a' is gone"))

    assert (found.reward, found.cause, found.is_infra) == (None, "actor 'a' is gone", True)


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

    first, second = grader.attempt("m", said(RIGHT)), grader.attempt("m", said(RIGHT))

    assert (first.reward, first.is_infra, first.cause) == (None, True, "the jail is broken")
    # it is paid for all the same
    assert (first.tokens, first.cost_usd, first.latency_s) == (7, 0.25, 1.5)
    assert (second.reward, second.is_infra) == (1.0, False)


def test_an_answer_is_graded_once_more_before_another_is_asked_for() -> None:
    found = Grader(BrokenSandbox(1)).attempt("m", said(RIGHT))

    assert (found.reward, found.is_infra, found.cost_usd) == (1.0, False, 0.25)


def test_the_same_answer_to_the_same_task_is_graded_once() -> None:
    sandbox = BrokenSandbox(0)
    grader = Grader(sandbox)
    first = grader.attempt("m", said(RIGHT))
    used = sandbox.left

    assert grader.attempt("n", said(RIGHT)) == first.model_copy(update={"contestant": "n"})
    assert sandbox.left == used


def test_the_same_answer_is_graded_again_where_other_code_is_not_shown() -> None:
    grader = Grader(MemorySandbox())

    assert [grader.attempt("m", said(RIGHT, has_unseen=has)).right_on_unseen for has in (False, True)] == [None, True]


def test_an_attempt_of_a_teacher_counts_with_all_its_steps() -> None:
    sandbox = MemorySandbox()
    contestant = TeacherSolver(InductionTeacher(sandbox), sandbox)
    [reply] = contestant.replies([Question(case(2, has_unseen=True), 1)])
    found = Grader(sandbox).attempt("induction", reply)

    assert (found.is_verified, found.right_on_unseen, found.text, found.tokens) == (True, True, "", 0)
    assert (len(found.actions), found.cost_usd) == (1, 0.0)


def test_workers_grade_as_this_process_does_and_in_order() -> None:
    replies = [said(text) for text in (RIGHT, LITERAL, TOO_MUCH, UNREADABLE)]
    with grading_workers(2, MemorySandboxConfig()) as grading:
        found = list(grading("m", iter(replies)))

    assert found == [Grader(MemorySandbox()).attempt("m", reply) for reply in replies]
