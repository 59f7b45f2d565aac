"""Rows of trajectories and steps: their columns, and a reward of 0.0 that stays apart from none."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graftline.actions.action import PatternAction, RuleAction
from graftline.parquet import read_parquet, write_parquet
from graftline.sandbox.memory import MemorySandbox
from graftline.tasks.task import Task
from graftline.trajectories.collect import Collecting, collect
from graftline.trajectories.export import STEPS, TRAJECTORIES, step_rows, trajectory_rows
from graftline.trajectories.reward import Reward
from graftline.trajectories.step import Trajectory

Made = Callable[[Sequence[PatternAction | RuleAction]], Trajectory]
F = PatternAction(pattern="f($A)", rewrite="x($A)")


@pytest.fixture
def made(task_of: Callable[..., Task], reading: Callable[..., Any]) -> Made:
    """A function of actions that returns the attempt in which they are proposed."""
    task = task_of("f('é')\n", "x('é')\n")
    return lambda actions: collect(task, reading(actions), MemorySandbox(), Collecting())


def test_a_trajectory_is_one_row(made: Made) -> None:
    assert trajectory_rows([made([F])], "train") == [
        {
            "task_id": "d:1",
            "dataset": "d",
            "language": "python",
            "split": "train",
            "teacher": "reading",
            "instruction": "Change it.",
            "licence": "MIT",
            "origin_group": "g",
            "origin": "o",
            "steps": 1,
            "level": "exact",
            "ending": "done",
            "is_verified": True,
            "is_all_general": True,
            "reward": 1.0,
            "reward_cause": "verified",
        }
    ]


def test_a_step_is_one_row(made: Made) -> None:
    [row] = step_rows([made([F])], "dev")
    state = json.loads(row.pop("state_before"))
    assert state == {
        "goals": [],
        "constraints": [],
        "decisions": [],
        "hypotheses": [],
        "history": [],
        "open_issues": [],
        "next_focus": "",
    }
    assert row == {
        "task_id": "d:1",
        "dataset": "d",
        "language": "python",
        "split": "dev",
        "teacher": "reading",
        "step": 1,
        "instruction": "Change it.",
        "text": "f('é')\n",
        "think": "thought 1",
        "action": '{"pattern": "f($A)", "rewrite": "x($A)"}',
        "action_form": "pattern",
        "state_update": '{"history":["step 1"]}',
        "verdict": "ok",
        "matches": 1,
        "after": "x('é')\n",
        "isolation": "none/memory",
        "level": "exact",
        "progress": 1.0,
        "is_general": True,
        "is_verified": True,
        "reward": 1.0,
        "reward_cause": "verified",
    }


def test_a_rule_is_written_as_one(made: Made) -> None:
    action = RuleAction(rule={"kind": "call", "regex": "^f"}, fix="x('é')")
    [row] = step_rows([made([action])], "test")
    assert (row["action"], row["action_form"]) == (
        '{"rule": {"kind": "call", "regex": "^f"}, "fix": "x(\'é\')"}',
        "rule",
    )


def test_an_attempt_without_a_step_is_a_trajectory_and_no_step(made: Made) -> None:
    given_up = made([])
    [row] = trajectory_rows([given_up], "train")
    assert (row["steps"], row["is_all_general"], row["reward"], row["reward_cause"]) == (0, False, 0.0, "gave_up")
    assert step_rows([given_up], "train") == []


def test_rows_stand_in_the_order_of_trajectories_and_steps(made: Made) -> None:
    first = made([PatternAction(pattern="f($A)", rewrite="h($A)"), PatternAction(pattern="h($A)", rewrite="x($A)")])
    second = made([F]).model_copy(update={"task_id": "d:2"})
    rows = step_rows([first, second], "train")
    assert [(row["step"], row["text"]) for row in rows] == [(1, "f('é')\n"), (2, "h('é')\n"), (1, "f('é')\n")]
    assert [row["task_id"] for row in trajectory_rows([first, second], "train")] == ["d:1", "d:2"]


def test_a_step_of_a_verified_attempt_counts_as_verified(made: Made) -> None:
    actions = [PatternAction(pattern="f($A)", rewrite="h($A)"), PatternAction(pattern="h($A)", rewrite="x($A)")]
    rows = step_rows([made(actions), made(actions[:1])], "train")
    assert [(row["level"], row["is_verified"]) for row in rows] == [("none", True), ("exact", True), ("none", False)]


def test_the_columns_of_rows_are_those_declared(made: Made) -> None:
    trajectories = [made([F])]
    assert list(step_rows(trajectories, "train")[0]) == list(STEPS)
    assert list(trajectory_rows(trajectories, "train")[0]) == list(TRAJECTORIES)


def test_no_reward_and_a_reward_of_nothing_stay_apart_in_parquet(made: Made, tmp_path: Path) -> None:
    wrong = made([PatternAction(pattern="no_such($A)", rewrite="x($A)")])
    nothing = Reward(value=None, cause="wall_timeout")
    unknown = wrong.model_copy(
        update={"reward": nothing, "steps": (wrong.steps[0].model_copy(update={"reward": nothing}),)}
    )
    trajectories = [wrong, unknown, made([F])]
    for name, columns, rows in (
        ("steps", STEPS, step_rows(trajectories, "train")),
        ("trajectories", TRAJECTORIES, trajectory_rows(trajectories, "train")),
    ):
        write_parquet(tmp_path / name, rows, columns)
        read = read_parquet(tmp_path / name)
        assert read == rows
        assert [(row["reward"], row["reward_cause"]) for row in read] == [
            (0.0, "no_match"),
            (None, "wall_timeout"),
            (1.0, "verified"),
        ]


def test_no_rows_are_a_table_all_the_same(tmp_path: Path) -> None:
    write_parquet(tmp_path / "steps", [], STEPS)
    assert read_parquet(tmp_path / "steps") == []
