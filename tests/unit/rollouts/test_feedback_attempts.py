"""Attempts of a teacher that listens: what it is told, what stays, and when it has failed too often."""

from collections.abc import Callable, Sequence

import pytest

from graftline.astgrep.action import PatternAction
from graftline.codemod.equality import Level
from graftline.llm.base import Message
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.reward import Reward, rl_reward
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import InvalidAnswer, NoProposal, Proposal, Turn
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.actions.memory import MemorySandbox
from tests.tasks import make_generation

TaskOf = Callable[..., Task]
ASKED = make_generation(messages=(Message(role="user", content="Change it."),))
SILENT = InvalidAnswer("there is no <action>", ASKED)


class ListeningTeacher:
    """Gives its answers one after the other, and keeps what it was told."""

    name, uses_feedback = "listening", True

    def __init__(self, answers: Sequence[PatternAction | InvalidAnswer]) -> None:
        self._answers = list(answers)
        self.heard: list[tuple[str, tuple[tuple[str, bool], ...]]] = []

    def propose(
        self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1
    ) -> Proposal | InvalidAnswer | NoProposal:
        self.heard.append((text, tuple((turn.feedback, turn.is_kept) for turn in turns)))
        if not self._answers:
            return NoProposal("no_idea")
        answer = self._answers.pop(0)
        if isinstance(answer, InvalidAnswer):
            return answer
        return Proposal("", answer, StateUpdate(history=[f"step {len(self.heard)}"]), generation=ASKED)


def pattern(old: str, new: str) -> PatternAction:
    return PatternAction(pattern=old, rewrite=new)


def attempted(
    task: Task, *answers: PatternAction | InvalidAnswer, **settings: int
) -> tuple[Trajectory, ListeningTeacher]:
    teacher = ListeningTeacher(answers)
    return collect(task, teacher, MemorySandbox(), RolloutConfig(**settings)), teacher


OLD, MISSED, BROAD = pattern("old($A)", "x($A)"), pattern("odl($A)", "x($A)"), pattern("$F(1)", "x(1)")


def test_a_failed_action_leaves_the_text_and_is_answered(task_of: TaskOf) -> None:
    trajectory, teacher = attempted(task_of("old(1)\nb(1)\n", "x(1)\nb(1)\n"), MISSED, OLD)
    [_, (text, [(feedback, is_kept)])] = teacher.heard
    assert (text, feedback.startswith("Nothing in the text matches."), is_kept) == ("old(1)\nb(1)\n", True, False)
    assert [(step.is_kept, step.reward.cause) for step in trajectory.steps] == [(False, "no_match"), (True, "verified")]
    assert (trajectory.ending, trajectory.level, [step.step for step in trajectory.path]) == ("done", Level.EXACT, [2])


def test_what_an_action_changes_too_much_is_taken_back_and_named(task_of: TaskOf) -> None:
    trajectory, teacher = attempted(task_of("old(1)\nb(1)\n", "x(1)\nb(1)\n"), BROAD, OLD)
    first = trajectory.steps[0]
    assert teacher.heard[1] == ("old(1)\nb(1)\n", ((first.feedback, False),))
    assert "It also rewrites line 2, `b(1)`, which must stay as it is" in first.feedback
    assert (trajectory.is_verified, trajectory.reward) == (True, Reward(value=1.0, cause="verified"))


def test_a_step_on_the_way_is_kept_and_its_state_with_it(task_of: TaskOf) -> None:
    task = task_of("old(1)\ng(2)\n", "x(1)\ny(2)\n")
    trajectory, _ = attempted(task, OLD, pattern("h($A)", "y($A)"), pattern("g($A)", "y($A)"))
    assert [(step.prompt.text, step.state_before.history) for step in trajectory.steps] == [
        ("old(1)\ng(2)\n", ()),
        ("x(1)\ng(2)\n", ("step 1",)),
        ("x(1)\ng(2)\n", ("step 1",)),
    ]
    assert [step.is_kept for step in trajectory.steps] == [True, False, True]


def test_an_answer_that_cannot_be_read_is_a_step_without_an_action(task_of: TaskOf) -> None:
    trajectory, teacher = attempted(task_of("old(1)\n", "x(1)\n"), SILENT, OLD)
    first = trajectory.steps[0]
    assert (first.model_output.action, first.sandbox_result, first.format_ok) == (None, None, False)
    assert first.reward == Reward(value=0.0, cause="bad_format")
    assert teacher.heard[1] == ("old(1)\n", (("there is no <action>", False),))
    # what was mended on the way is no fault of what came of it
    assert (trajectory.is_verified, trajectory.format_ok) == (True, True)


def test_answers_that_cannot_be_read_are_of_bad_format(task_of: TaskOf) -> None:
    trajectory, _ = attempted(task_of("old(1)\n", "x(1)\n"), SILENT, SILENT, SILENT, OLD)
    found = (trajectory.ending, trajectory.format_ok, rl_reward(trajectory.format_ok, trajectory.reward))
    assert found == ("max_failed", False, -1.0)


@pytest.mark.parametrize(
    ("answers", "ending", "steps"),
    [
        ([MISSED, MISSED, OLD], "max_failed", 2),
        # a step that is kept begins the count anew
        ([MISSED, OLD, MISSED, MISSED], "max_failed", 4),
        ([MISSED, OLD, MISSED], "gave_up", 3),
    ],
    ids=["at once", "after a step that is kept", "given up before"],
)
def test_so_many_failures_in_a_row_end_an_attempt(
    task_of: TaskOf, answers: list[PatternAction], ending: str, steps: int
) -> None:
    trajectory, _ = attempted(task_of("old(1)\ng(2)\n", "x(1)\ny(2)\n"), *answers, max_failed=2)
    assert (trajectory.ending, len(trajectory.steps)) == (ending, steps)


def test_what_failed_after_the_last_text_takes_nothing_from_the_reward(task_of: TaskOf) -> None:
    trajectory, _ = attempted(task_of("old(1)\ng(2)\n", "x(1)\ny(2)\n"), OLD, MISSED, MISSED, max_failed=2)
    assert (trajectory.level, trajectory.reward) == (Level.PARTIAL, Reward(value=0.3, cause="partial"))


def test_a_text_that_was_there_before_is_no_way_on(task_of: TaskOf) -> None:
    task = task_of("old(1)\ng(2)\n", "x(1)\ny(2)\n")
    trajectory, _ = attempted(task, OLD, pattern("x(1)", "old(1)"), max_failed=1)
    assert [(step.is_kept, step.prompt.text) for step in trajectory.steps] == [
        (True, "old(1)\ng(2)\n"),
        (False, "x(1)\ng(2)\n"),
    ]


def test_a_text_that_cannot_be_read_again_is_answered(task_of: TaskOf) -> None:
    trajectory, _ = attempted(task_of("old(1)\n" * 40, "x(1)\n"), pattern("old($A)", "-" * 400 + "1"), max_failed=1)
    assert "on line 1 it writes `-----" in trajectory.steps[0].feedback
