"""Trajectories in the Agent Trajectory Interchange Format of Harbor, ATIF-v1.8.

https://github.com/harbor-framework/harbor (`src/harbor/models/trajectories`, release 0.25.0). What the agent thinks is
`reasoning_content`, an action a tool call, what sandbox and critic answer its observation; state, measures and rewards, for
which the format has no field, are `extra`. A step without a language model says so by `llm_call_count` 0.
"""

from typing import Any

from graftline import __version__
from graftline.astgrep.action import ACTION
from graftline.rollouts.teachers.base import Generation
from graftline.rollouts.trajectory import Trajectory, TrajectoryStep

SCHEMA_VERSION = "ATIF-v1.8"
_TOOL = "apply_astgrep"
_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")


def atif(trajectory: Trajectory) -> dict[str, Any]:
    """Return `trajectory` as an ATIF document; its first step is what the user asks."""
    generations = [step.model_output.generation for step in trajectory.steps if step.model_output.generation]
    agent: dict[str, Any] = {"name": f"graftline/{trajectory.teacher}", "version": __version__}
    if generations:
        agent["model_name"] = generations[0].model
    before = trajectory.steps[0].prompt.text if trajectory.steps else ""
    question = {"step_id": 1, "source": "user", "message": f"{trajectory.instruction}\n\n{before}".strip()}
    names = ("task_id", "task_digest", "attempt", "language", "license", "origin")
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": trajectory.key,
        "agent": agent,
        "steps": [question, *map(_step, trajectory.steps)],
        "final_metrics": {**_totals(generations), "total_steps": len(trajectory.steps) + 1},
        "extra": {
            **{name: getattr(trajectory, name) for name in names},
            "level": str(trajectory.level),
            "ending": trajectory.ending,
            "is_verified": trajectory.is_verified,
            "reward": trajectory.reward.value,
            "reward_cause": trajectory.reward.cause,
        },
    }


def _step(step: TrajectoryStep) -> dict[str, Any]:
    output, generation, result = step.model_output, step.model_output.generation, step.sandbox_result
    call_id = f"call-{step.step}"
    row: dict[str, Any] = {
        "step_id": step.step + 1,
        "source": "agent",
        "message": generation.text if generation else "",
        "llm_call_count": 1 if generation else 0,
    }
    if generation:
        row |= {"model_name": generation.model, "metrics": _metrics(generation)}
        if output.think:
            row["reasoning_content"] = output.think
    if output.action is not None:
        arguments = ACTION.dump_python(output.action, mode="json")
        row["tool_calls"] = [{"tool_call_id": call_id, "function_name": _TOOL, "arguments": arguments}]
    if result is not None:
        content = "\n".join(filter(None, (f"{result.verdict}", result.error, result.diff, step.feedback)))
        row["observation"] = {"results": [{"source_call_id": call_id, "content": content}]}
    elif step.feedback:
        row["observation"] = {"results": [{"content": step.feedback}]}
    row["extra"] = {
        # the format allows reasoning only where a language model reasoned
        **({"think": output.think} if output.think and not generation else {}),
        "state_before": step.state_before.model_dump(mode="json"),
        "state_update": output.state_update.model_dump(mode="json", exclude_none=True),
        "is_kept": step.is_kept,
        "level": str(step.level),
        "progress": step.progress,
        "reward": step.reward.value,
        "reward_cause": step.reward.cause,
    }
    return row


def _metrics(generation: Generation) -> dict[str, Any]:
    cost = {} if generation.cost_usd is None else {"cost_usd": generation.cost_usd}
    extra = {"temperature": generation.temperature, "seed": generation.seed, "latency_s": generation.latency_s}
    return {**{name: getattr(generation, name) for name in _TOKENS}, **cost, "extra": extra}


def _totals(generations: list[Generation]) -> dict[str, Any]:
    if not generations:
        return {}
    costs = [generation.cost_usd for generation in generations if generation.cost_usd is not None]
    cost = {"total_cost_usd": sum(costs)} if len(costs) == len(generations) else {}
    return {
        **{f"total_{name}": sum(getattr(generation, name) for generation in generations) for name in _TOKENS},
        **cost,
    }
