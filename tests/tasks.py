"""Tasks, and answers of models, of which a test says what it is about."""

from typing import Any

from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import Generation


def make_task(before: str = "old(1)\n", target: str = "x(1)\n", **changes: Any) -> Task:
    """Return a task in Python."""
    values = {
        "id": "d:1",
        "dataset": "d",
        "language": "python",
        "instruction": "Change it.",
        "license": "MIT",
        "group": "g",
        "origin": "o",
    }
    return Task(before=before, target=target, **{**values, **changes})


def make_generation(text: str = "?", **changes: Any) -> Generation:
    """Return what a model was asked and answered, at once and for nothing."""
    values = {
        "messages": (),
        "prompt_digest": "p",
        "finish_reason": "stop",
        "model": "m",
        "actor": "a",
        "temperature": 0.0,
        "seed": None,
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "latency_s": 0.1,
        "tries": 1,
    }
    return Generation(text=text, **{**values, **changes})
