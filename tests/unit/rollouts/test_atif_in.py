"""Trajectories read from ATIF: foreign ones as far as they go, ours with all that makes them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.core.errors import DataError
from graftline.rollouts.atif_in import read_atif
from graftline.rollouts.collect import Collecting, collect
from graftline.rollouts.exports.atif import atif
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.step import Trajectory
from graftline.rollouts.task import Task
from graftline.sandbox.actions.memory import MemorySandbox
from tests.unit.rollouts.test_atif_schema import WHOLE, changed

WRONG, RIGHT = PatternAction(pattern="none($A)", rewrite="x($A)"), PatternAction(pattern="old($A)", rewrite="x($A)")
RULE = RuleAction(rule={"kind": "call", "regex": "^old"}, fix="x('é')")


@pytest.fixture
def made(task_of: Callable[..., Task], reading: Callable[..., Any]) -> Callable[..., Trajectory]:
    """A function of actions that returns the attempt in which they are proposed."""

    def attempt(actions: Sequence[PatternAction | RuleAction]) -> Trajectory:
        return collect(task_of("old('é')\n", "x('é')\n"), reading(actions), MemorySandbox(), Collecting())

    return attempt


@pytest.mark.parametrize("actions", [[RIGHT], [RULE], [WRONG], []])
def test_a_trajectory_of_ours_comes_back(
    made: Callable[..., Trajectory], actions: list[PatternAction | RuleAction]
) -> None:
    trajectory = made(actions)
    document = atif(trajectory)
    read = read_atif(document)
    assert read.document.document() == document
    assert read.is_own
    assert (read.agent, read.model, read.task_id) == ("reading", None, trajectory.task_id)
    assert (read.reward, read.ending) == (trajectory.reward, trajectory.ending)
    assert [
        (step.number, step.think, step.action, step.state_before, step.state_update, step.is_kept, step.reward)
        for step in read.steps[1:]
    ] == [
        (
            step.step + 1,
            step.model_output.think,
            step.model_output.action,
            step.state_before,
            step.model_output.state_update,
            step.is_kept,
            step.reward,
        )
        for step in trajectory.steps
    ]


def test_a_foreign_trajectory_is_read_as_far_as_it_goes() -> None:
    read = read_atif(WHOLE)
    assert (read.is_own, read.agent, read.model, read.reward, read.task_id) == (False, "codex", "m", None, None)
    assert read.instruction == "Look.\n[image: a.png]\n[audio: a.mp3]"
    third = read.steps[2]
    assert (third.source, third.message, third.think, third.answer) == ("agent", "Running.", "I run it.", "a b")
    assert (third.action, third.reward, third.state_before) == (None, None, None)
    assert [step.is_copied for step in read.steps] == [False, True, False, False]
    assert read.document.document() == WHOLE


def test_one_that_says_it_is_ours_and_is_not_is_refused(made: Callable[..., Trajectory]) -> None:
    with pytest.raises(DataError, match="not as graftline exports"):
        read_atif(changed("agent.name", "graftline/induction"))
    document = atif(made([RIGHT]))
    document["steps"][1]["extra"]["state_before"] = {"goals": [3]}
    with pytest.raises(DataError, match=r"state_before\.goals\.0: .*; it is not as graftline exports"):
        read_atif(document)
    document = atif(made([RIGHT]))
    document["steps"][1]["tool_calls"][0]["arguments"] = {"pattern": 3}
    with pytest.raises(DataError, match="it is not as graftline exports"):
        read_atif(document, "file.json")


def test_a_reward_of_zero_and_none_stay_apart(made: Callable[..., Trajectory]) -> None:
    document = atif(made([RIGHT]))
    for reward in (0.0, None):
        document["extra"]["reward"] = reward
        read = read_atif(document)
        assert read.reward is not None
        assert read.reward.value == reward
    assert read.steps[1].state_update == StateUpdate(history=["step 1"])
