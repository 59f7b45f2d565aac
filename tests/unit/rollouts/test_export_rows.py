"""Rows of trajectories and steps: their columns, and a reward of 0.0 that stays apart from none."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.cost import description_length
from graftline.core.parquet import read_parquet, write_parquet
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.exports.parquet import STEPS, TRAJECTORIES, step_rows, trajectory_rows
from graftline.rollouts.reward import Reward
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import FailedAttempt
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.actions.memory import MemorySandbox

Made = Callable[[Sequence[PatternAction | RuleAction]], Trajectory]
F = PatternAction(pattern="old($A)", rewrite="x($A)")
TWO_STEPS = [PatternAction(pattern="old($A)", rewrite="mid($A)"), PatternAction(pattern="mid($A)", rewrite="x($A)")]
MDL = round(description_length(F) / description_length(PatternAction(pattern="old('é')", rewrite="x('é')")), 3)

OF_BOTH = {
    "task_id": "d:1",
    "dataset": "d",
    "language": "python",
    "teacher": "reading",
    "attempt": 1,
    "prompt_tokens": None,
    "completion_tokens": None,
    "cost_usd": None,
    "latency_s": None,
    "parse_ok": True,
    "format_ok": True,
    "level": "exact",
    "progress": 1.0,
    "over_in": 0,
    "over_out": 0.0,
    "idempotent": True,
    "neg_fail": None,
    "mdl": MDL,
    "support": 1,
    "support_pairs": 1,
    "srl": None,
    "is_verified": True,
    "reward": 1.0,
    "reward_cause": "verified",
    "rl_reward": 1.0,
}
"""What the row of an attempt and that of its only step have in common."""


@pytest.fixture
def made(task_of: Callable[..., Task], reading: Callable[..., Any]) -> Made:
    """A function of actions that returns the attempt in which they are proposed."""
    task = task_of("old('é')\n", "x('é')\n")
    return lambda actions: collect(task, reading(actions), MemorySandbox(), RolloutConfig())


def test_a_trajectory_is_one_row(made: Made) -> None:
    assert trajectory_rows([made([F])], "train") == [
        {
            **OF_BOTH,
            "split": "train",
            "instruction": "Change it.",
            "instruction_source": "human",
            "answerable": True,
            "answerable_by": "written",
            "license": "MIT",
            "origin_group": "g",
            "origin": "o",
            "task_digest": made([F]).task_digest,
            "made_by": "",
            "steps": 1,
            "verified_steps": 1,
            "ending": "done",
            "failure": "",
            "all_general": True,
        }
    ]


def test_a_step_is_one_row(made: Made) -> None:
    [row] = step_rows([made([F])], "dev")
    assert State.model_validate_json(row.pop("state_before")) == State()
    assert row == {
        **OF_BOTH,
        "split": "dev",
        "step": 1,
        "instruction": "Change it.",
        "text": "old('é')\n",
        "think": "thought 1",
        "action": '{"pattern": "old($A)", "rewrite": "x($A)"}',
        "action_form": "pattern",
        "attempts": "[]",
        "alternatives": "[]",
        "state_update": '{"history":["step 1"]}',
        "verdict": "ok",
        "matches": 1,
        "after": "x('é')\n",
        "isolation": "none/memory",
        "feedback": "",
        "is_kept": True,
        "prompt_digest": None,
        "model": None,
        "temperature": None,
        "seed": None,
        "format_strict": True,
        "general": True,
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
    assert (row["steps"], row["all_general"], row["reward"], row["reward_cause"]) == (0, False, 0.0, "gave_up")
    unknown = ("parse_ok", "over_in", "over_out", "idempotent", "neg_fail", "mdl", "support", "support_pairs", "srl")
    assert [row[name] for name in unknown] == [None] * 9
    assert step_rows([given_up], "train") == []


def test_rows_stand_in_the_order_of_trajectories_and_steps(made: Made) -> None:
    first = made(TWO_STEPS)
    second = made([F]).model_copy(update={"task_id": "d:2"})
    rows = step_rows([first, second], "train")
    assert [(row["step"], row["text"]) for row in rows] == [(1, "old('é')\n"), (2, "mid('é')\n"), (1, "old('é')\n")]
    assert [row["task_id"] for row in trajectory_rows([first, second], "train")] == ["d:1", "d:2"]


def test_a_step_of_a_verified_attempt_counts_as_verified(made: Made) -> None:
    rows = step_rows([made(TWO_STEPS), made(TWO_STEPS[:1])], "train")
    assert [(row["level"], row["is_verified"]) for row in rows] == [("none", True), ("exact", True), ("none", False)]


def test_measures_of_a_trajectory_sum_up_those_of_its_steps(made: Made) -> None:
    trajectory = made(TWO_STEPS)
    first, second = trajectory.steps
    steps = (
        first.model_copy(
            update={
                "false_positives": 1,
                "background_matches": 0.5,
                "idempotent": False,
                "description_length": 0.2,
                "negatives_changed": None,
            }
        ),
        second.model_copy(
            update={
                "false_positives": 2,
                "background_matches": 0.25,
                "description_length": 0.3,
                "negatives_changed": 1,
                "support": 3,
            }
        ),
    )
    [row] = trajectory_rows([trajectory.model_copy(update={"steps": steps})], "train")
    found = {name: row[name] for name in ("over_in", "over_out", "idempotent", "mdl", "neg_fail", "support")}
    # nothing is known of the whole where it is not known of a part
    assert found == {
        "over_in": 3,
        "over_out": 0.5,
        "idempotent": False,
        "mdl": 0.25,
        "neg_fail": None,
        "support": first.support + 3,
    }


def test_a_refused_action_is_refused_whatever_else_is_not_known(made: Made) -> None:
    trajectory = made([PatternAction(pattern="old($A)", rewrite="$B"), F])
    [row] = trajectory_rows([trajectory], "train")
    assert (row["parse_ok"], row["failure"], row["over_in"]) == (False, "action_error", None)


def test_what_a_teacher_tried_and_knew_is_written_as_json(made: Made) -> None:
    trajectory = made([F])
    literal = PatternAction(pattern="old('é')", rewrite="x('é')")
    said = trajectory.steps[0].model_output.model_copy(
        update={"attempts": (FailedAttempt(action=literal, feedback="no"),), "alternatives": (literal,)}
    )
    step = trajectory.steps[0].model_copy(update={"model_output": said})
    [row] = step_rows([trajectory.model_copy(update={"steps": (step,)})], "train")
    action = {"pattern": "old('é')", "rewrite": "x('é')"}
    assert json.loads(row["attempts"]) == [{"think": "", "action": action, "feedback": "no"}]
    assert row["alternatives"] == '[{"pattern": "old(\'é\')", "rewrite": "x(\'é\')"}]'


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
