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


def atif(trajectory: Trajectory) -> dict[str, Any]:
    """Return `trajectory` as an ATIF document; its first step is what the user asks."""
    asked = [step.model_output.generation for step in trajectory.steps if step.model_output.generation]
    agent: dict[str, Any] = {"name": f"graftline/{trajectory.teacher}", "version": __version__}
    if asked:
        agent["model_name"] = asked[0].model
    before = trajectory.steps[0].prompt.text if trajectory.steps else ""
    question = {"step_id": 1, "source": "user", "message": f"{trajectory.instruction}\n\n{before}".strip()}
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": trajectory.key,
        "agent": agent,
        "steps": [question, *(_step(step) for step in trajectory.steps)],
        "final_metrics": {**_totals(asked), "total_steps": len(trajectory.steps) + 1},
        "extra": {
            "task_id": trajectory.task_id,
            "task_digest": trajectory.task_digest,
            "attempt": trajectory.attempt,
            "language": trajectory.language,
            "licence": trajectory.licence,
            "origin": trajectory.origin,
            "level": str(trajectory.level),
            "ending": trajectory.ending,
            "is_verified": trajectory.is_verified,
            "reward": trajectory.reward.value,
            "reward_cause": trajectory.reward.cause,
        },
    }


def _step(step: TrajectoryStep) -> dict[str, Any]:
    said, answer = step.model_output, step.sandbox_result
    call_id = f"call-{step.step}"
    made: dict[str, Any] = {
        "step_id": step.step + 1,
        "source": "agent",
        "message": said.generation.text if said.generation else "",
        "llm_call_count": 1 if said.generation else 0,
    }
    if said.generation:
        made |= {"model_name": said.generation.model, "metrics": _metrics(said.generation)}
    if said.generation and said.think:
        made["reasoning_content"] = said.think
    if said.action is not None:
        arguments = ACTION.dump_python(said.action, mode="json")
        made["tool_calls"] = [{"tool_call_id": call_id, "function_name": _TOOL, "arguments": arguments}]
    if answer is not None:
        content = "\n".join(filter(None, (f"{answer.verdict}", answer.error, answer.diff, step.feedback)))
        made["observation"] = {"results": [{"source_call_id": call_id, "content": content}]}
    elif step.feedback:
        made["observation"] = {"results": [{"content": step.feedback}]}
    return made | {
        "extra": {
            # the format allows reasoning only where a language model reasoned
            **({} if said.generation or not said.think else {"think": said.think}),
            "state_before": step.state_before.model_dump(mode="json"),
            "state_update": said.state_update.model_dump(mode="json", exclude_none=True),
            "is_kept": step.is_kept,
            "level": str(step.level),
            "progress": step.progress,
            "reward": step.reward.value,
            "reward_cause": step.reward.cause,
        }
    }


def _metrics(generation: Generation) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.completion_tokens,
        "cached_tokens": generation.cached_tokens,
    }
    if generation.cost_usd is not None:
        metrics["cost_usd"] = generation.cost_usd
    extra = {"temperature": generation.temperature, "seed": generation.seed, "latency_s": generation.latency_s}
    return metrics | {"extra": extra}


def _totals(asked: list[Generation]) -> dict[str, Any]:
    if not asked:
        return {}
    totals: dict[str, Any] = {
        "total_prompt_tokens": sum(generation.prompt_tokens for generation in asked),
        "total_completion_tokens": sum(generation.completion_tokens for generation in asked),
        "total_cached_tokens": sum(generation.cached_tokens for generation in asked),
    }
    costs = [generation.cost_usd for generation in asked if generation.cost_usd is not None]
    return totals | ({"total_cost_usd": sum(costs)} if len(costs) == len(asked) else {})
