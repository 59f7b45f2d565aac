"""Tasks laid out as the two contexts of a deployment: what agents may see, and what only the verifier has.

    context/   Dockerfile  common/{in_box/ agent.json base/}  tasks/<id>/{task.json instruction.md environment/}
    verifier/  Dockerfile  common/{in_box/ base/}             tasks/<id>/{task.json environment/ tests/ solution/}

A box starts with the content of `common` and of one task. A single task lies at the top, with what is common, so that
executors whose boxes have all of their image can run it. The programs in `in_box` are those of this package, byte by byte.
"""

import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from graftline.core.errors import DataError
from graftline.harbor.build_spec import TaskSeed
from graftline.harbor.context_files import left_out
from graftline.harbor.contract import MAX_TIMEOUT_S
from graftline.harbor.in_box.agents import NAMES
from graftline.harbor.limits import HarborLimits, VerifierSettings
from graftline.harbor.task_format.task_folder import HarborTask, TaskFile, write_files

Program = Literal["run_tests", "cargo_tests"]
RUN_ROLLOUT = "python3 -m in_box.run_rollout --input /tmp/rollout.json --output /tmp/result.json"
SUBMISSION = "submission"
_COPIED = "COPY . /rollout/\nWORKDIR /rollout\nENV TASK_IN_CONTAINER=1\n"
"""Ends a Dockerfile: the image holds the context, and the programs in it know that they are in a container."""
IN_BOX = Path(__file__).resolve().parents[1] / "in_box"
_MOST_NAMED = 5
_LAYING_S = 30
"""Besides the agent, of a rollout; the longest that there is leaves less of it."""
_LEAST_MEMORY_MB, _LEAST_DISK_MB = 512, 1024
_MOST_CORES, _MOST_MEMORY_MB, _MOST_DISK_MB = 8, 32768, 102400


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """A task, and what the programs in a box are told of it."""

    task: HarborTask
    for_agent: Mapping[str, Any]
    """Into the `task.json` of the agent's context."""
    for_verifier: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StagedTasks:
    """Contexts on disk, and how to run them."""

    context: Path
    verifier_context: Path
    dockerfile: Path | None
    """Of both; None where there is no image."""
    seeds: tuple[TaskSeed, ...]
    limits: HarborLimits
    """The largest of the tasks'."""
    verifier: VerifierSettings
    entrypoint: str = RUN_ROLLOUT


def stage_tasks(
    placed: Sequence[PlacedTask],
    folder: Path,
    *,
    agent: str,
    dockerfile: str,
    program: Program = "run_tests",
    reward_key: str = "reward",
    base: Mapping[str, TaskFile] | None = None,
    build_files: Mapping[str, TaskFile] | None = None,
    limits: HarborLimits | None = None,
    verifier_timeout_s: int | None = None,
) -> StagedTasks:
    """Write the contexts of `placed` below `folder`, in place of what was there; seeds go by the order of `placed`.

    Args:
        placed: The tasks.
        folder: Gets `context` and `verifier`.
        agent: Who acts where a rollout names nobody; of `nop` and `oracle`, whatever a rollout says.
        dockerfile: Text, of both images, which need Python 3.10 or later; empty for executors that build none.
        program: What grades.
        reward_key: Which number is the reward.
        base: Files that all tasks stand on.
        build_files: Files beside the Dockerfile, for its COPY.
        limits: In place of the largest of the tasks'.
        verifier_timeout_s: In place of the largest of the tasks'.

    Raises:
        DataError: an agent is not known, or two tasks have the same id.
    """
    if agent not in NAMES:
        raise DataError(f"agent {agent!r} is not known; known: {', '.join(NAMES)}")
    ids = [each.task.id for each in placed]
    if twice := {each for each in ids if ids.count(each) > 1}:
        raise DataError(f"task {min(twice)!r} is there twice; a seed can stand for one only, so leave one out")
    context, verifier_context = folder / "context", folder / "verifier"
    is_alone = len(placed) == 1
    common = "" if is_alone else "common"
    own_files = {"Dockerfile": _file(f"{dockerfile.rstrip()}\n{_COPIED}")} if dockerfile else {}
    for place in (context, verifier_context):
        shutil.rmtree(place, ignore_errors=True)
        write_files({**(build_files or {}), **own_files}, place)
        write_files(programs(), place / common / "in_box")
        write_files(base or {}, place / common / "base")
    largest = limits or largest_limits(each.task for each in placed)
    write_files({"agent.json": _json({"agent": agent, "timeout_s": largest.timeout_s})}, context / common)
    needs = {}
    for each in placed:
        inner = "" if is_alone else f"tasks/{each.task.id}"
        _write_task(each, context / inner, verifier_context / inner)
        # a task without one of its files is another task
        if lost := left_out(verifier_context, inner) or left_out(context, inner):
            dropped = {"dropped": ", ".join(lost[:_MOST_NAMED])}
            known = {**each.for_agent, "needs": {**each.for_agent.get("needs", {}), **dropped}}
            each = replace(each, for_agent=known)
            _write_task(each, context / inner, verifier_context / inner)
        needs[each.task.id] = each.for_agent.get("needs")
    answer = " --answer solution" if agent == "oracle" else ""
    verifier = VerifierSettings(
        entrypoint=f"python3 -m in_box.{program} --logs /logs/verifier{answer}",
        artifacts=(SUBMISSION,),
        reward_key=reward_key,
        timeout_s=verifier_timeout_s or max(_verifier_timeout_s(each.task) for each in placed),
    )
    seeds = tuple(_seed(seed, each.task, is_alone, needs[each.task.id]) for seed, each in enumerate(placed))
    return StagedTasks(
        context, verifier_context, context / "Dockerfile" if dockerfile else None, seeds, largest, verifier
    )


def programs() -> dict[str, TaskFile]:
    """Return the files of `in_box`, as they go into contexts."""
    return {path.name: TaskFile(path.read_bytes()) for path in sorted(IN_BOX.glob("*.py"))}


def limits_of(task: HarborTask) -> HarborLimits:
    """Return what a task may use; what it leaves open is as the class has it.

    Raises:
        DataError: it wants more than a deployment may have.
    """
    wanted, default = task.toml.environment, HarborLimits()
    agent_s = task.toml.agent.timeout_sec
    timeout_s = default.timeout_s if agent_s is None else math.ceil(agent_s)
    cores = default.cpu_cores if wanted.cpus is None else math.ceil(wanted.cpus)
    memory_mb = default.memory_mb if wanted.memory_mb is None else wanted.memory_mb
    disk_mb = default.disk_mb if wanted.storage_mb is None else wanted.storage_mb
    bounds = {
        "agent.timeout_sec": (timeout_s, MAX_TIMEOUT_S),
        "verifier.timeout_sec": (_verifier_timeout_s(task), MAX_TIMEOUT_S),
        "environment.cpus": (cores, _MOST_CORES),
        "environment.memory_mb": (memory_mb, _MOST_MEMORY_MB),
        "environment.storage_mb": (disk_mb, _MOST_DISK_MB),
    }
    if over := [f"{name} (comes to {value}, at most {most})" for name, (value, most) in bounds.items() if value > most]:
        raise DataError(f"{task.id}: wants more than a deployment may have: {', '.join(over)}")
    return HarborLimits(
        timeout_s=timeout_s if agent_s is None else min(timeout_s + _LAYING_S, MAX_TIMEOUT_S),
        cpu_cores=cores,
        memory_mb=max(memory_mb, _LEAST_MEMORY_MB),
        disk_mb=max(disk_mb, _LEAST_DISK_MB),
    )


def largest_limits(tasks: Iterable[HarborTask]) -> HarborLimits:
    """Return what suffices for every one of `tasks`."""
    each = [limits_of(task).model_dump() for task in tasks]
    return HarborLimits(**{name: max(limits[name] for limits in each) for name in HarborLimits.model_fields})


def _verifier_timeout_s(task: HarborTask) -> int:
    return math.ceil(task.toml.verifier.timeout_sec)


def _write_task(placed: PlacedTask, for_agent: Path, for_verifier: Path) -> None:
    task = placed.task
    environment = {f"environment/{path}": file for path, file in task.part("environment").items()}
    own = {"instruction.md": task.files["instruction.md"], "task.json": _json({"task_id": task.id, **placed.for_agent})}
    write_files({**environment, **own}, for_agent)
    graded = {path: file for path, file in task.files.items() if path.startswith(("tests/", "solution/"))}
    told = {"task_id": task.id, **placed.for_agent, **placed.for_verifier}
    write_files({**environment, **graded, "task.json": _json(told)}, for_verifier)


def _seed(seed: int, task: HarborTask, is_alone: bool, needs: Mapping[str, Any] | None) -> TaskSeed:
    folders = () if is_alone else ("common", f"tasks/{task.id}")
    metadata = json.loads(json.dumps(task.toml.metadata, default=str))
    own = {"digest": task.digest, "limits": limits_of(task).model_dump(), **({"needs": needs} if needs else {})}
    return TaskSeed(
        seed=seed, task_id=task.id, agent_files=folders, verifier_files=folders, metadata={**metadata, **own}
    )


def _json(tree: Mapping[str, Any]) -> TaskFile:
    return _file(json.dumps(tree, indent=2, sort_keys=True, allow_nan=False) + "\n")


def _file(text: str) -> TaskFile:
    return TaskFile(text.encode())
