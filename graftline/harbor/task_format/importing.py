"""Harbor tasks as one deployment: every task a seed, in the order of their names, laid out as two contexts.

    context/   Dockerfile  common/{in_box/ agent.json base/}  tasks/<id>/{task.json instruction.md environment/}
    verifier/  Dockerfile  common/{in_box/ base/}             tasks/<id>/{task.json environment/ tests/ solution/}

Agents see the first alone. A container starts with the content of `common` and of one task. A single task lies at the top, with
what is common, so that executors whose containers have all of their image can run it. The programs in `in_box` are those
of this package, byte by byte.

The seeds are written into the deployment, so that a task that comes later renumbers none of a version that is there. The
tests run in a container of their own, on the files that the agent left in its working folder; tasks that grade a process which
runs on, or files elsewhere, do not fit. What a task needs comes from reading it (`needs_of`), and its rollouts say so.
"""

import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from graftline.core.errors import DataError
from graftline.harbor.build_spec import HarborBuildSpec, HarborVerifier
from graftline.harbor.contract import MAX_TIMEOUT_S, HarborLimits, TaskSeed, VerifierSettings
from graftline.harbor.in_box.agents import NAMES
from graftline.harbor.packager import find_omitted_files
from graftline.harbor.task_format.packed import HARBOR_TASK, pack_tasks
from graftline.harbor.task_format.task_folder import (
    HarborTask,
    TaskFile,
    needs_of,
    needs_of_solution,
    read_dockerfile,
    read_task,
    read_tasks,
    task_folders,
    workdir_of,
    write_files,
)

Program = Literal["run_tests", "cargo_tests"]
RUN_ROLLOUT = "python3 -m in_box.run_rollout --input /tmp/rollout.json --output /tmp/result.json"
SUBMISSION = "submission"
IN_BOX = Path(__file__).resolve().parents[1] / "in_box"
WORKDIR = "/app"
"""Of a task that names no other."""
_COPY_CONTEXT = "COPY . /rollout/\nWORKDIR /rollout\nENV TASK_IN_CONTAINER=1\n"
"""Ends a Dockerfile: the image holds the context, and the programs in it know that they are in a container."""
_MOST_NAMED = 5
_LAYING_S = 30
"""Besides the agent, of a rollout; the longest that there is leaves less of it."""
_LEAST_TIMEOUT_S, _LEAST_MEMORY_MB, _LEAST_DISK_MB = 30, 512, 1024
_MOST_CORES, _MOST_MEMORY_MB, _MOST_DISK_MB = 8, 32768, 102400


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """A task, and what the programs in a container read of it."""

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


def import_harbor_tasks(
    folder: Path,
    name: str,
    staging: Path,
    *,
    agent: str = "codex",
    dockerfile: Path | None = None,
    has_image: bool = True,
    reward_key: str = "reward",
    limits: HarborLimits | None = None,
) -> HarborBuildSpec:
    """Return the deployment of the task in `folder`, or of the tasks in it; its contexts are written below `staging`.

    That must stay until the upload. `dockerfile` is needed where the tasks' own are not the same; without an image, what they
    do is not done. `limits` take the place of the largest of the tasks'.

    Raises:
        DataError: a task cannot be read, uses what is not supported, or the tasks have no image in common.
    """
    tasks = read_tasks(task_folders(folder), read_task)
    if has_image and dockerfile is None:
        return spec_of_tasks(tasks, name, staging, agent=agent, reward_key=reward_key, limits=limits)
    text = read_dockerfile(dockerfile) if dockerfile is not None else ""
    placed = []
    for task in tasks:
        base, workdir = place_task(task), workdir_of(task, WORKDIR)
        needs, of_solution = needs_of(task, workdir, has_image), needs_of_solution(task, workdir)
        for_agent = {**base.for_agent, "workdir": workdir, **({"needs": needs} if needs else {})}
        for_verifier = {**base.for_verifier, **({"solution_needs": of_solution} if of_solution else {})}
        placed.append(PlacedTask(task, for_agent, for_verifier))
    staged = stage_tasks(placed, staging, agent=agent, dockerfile=text, reward_key=reward_key, limits=limits)
    return build_spec(staged, name, {"agent_type": agent, "format": "harbor"})


def spec_of_tasks(
    tasks: Sequence[HarborTask],
    name: str,
    staging: Path,
    *,
    agent: str = "codex",
    reward_key: str = "reward",
    limits: HarborLimits | None = None,
) -> HarborBuildSpec:
    """Return the deployment of `tasks`, each in the image that it says, written below `staging`: a seed for each, by their order.

    DataError if one asks for more than a box may have.
    """
    if agent not in NAMES:
        raise DataError(f"agent {agent!r} is not known; known: {', '.join(NAMES)}")
    context = staging / "context"
    shutil.rmtree(context, ignore_errors=True)
    own_limits = {task.id: limits_of(task) for task in tasks}
    paths = pack_tasks(tasks, context, reward_key)
    seeds = []
    for seed, task in enumerate(tasks):
        metadata = json.loads(json.dumps(task.toml.metadata, default=str))
        metadata |= {"digest": task.digest, "limits": own_limits[task.id].model_dump()}
        seeds.append(TaskSeed(seed=seed, task_id=task.id, metadata=metadata))
    return HarborBuildSpec(
        name=name,
        context_dir=context,
        entrypoint=HARBOR_TASK,
        limits=limits or _largest(own_limits.values()),
        metadata={"agent_type": agent, "format": "harbor"},
        tasks=seeds,
        # what looks like a secret in a task of a benchmark is part of the task
        allow_secrets_in=tuple(paths),
    )


def place_task(task: HarborTask) -> PlacedTask:
    """Return what the programs in a container read of `task`."""
    toml = task.toml
    if beyond := _beyond_one_box(task):
        raise DataError(
            f"{task.id}: uses what needs the task's own image: {', '.join(beyond)}; import it with its image"
        )
    workdir = f"{workdir_of(task, WORKDIR).rstrip('/')}/"
    submission = [artifact.source.removeprefix(workdir) for artifact in toml.artifacts] or ["."]
    if bad := [path for path in submission if path.startswith("/") or ".." in path.split("/")]:
        raise DataError(f"{task.id}: artifacts: {bad[0]!r} is not below the working folder {workdir}")
    for_agent: dict[str, Any] = {
        "env": toml.environment.env,
        "submission": submission,
        "workdir": toml.environment.workdir or WORKDIR,
    }
    if toml.agent.timeout_sec is not None:
        for_agent["agent_timeout_s"] = toml.agent.timeout_sec
    for_verifier = {
        "verifier_env": toml.verifier.env,
        "verifier_timeout_s": toml.verifier.timeout_sec,
        "solution_env": toml.solution.env,
    }
    return PlacedTask(task, for_agent, for_verifier)


def _beyond_one_box(task: HarborTask) -> list[str]:
    toml = task.toml
    uses = {
        "tests/Dockerfile": "tests/Dockerfile" in task.files,
        "tests/test.sh": "tests/test.sh" not in task.files,
        "agent.user": toml.agent.user,
        "verifier.user": toml.verifier.user,
        "verifier.environment": toml.verifier.environment,
        "verifier.collect": toml.verifier.collect,
        "environment.gpus": toml.environment.gpus or toml.environment.tpu,
        "environment.mcp_servers": toml.environment.mcp_servers,
        "environment.skills_dir": toml.environment.skills_dir,
        "environment.healthcheck": toml.environment.healthcheck,
        "network_mode = allowlist": "allowlist"
        in (toml.agent.network_mode, toml.verifier.network_mode, toml.environment.network_mode),
        "artifacts with exclude": any(artifact.exclude for artifact in toml.artifacts),
    }
    return [name for name, is_used in uses.items() if is_used]


def build_spec(staged: StagedTasks, name: str, metadata: dict[str, Any]) -> HarborBuildSpec:
    """Return the deployment of `staged`."""
    return HarborBuildSpec(
        name=name,
        dockerfile_path=staged.dockerfile,
        context_dir=staged.context,
        entrypoint=staged.entrypoint,
        limits=staged.limits,
        metadata=metadata,
        tasks=list(staged.seeds),
        verifier=HarborVerifier(context_dir=staged.verifier_context, **staged.verifier.model_dump()),
    )


def stage_tasks(
    placed: Sequence[PlacedTask],
    folder: Path,
    *,
    agent: str,
    dockerfile: str,
    program: Program = "run_tests",
    reward_key: str = "reward",
    base: Mapping[str, TaskFile] | None = None,
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
        limits: In place of the largest of the tasks', as `verifier_timeout_s`.
    """
    if agent not in NAMES:
        raise DataError(f"agent {agent!r} is not known; known: {', '.join(NAMES)}")
    ids = [entry.task.id for entry in placed]
    if twice := {task_id for task_id in ids if ids.count(task_id) > 1}:
        raise DataError(f"task {min(twice)!r} is there twice; a seed can stand for one only, so leave one out")
    context, verifier_context = folder / "context", folder / "verifier"
    is_alone = len(placed) == 1
    common = "" if is_alone else "common"
    images = {"Dockerfile": TaskFile(f"{dockerfile.rstrip()}\n{_COPY_CONTEXT}".encode())} if dockerfile else {}
    programs = {path.name: TaskFile(path.read_bytes()) for path in sorted(IN_BOX.glob("*.py"))}
    for place in (context, verifier_context):
        shutil.rmtree(place, ignore_errors=True)
        write_files(images, place)
        write_files(programs, place / common / "in_box")
        write_files(base or {}, place / common / "base")
    own_limits = {entry.task.id: limits_of(entry.task, _LAYING_S) for entry in placed}
    largest = limits or _largest(own_limits.values())
    write_files({"agent.json": _json_file({"agent": agent, "timeout_s": largest.timeout_s})}, context / common)
    seeds = []
    for seed, entry in enumerate(placed):
        task, inner = entry.task, "" if is_alone else f"tasks/{entry.task.id}"
        _write_task(entry, context / inner, verifier_context / inner)
        # a task without one of its files is another task
        if lost := find_omitted_files(verifier_context, inner) or find_omitted_files(context, inner):
            needs = {**entry.for_agent.get("needs", {}), "dropped": ", ".join(lost[:_MOST_NAMED])}
            entry = replace(entry, for_agent={**entry.for_agent, "needs": needs})
            _write_task(entry, context / inner, verifier_context / inner)
        metadata = json.loads(json.dumps(task.toml.metadata, default=str))
        metadata |= {"digest": task.digest, "limits": own_limits[task.id].model_dump()}
        if entry.for_agent.get("needs"):
            metadata["needs"] = entry.for_agent["needs"]
        parts = () if is_alone else ("common", inner)
        seeds.append(TaskSeed(seed=seed, task_id=task.id, agent_files=parts, verifier_files=parts, metadata=metadata))
    answer = " --answer solution" if agent == "oracle" else ""
    verifier = VerifierSettings(
        entrypoint=f"python3 -m in_box.{program} --logs /logs/verifier{answer}",
        artifacts=(SUBMISSION,),
        reward_key=reward_key,
        timeout_s=verifier_timeout_s or max(_verifier_timeout_s(entry.task) for entry in placed),
    )
    dockerfile_path = context / "Dockerfile" if dockerfile else None
    return StagedTasks(context, verifier_context, dockerfile_path, tuple(seeds), largest, verifier)


def limits_of(task: HarborTask, laying_s: int = 0) -> HarborLimits:
    """Return what a task may use; what it leaves open is as the class has it. DataError where it asks for more than there is."""
    environment, default = task.toml.environment, HarborLimits()
    agent_s = task.toml.agent.timeout_sec
    timeout_s = default.timeout_s if agent_s is None else math.ceil(agent_s)
    cores = default.cpu_cores if environment.cpus is None else math.ceil(environment.cpus)
    memory_mb = default.memory_mb if environment.memory_mb is None else environment.memory_mb
    disk_mb = default.disk_mb if environment.storage_mb is None else environment.storage_mb
    ranges = {
        "agent.timeout_sec": (timeout_s, MAX_TIMEOUT_S),
        "verifier.timeout_sec": (_verifier_timeout_s(task), MAX_TIMEOUT_S),
        "environment.cpus": (cores, _MOST_CORES),
        "environment.memory_mb": (memory_mb, _MOST_MEMORY_MB),
        "environment.storage_mb": (disk_mb, _MOST_DISK_MB),
    }
    if over := [f"{name} (comes to {value}, at most {most})" for name, (value, most) in ranges.items() if value > most]:
        raise DataError(f"{task.id}: wants more than a deployment may have: {', '.join(over)}")
    return HarborLimits(
        timeout_s=timeout_s if agent_s is None else min(max(timeout_s + laying_s, _LEAST_TIMEOUT_S), MAX_TIMEOUT_S),
        cpu_cores=cores,
        memory_mb=max(memory_mb, _LEAST_MEMORY_MB),
        disk_mb=max(disk_mb, _LEAST_DISK_MB),
    )


def _largest(limits: Iterable[HarborLimits]) -> HarborLimits:
    rows = [row.model_dump() for row in limits]
    return HarborLimits(**{name: max(row[name] for row in rows) for name in HarborLimits.model_fields})


def _verifier_timeout_s(task: HarborTask) -> int:
    return math.ceil(task.toml.verifier.timeout_sec)


def _write_task(placed: PlacedTask, for_agent: Path, for_verifier: Path) -> None:
    task = placed.task
    settings = {"task_id": task.id, **placed.for_agent}
    environment = {f"environment/{path}": file for path, file in task.part("environment").items()}
    own = {"instruction.md": task.files["instruction.md"], "task.json": _json_file(settings)}
    write_files({**environment, **own}, for_agent)
    hidden = {path: file for path, file in task.files.items() if path.startswith(("tests/", "solution/"))}
    write_files({**environment, **hidden, "task.json": _json_file({**settings, **placed.for_verifier})}, for_verifier)


def _json_file(tree: Mapping[str, Any]) -> TaskFile:
    return TaskFile((json.dumps(tree, indent=2, sort_keys=True, allow_nan=False) + "\n").encode())
