"""Rows of Parquet from trajectories: one per step and one per trajectory, the reward a nullable number beside its cause."""

import json
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Any

from graftline.astgrep.action import ACTION
from graftline.core.parquet import Column
from graftline.datasets.instruction_source import FIELDS
from graftline.rollouts.reward import Reward, rl_reward
from graftline.rollouts.trajectory import Trajectory, TrajectoryStep


def _columns(*lines: tuple[Column, str]) -> dict[str, Column]:
    return {name: kind for kind, names in lines for name in names.split()}


_MEASURES = _columns(
    ("flag?", "parse_ok"),
    ("flag", "format_ok"),
    ("text", "level"),
    ("number", "progress"),
    ("whole?", "over_in"),
    ("number?", "over_out"),
    ("flag?", "idempotent"),
    ("whole?", "neg_fail"),
    ("number?", "mdl"),
    ("whole?", "support support_pairs"),
    ("number?", "srl"),
)
_FIELDS_OF_MEASURES = {
    name for name, field in TrajectoryStep.model_fields.items() if (field.serialization_alias or name) in _MEASURES
}
_COST_COLUMNS = _columns(("whole?", "prompt_tokens completion_tokens"), ("number?", "cost_usd latency_s"))
_REWARDS = _columns(("number?", "reward"), ("text", "reward_cause"), ("number?", "rl_reward"))

STEPS: Mapping[str, Column] = {
    **_columns(
        ("text", "task_id dataset language split teacher"),
        ("whole", "attempt step"),
        ("text", "instruction text state_before think"),
        ("text?", "action action_form"),
        ("text", "attempts alternatives state_update"),
        ("text?", "verdict"),
        ("whole?", "matches"),
        ("text?", "after isolation"),
        ("text", "feedback"),
        ("flag", "is_kept"),
        ("text?", "prompt_digest model"),
        ("number?", "temperature"),
        ("whole?", "seed"),
    ),
    **_COST_COLUMNS,
    "format_strict": "flag",
    **_MEASURES,
    "general": "flag",
    "is_verified": "flag",
    **_REWARDS,
}
TRAJECTORIES: Mapping[str, Column] = {
    **_columns(
        ("text", "task_id dataset language split teacher"),
        ("whole", "attempt"),
        ("text", "instruction instruction_source"),
        ("flag?", "answerable"),
        ("text?", "answerable_by"),
        ("text", "license origin_group origin task_digest made_by"),
        ("whole", "steps verified_steps"),
        ("text", "ending failure"),
    ),
    **_COST_COLUMNS,
    **_MEASURES,
    "all_general": "flag",
    "is_verified": "flag",
    **_REWARDS,
}


def step_rows(trajectories: Iterable[Trajectory], split: str) -> list[dict[str, Any]]:
    """Return one row of `STEPS` per step."""
    return [_step_row(trajectory, step, split) for trajectory in trajectories for step in trajectory.steps]


def trajectory_rows(trajectories: Iterable[Trajectory], split: str) -> list[dict[str, Any]]:
    """Return one row of `TRAJECTORIES` per trajectory.

    Measures are of the steps of its path. What holds of every step is true when it is true of all, counts are sums,
    `over_out` and `neg_fail` those of the step that does worst, `mdl` and `srl` means; each is missing when it is of one
    step, and there is none without steps. What a language model cost is that of all steps, and missing where none was
    asked.
    """
    return [
        {
            **_attempt(trajectory, split),
            **{name: getattr(trajectory, name) for name in ("instruction", *FIELDS)},
            "license": trajectory.license,
            "origin_group": trajectory.group,
            "origin": trajectory.origin,
            "task_digest": trajectory.task_digest,
            "made_by": trajectory.made_by,
            "steps": len(trajectory.steps),
            "verified_steps": len(trajectory.path) if trajectory.is_verified else 0,
            "ending": trajectory.ending,
            "failure": trajectory.failure,
            **_total_cost(trajectory),
            **_summarize_measures(trajectory),
            "all_general": trajectory.all_general,
            "is_verified": trajectory.is_verified,
            **_rewards(trajectory.format_ok, trajectory.reward),
        }
        for trajectory in trajectories
    ]


def _total_cost(trajectory: Trajectory) -> dict[str, Any]:
    generations = [step.model_output.generation for step in trajectory.steps if step.model_output.generation]
    return {name: _summarize(sum, [getattr(generation, name) for generation in generations]) for name in _COST_COLUMNS}


def _summarize_measures(trajectory: Trajectory) -> dict[str, Any]:
    steps = trajectory.path
    accepted = [step.parse_ok for step in steps]
    progress = [step.progress for step in trajectory.steps if step.is_kept]
    return {
        # one that is refused says it of all
        "parse_ok": False if False in accepted else _summarize(all, accepted),
        "format_ok": trajectory.format_ok,
        "level": str(trajectory.level),
        # that of the last text: the progress of a step that was not kept is not it
        "progress": 1.0 if trajectory.is_verified else progress[-1] if progress else 0.0,
        "over_in": _summarize(sum, [step.false_positives for step in steps]),
        "over_out": _summarize(max, [step.background_matches for step in steps]),
        "idempotent": _summarize(all, [step.idempotent for step in steps]),
        "neg_fail": _summarize(max, [step.negatives_changed for step in steps]),
        "mdl": _summarize(_mean, [step.description_length for step in steps]),
        "support": _summarize(sum, [step.support for step in steps]),
        "support_pairs": _summarize(max, [step.support_pairs for step in steps]),
        "srl": _summarize(_mean, [step.srl for step in steps]),
    }


def _summarize(summary: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    """Return the summary of `values` if there are some and none is missing."""
    return None if not values or None in values else summary(values)


def _mean(values: list[float]) -> float:
    return round(fmean(values), 6)


def _step_row(trajectory: Trajectory, step: TrajectoryStep, split: str) -> dict[str, Any]:
    output, result, generation = step.model_output, step.sandbox_result, step.model_output.generation
    action = None if output.action is None else ACTION.dump_python(output.action, mode="json")
    alternatives = [ACTION.dump_python(alternative, mode="json") for alternative in output.alternatives]
    # measures have the same keys in rows as in files
    measures = step.model_dump(mode="json", by_alias=True, include=_FIELDS_OF_MEASURES)
    return {
        **_attempt(trajectory, split),
        "step": step.step,
        "instruction": step.prompt.instruction,
        "text": step.prompt.text,
        "state_before": step.state_before.model_dump_json(),
        "think": output.think,
        "action": None if action is None else json.dumps(action, ensure_ascii=False),
        "action_form": None if action is None else "rule" if "rule" in action else "pattern",
        "attempts": json.dumps([attempt.model_dump(mode="json") for attempt in output.attempts], ensure_ascii=False),
        "alternatives": json.dumps(alternatives, ensure_ascii=False),
        "state_update": output.state_update.model_dump_json(exclude_none=True),
        "verdict": str(result.verdict) if result else None,
        "matches": result.matches if result else None,
        "after": result.after if result else None,
        "isolation": result.isolation if result else None,
        "feedback": step.feedback,
        "is_kept": step.is_kept,
        **{
            name: getattr(generation, name, None)
            for name in ("prompt_digest", "model", "temperature", "seed", *_COST_COLUMNS)
        },
        "format_strict": step.format_strict,
        **{name: measures[name] for name in _MEASURES},
        "general": step.general,
        "is_verified": trajectory.is_verified and step.is_kept,
        **_rewards(step.format_ok, step.reward),
    }


def _attempt(trajectory: Trajectory, split: str) -> dict[str, Any]:
    return {
        "task_id": trajectory.task_id,
        "dataset": trajectory.dataset,
        "language": trajectory.language,
        "split": split,
        "teacher": trajectory.teacher,
        "attempt": trajectory.attempt,
    }


def _rewards(is_well_formed: bool, reward: Reward) -> dict[str, Any]:
    return {"reward": reward.value, "reward_cause": reward.cause, "rl_reward": rl_reward(is_well_formed, reward)}
