"""What is kept of a rollout for whoever proposes a change: what was asked, what was answered, and what was said of it.

Task apps differ in how much they tell; what is not there is left out. Texts are cut to a length that is read in one go.
"""

import json
from collections.abc import Mapping
from typing import Any

from graftline.harbor.contract import RolloutResponse

_MOST_CHARACTERS = 2000
_DETAILS = ("feedback", "level", "ending", "failure", "over_in", "over_out", "format_ok", "steps", "all_general")
"""Of our own environment, in the order in which they are shown."""
_TIMES = ("agent_s", "verify_s")


def transcript(task: Mapping[str, Any], response: RolloutResponse) -> dict[str, Any]:
    """Return what a rollout says to a reader: `inputs`, `output`, `feedback`, `details`; all JSON.

    Args:
        task: The `TaskInfo` of its seed, as JSON; empty where nobody said.
        response: How it ended.
    """
    details = {key: value for key, value in response.reward_info.details.items() if _is_plain(value)}
    feedback = details.pop("feedback", "") or response.status_detail or _as_words(details)
    said = {
        "inputs": _inputs(task),
        "output": _output(response),
        "feedback": _cut(str(feedback)),
        "details": {key: details[key] for key in (*_DETAILS, *sorted(set(details) - {*_DETAILS})) if key in details},
    }
    return {key: value for key, value in said.items() if value}


def _inputs(task: Mapping[str, Any]) -> dict[str, str]:
    described = task.get("task") or {}
    known = task.get("task_metadata") or {}
    found = {
        "instruction": described.get("description") or described.get("name"),
        "language": known.get("language"),
        "text": known.get("text"),
    }
    return {key: _cut(value) for key, value in found.items() if isinstance(value, str) and value}


def _output(response: RolloutResponse) -> str:
    """Return what the agent said last, as it said it; else what it left."""
    steps = (response.trace or {}).get("steps")
    for step in reversed(steps if isinstance(steps, list) else []):
        if isinstance(step, dict) and step.get("source") == "agent":
            message = step.get("message")
            if isinstance(message, str) and message:
                return _cut(message)
            if step.get("tool_calls"):
                return _cut(
                    json.dumps([call.get("arguments") for call in step["tool_calls"] if isinstance(call, dict)])
                )
    left = [artifact.content for artifact in response.artifact or [] if isinstance(artifact.content, str)]
    return _cut(left[-1]) if left else ""


def _as_words(details: Mapping[str, Any]) -> str:
    """Return what a verifier found, where it has no words for it itself."""
    found = (f"{key.replace('_', ' ')} is {value}" for key, value in sorted(details.items()) if key not in _TIMES)
    words = "; ".join(found)
    return f"The verifier says: {words}." if words else ""


def _is_plain(value: Any) -> bool:
    return value is not None and isinstance(value, str | int | float | bool)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
