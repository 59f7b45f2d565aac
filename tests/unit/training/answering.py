"""A task and answers to it, for models that cannot write: each token that is drawn says a whole answer."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graftline.rollouts.task import Task
from tests.training_root import CHECKOUT

RIGHT = '{"pattern": "old($A)", "rewrite": "new($A)"}'
LITERAL = '{"pattern": "old(1)", "rewrite": "new(1)"}'
MISSES = '{"pattern": "gone($A)", "rewrite": "new($A)"}'
UNREADABLE = "I do not know."
ANSWERS = (RIGHT, LITERAL, MISSES, UNREADABLE)
REWARDS = {RIGHT: 1.0, LITERAL: 0.3, MISSES: 0.0, UNREADABLE: -1.0}
"""Half of the difference is gone after the literal one, at 0.6 for progress."""


class AnsweringTokenizer:
    """The tokenizer of a model, but that a single token says one of `answers`: which one, its number tells."""

    def __init__(self, inner: Any, answers: Sequence[str] = ANSWERS) -> None:
        self._inner, self.answers = inner, tuple(answers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def decode(self, token_ids: Any, **options: Any) -> str:
        tokens = [token_ids] if isinstance(token_ids, int) else [*token_ids]
        if len(tokens) == 1:
            return self.answers[tokens[0] % len(self.answers)]
        return str(self._inner.decode(tokens, **options))


def task(number: int) -> Task:
    """Return a task that `RIGHT` solves."""
    return Task(
        id=f"demo:{number}",
        dataset="demo",
        language="python",
        instruction=f"Rename the function `old` to `new`, in file {number}.",
        before="x = old(1)\ny = old(2)\n",
        target="x = new(1)\ny = new(2)\n",
        license="MIT",
        group="pypi:demo",
        origin=f"demo_{number}.py",
    )


def write_tasks(root: Path, count: int = 8) -> None:
    """Write tasks, steps of experts and chats, to train on and to look at, below `root`."""
    (root / "configs").mkdir(parents=True)
    (root / "data").mkdir()
    shutil.copy(CHECKOUT / "configs" / "teacher_prompts.yaml", root / "configs")
    for name, numbers in (("", range(count)), ("_held_out", range(count, count + 3))):
        tasks = [task(number) for number in numbers]
        chats = [[{"role": "user", "content": f"{one.instruction}\n\n{one.before}"}] for one in tasks]
        answer = {"role": "assistant", "content": RIGHT}
        rows: dict[str, list[Any]] = {
            "tasks": [one.model_dump(mode="json") for one in tasks],
            "srl": [{"prompt": chat, "expert_action": json.loads(RIGHT)} for chat in chats],
            "sft": [{"messages": [*chat, answer]} for chat in chats],
        }
        for kind, some in rows.items():
            path = root / "data" / f"{kind}{name}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in some), "utf-8")
