"""How long it takes to collect verified trajectories with the induction teacher, on all cores."""

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.induction_pairs import Pair
from benchmarks.induction_solving import percent
from graftline.core.progress import Progress
from graftline.rollouts.collect import RolloutConfig
from graftline.rollouts.collect_many import worker_attempts
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import InductionTeacherConfig
from graftline.sandbox import WarmSandboxConfig


def task_of_pair(pair: Pair) -> Task:
    """Return `pair` as a task without an instruction of its own."""
    return Task(
        id=pair.id,
        dataset=pair.source,
        language=pair.language,
        instruction=f"Change it as {pair.group} did.",
        before=pair.before,
        target=pair.after,
        license="MIT",
        group=pair.group,
        origin=pair.id,
    )


def collected(tasks: Sequence[Task], wanted: int, workers: int, progress: Progress) -> dict[str, Any]:
    """Return the seconds from the start of the workers to the last of `wanted` verified trajectories.

    Raises:
        SandboxError: a worker cannot open its sandbox, or dies.
    """
    progress.start("induction", "trajectories")
    verified = general = steps = attempts = 0
    started = time.perf_counter()
    with worker_attempts(workers, WarmSandboxConfig(), InductionTeacherConfig(), RolloutConfig()) as attempted:
        for trajectory in attempted(tasks):
            attempts += 1
            if trajectory.is_verified:
                verified += 1
                steps += len(trajectory.steps)
                general += trajectory.all_general
                progress.advance(verified, wanted)
            if verified == wanted:
                break
        seconds = time.perf_counter() - started
    progress.finish(f"{verified} trajectories")
    return {
        "workers": workers,
        "verified": verified,
        "attempts": attempts,
        "verified_percent": percent(verified, attempts),
        "all_general_percent": percent(general, verified),
        "steps": steps,
        "seconds": round(seconds, 1),
        "seconds_per_1000": round(seconds / verified * 1000, 1) if verified else None,
    }
