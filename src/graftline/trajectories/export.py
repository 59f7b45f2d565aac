"""Rows of Parquet from trajectories: one per step and one per trajectory, the reward a nullable number beside its cause."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from graftline.actions.action import ACTION
from graftline.parquet import Column
from graftline.trajectories.step import Trajectory, TrajectoryStep

STEPS: Mapping[str, Column] = {
    "task_id": "text",
    "dataset": "text",
    "language": "text",
    "split": "text",
    "teacher": "text",
    "step": "whole",
    "instruction": "text",
    "text": "text",
    "state_before": "text",
    "think": "text",
    "action": "text",
    "action_form": "text",
    "state_update": "text",
    "verdict": "text",
    "matches": "whole",
    "after": "text?",
    "isolation": "text",
    "level": "text",
    "progress": "number",
    "is_general": "flag",
    "is_verified": "flag",
    "reward": "number?",
    "reward_cause": "text",
}
TRAJECTORIES: Mapping[str, Column] = {
    "task_id": "text",
    "dataset": "text",
    "language": "text",
    "split": "text",
    "teacher": "text",
    "instruction": "text",
    "licence": "text",
    "origin_group": "text",
    "origin": "text",
    "steps": "whole",
    "level": "text",
    "ending": "text",
    "is_verified": "flag",
    "is_all_general": "flag",
    "reward": "number?",
    "reward_cause": "text",
}


def step_rows(trajectories: Iterable[Trajectory], split: str) -> list[dict[str, Any]]:
    """Return one row of `STEPS` per step."""
    return [_step_row(trajectory, step, split) for trajectory in trajectories for step in trajectory.steps]


def trajectory_rows(trajectories: Iterable[Trajectory], split: str) -> list[dict[str, Any]]:
    """Return one row of `TRAJECTORIES` per trajectory."""
    return [
        {
            "task_id": trajectory.task_id,
            "dataset": trajectory.dataset,
            "language": trajectory.language,
            "split": split,
            "teacher": trajectory.teacher,
            "instruction": trajectory.instruction,
            "licence": trajectory.licence,
            "origin_group": trajectory.group,
            "origin": trajectory.origin,
            "steps": len(trajectory.steps),
            "level": str(trajectory.level),
            "ending": trajectory.ending,
            "is_verified": trajectory.is_verified,
            "is_all_general": bool(trajectory.steps) and all(step.is_general for step in trajectory.steps),
            "reward": trajectory.reward.value,
            "reward_cause": trajectory.reward.cause,
        }
        for trajectory in trajectories
    ]


def _step_row(trajectory: Trajectory, step: TrajectoryStep, split: str) -> dict[str, Any]:
    action = ACTION.dump_python(step.model_output.action, mode="json")
    return {
        "task_id": trajectory.task_id,
        "dataset": trajectory.dataset,
        "language": trajectory.language,
        "split": split,
        "teacher": trajectory.teacher,
        "step": step.step,
        "instruction": step.prompt.instruction,
        "text": step.prompt.text,
        "state_before": step.state_before.model_dump_json(),
        "think": step.model_output.think,
        "action": json.dumps(action, ensure_ascii=False),
        "action_form": "rule" if "rule" in action else "pattern",
        "state_update": step.model_output.state_update.model_dump_json(exclude_none=True),
        "verdict": str(step.sandbox_result.verdict),
        "matches": step.sandbox_result.matches,
        "after": step.sandbox_result.after,
        "isolation": step.sandbox_result.isolation,
        "level": str(step.level),
        "progress": step.progress,
        "is_general": step.is_general,
        "is_verified": trajectory.is_verified,
        "reward": step.reward.value,
        "reward_cause": step.reward.cause,
    }
