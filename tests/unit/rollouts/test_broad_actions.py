"""What is held against an action that changes much foreign code, beside the gold of its task."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.reward import Reward
from graftline.rollouts.task import Task
from graftline.sandbox.actions.memory import MemorySandbox

TaskOf = Callable[..., Task]
Reading = Callable[[Sequence[PatternAction | RuleAction]], Any]

BROAD = PatternAction(pattern="len($A)", rewrite="size($A)")
NARROW = PatternAction(pattern="len(no_such_name)", rewrite="size(no_such_name)")
# ast-grep refuses it, so that nobody knows how much foreign code it changes
UNKNOWN = PatternAction(pattern="len($A)", rewrite="$UNDEFINED")


@pytest.mark.parametrize(
    ("golds", "expected"),
    [
        ((), Reward(value=0.6, cause="verified_broad")),
        ((NARROW,), Reward(value=0.6, cause="verified_broad")),
        ((BROAD,), Reward(value=1.0, cause="verified")),
        ((UNKNOWN,), Reward(value=1.0, cause="verified")),
        ((NARROW, UNKNOWN), Reward(value=1.0, cause="verified")),
    ],
    ids=["without a gold", "a narrow gold", "a gold as broad", "a gold of unknown spread", "one gold of two unknown"],
)
def test_a_gold_of_unknown_spread_is_held_against_nobody(
    task_of: TaskOf, reading: Reading, golds: tuple[PatternAction, ...], expected: Reward
) -> None:
    task = task_of("len(b)\n", "size(b)\n").model_copy(
        update={"gold_action": golds[0] if golds else None, "gold_next": golds[1:]}
    )
    assert collect(task, reading([BROAD]), MemorySandbox(), RolloutConfig()).reward == expected
