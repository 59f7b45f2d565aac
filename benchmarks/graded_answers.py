"""Answers graded a second, without their making: real tasks, and answers to them of all kinds.

    python -m benchmarks.graded_answers [TASKS] [ATTEMPTS]

The tasks are those of the test split of the checkout, once more under other names where there are not so many. Of the
answers to each, one is right where the right one is known, one is right but for a name, one changes too much, one is no
action; an answer that was graded before is not made cheaper by that, for every text is another one.
"""

import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from graftline.astgrep.action import ACTION, PatternAction
from graftline.core.config import load_yaml
from graftline.core.errors import ConfigError
from graftline.core.jsonl import read_lines
from graftline.core.paths import Paths, find_root
from graftline.core.processes import default_workers
from graftline.evals.attempt import Question
from graftline.evals.cases import Case, case_of
from graftline.evals.evaluation import run_solver
from graftline.evals.grading import grading_workers
from graftline.pipeline.manifests import Manifest
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import AnswerFormat
from tests.eval_cases import FunctionSolver

_FALLBACK = PatternAction(pattern="$A.get($B)", rewrite="$A[$B]")


def measure(tasks: int = 1000, attempts: int = 4, root: Path | None = None) -> dict[str, Any]:
    """Return how long it takes to grade so many answers to each of so many tasks, and what they came to.

    Raises:
        ConfigError: the root has no tasks of the test split.
    """
    paths = Paths(root or find_root())
    cases = _cases(paths, tasks)
    solver = FunctionSolver(_answer, AnswerFormat(layout="action"))
    sandbox = load_yaml(paths.configs / "manifests" / "local.yaml", Manifest).sandbox
    workers = default_workers()
    with grading_workers(workers, sandbox) as grading:
        # processes and corpora are there before the first answer of a model is
        run_solver("warm-up", solver, cases[: 4 * workers], grading, 1)
        began, used = time.monotonic(), _cpu_s()
        graded = run_solver("measured", solver, cases, grading, attempts)
        wall_s = time.monotonic() - began
    causes = Counter(attempt.cause for attempt in graded)
    return {
        "tasks": tasks,
        "attempts": attempts,
        "answers": len(graded),
        "workers": workers,
        "wall_s": round(wall_s, 2),
        # of the workers when they have ended, their start included
        "cpu_s": round(_cpu_s() - used, 2),
        "answers_per_s": round(len(graded) / wall_s, 1),
        "load": os.getloadavg()[0],
        "nothing_known": sum(attempt.is_infra for attempt in graded),
        "causes": dict(causes.most_common()),
    }


def _cases(paths: Paths, count: int) -> list[Case]:
    found = [task for path in sorted(paths.data.glob("tasks/*/test/tasks.jsonl")) for task in read_lines(path, Task)]
    if not found:
        raise ConfigError(f"{paths.data / 'tasks'}: holds no tasks of the test split; `graftline run` makes them")
    named = (
        task.model_copy(update={"id": f"{task.id}#{number}"}) for number, task in enumerate(islice(cycle(found), count))
    )
    return [case_of(task) for task in named]


def _answer(question: Question) -> str:
    task = question.case.task
    action = task.gold_action or _FALLBACK
    kinds: tuple[Callable[[], str], ...] = (
        lambda: _said(action),
        lambda: _said(action).replace("$", "$X", 1),
        lambda: _said(PatternAction(pattern="$F($$$ARGS)", rewrite=f"$F($$$ARGS, {_word(task)})")),
        lambda: f"The task {task.id} is hard.",
    )
    return kinds[(question.attempt - 1) % len(kinds)]()


def _said(action: Any) -> str:
    return json.dumps(ACTION.dump_python(action, mode="json"))


def _word(task: Task) -> str:
    return "more_" + "".join(letter for letter in task.id if letter.isalnum())[-8:].lower()


def _cpu_s() -> float:
    own, of_children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + of_children.ru_utime + of_children.ru_stime


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:3]))))
