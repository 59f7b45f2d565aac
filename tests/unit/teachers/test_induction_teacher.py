"""The induction teacher: its steps, what it was told on the way, what it carries on, and when it gives up."""

import pytest

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.core.errors import SandboxError
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import NoProposal, Proposal
from graftline.rollouts.teachers.induction import InductionTeacher
from graftline.sandbox import Isolation, SandboxResult, Verdict
from graftline.sandbox.actions.memory import MemorySandbox
from tests.tasks import make_task


def proposed(given: Task, text: str | None = None, state: State | None = None) -> Proposal:
    proposal = InductionTeacher(MemorySandbox()).propose(
        given, given.before if text is None else text, state or State()
    )
    assert isinstance(proposal, Proposal)
    return proposal


TOO_BROAD = make_task("def f():\n    old(1)\n    x = 2\n    old(2)\n", "def f():\n    new(1)\n    x = 2\n    old(2)\n")


def test_what_failed_on_the_way_is_told_with_the_line_it_failed_on() -> None:
    proposal = proposed(TOO_BROAD)
    assert len(proposal.attempts) == 2
    assert {attempt.feedback for attempt in proposal.attempts} == {
        "It also rewrites line 4, `old(2)`, which must stay as it is. 1 match was right."
    }
    assert all("old" in attempt.think for attempt in proposal.attempts)
    assert "line 4, `old(2)`" in proposal.think


def test_the_attempts_are_real_failures_and_the_action_is_none_of_them() -> None:
    proposal = proposed(TOO_BROAD)
    actions = [proposal.action, *(attempt.action for attempt in proposal.attempts)]
    right, *failed = MemorySandbox().apply_many(TOO_BROAD.before, "python", actions)
    assert right.after == TOO_BROAD.target
    assert {result.after for result in failed} == {TOO_BROAD.before.replace("old", "new")}


def test_a_line_that_must_stay_becomes_a_constraint_and_what_was_learned_a_decision() -> None:
    update = proposed(TOO_BROAD).state_update
    assert update.constraints == ["keep `old(2)` as it is"]
    assert update.decisions is not None
    assert update.decisions[0].startswith("not ")
    assert update.decisions[0].endswith("wrong on `old(2)`")


def test_alternatives_are_right_as_well() -> None:
    given = make_task("x = old(1)\ny = old(2)\n", "x = new(1)\ny = new(2)\n")
    proposal = proposed(given)
    results = MemorySandbox().apply_many(given.before, "python", proposal.alternatives)
    assert len(results) > 0
    assert proposal.action not in proposal.alternatives
    assert {result.verdict for result in results} == {Verdict.OK}


def test_the_goal_is_set_once_and_cut() -> None:
    given = make_task("old(1)\n", "new(1)\n", instruction="x" * 300)
    assert proposed(given).state_update.goals == ["x" * 239 + "…"]
    assert proposed(given, state=State(goals=("g",))).state_update.goals is None


def test_a_task_without_words_has_a_goal_all_the_same() -> None:
    given = make_task("old(1)\n", "new(1)\n", instruction=" \n")
    assert proposed(given).state_update.goals == ["change the text as asked"]


def test_what_is_left_is_named_without_a_number_of_places() -> None:
    # two more places differ; nobody who sees the text alone can know
    given = make_task("old(1)\nx = 3\ny = 5\n", "new(1)\nx = 4\ny = 6\n")
    update = proposed(given).state_update
    assert update.next_focus != "done"
    assert update.open_issues is not None
    assert len(update.open_issues) == 1
    assert "2" not in update.open_issues[0]


def test_the_history_of_a_long_attempt_tells_its_steps_apart_and_stays_short() -> None:
    before = "".join(f"old{number}({number})\n" for number in range(12))
    given, sandbox = make_task(before, before.replace("old", "new"), instruction="Rename them. " * 90), MemorySandbox()
    text, state, thoughts = given.before, State(), set()
    while text != given.target:
        proposal = proposed(given, text, state)
        thoughts.add(proposal.think)
        [result] = sandbox.apply_many(text, "python", [proposal.action])
        assert result.after is not None
        text, state = result.after, state.apply(proposal.state_update)
    assert len(thoughts) == 12
    assert state.history == tuple(
        f"rewrote `old{number}($A)` to `new{number}($A)` (line {number + 1})" for number in (9, 10, 11)
    )
    # 4 characters per token
    assert len(state.model_dump_json()) < 4 * 800


CAUSES = {
    "done": (TOO_BROAD, TOO_BROAD.target),
    "too_large": (make_task("x" * 20_000 + "\n", "y\n"), "x" * 20_000 + "\n"),
    "unreadable": (make_task("\ud800", "x\n"), "\ud800"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_teacher_that_gives_up_says_why(cause: str) -> None:
    given, text = CAUSES[cause]
    assert InductionTeacher(MemorySandbox()).propose(given, text, State()) == NoProposal(cause)


class WaitingSandbox:
    """A sandbox on a machine that is too busy for anything."""

    isolation = Isolation("none", "waiting")

    def apply_many(self, source: str, language: Language, actions: object) -> list[SandboxResult]:
        assert isinstance(actions, list)
        return [SandboxResult(Verdict.WALL_TIMEOUT, None, self.isolation) for _ in actions]

    def close(self) -> None:
        """Nothing is held."""


def test_a_machine_too_busy_to_try_a_candidate_is_no_reason_to_give_up() -> None:
    with pytest.raises(SandboxError):
        InductionTeacher(WaitingSandbox()).propose(TOO_BROAD, TOO_BROAD.before, State())


def test_a_general_step_says_what_it_leaves_open() -> None:
    proposal = proposed(make_task("x = old(1)\ny = old(2)\n", "x = new(1)\ny = new(2)\n"))
    assert proposal.action == PatternAction(pattern="old($A)", rewrite="new($A)")
    assert "$A (here `1`)" in proposal.think
    assert proposal.state_update.decisions == ["leave $A open in `old($A)`"]
    assert proposal.state_update.hypotheses == ["what looks like `old($A)` changes alike everywhere"]
