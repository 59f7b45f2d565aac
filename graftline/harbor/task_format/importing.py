"""Harbor tasks as one deployment: every task a seed, in the order of their names.

The seeds are written into the deployment, so that a task that comes later renumbers none of a version that is there. The
tests run in a box of their own, on the files that the agent left in its working folder; tasks that grade a process which
runs on, or files elsewhere, do not fit. What a task needs is found by reading it (`needs`), and its rollouts say so.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graftline.core.errors import DataError
from graftline.harbor.limits import HarborLimits
from graftline.harbor.task_format.needs import needs_of, needs_of_solution, workdir_of
from graftline.harbor.task_format.staging import PlacedTask, StagedTasks, stage_tasks
from graftline.harbor.task_format.task_folder import HarborTask, TaskFile, read_task, task_folders

if TYPE_CHECKING:
    from graftline.harbor.build_spec import HarborBuildSpec

WORKDIR = "/app"
"""Of a task that names no other."""
_MAX_FAULTS = 20


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
) -> "HarborBuildSpec":
    """Return the deployment of the task in `folder`, or of the tasks in it; its contexts are written below `staging`.

    Args:
        folder: A Harbor task, or a folder of them.
        name: Of the deployment.
        staging: Gets `context` and `verifier`; it must stay until the upload.
        agent: Who acts: `codex`, `opencode`, `claude_code`; or `nop` and `oracle`, for floor and ceiling.
        dockerfile: Of one image for all tasks; needed where their own are not the same.
        has_image: False for executors that build none; what the tasks' Dockerfiles do is then not done.
        reward_key: Which number of `reward.json` is the reward.
        limits: In place of the largest of the tasks'.

    Raises:
        DataError: a task cannot be read, uses what is not supported, or the tasks have no image in common.
    """
    tasks = read_tasks(folder)
    text, build_files = image_of(tasks, dockerfile) if has_image else ("", {})
    staged = stage_tasks(
        [_placed_with_needs(task, has_image) for task in tasks],
        staging,
        agent=agent,
        dockerfile=text,
        build_files=build_files,
        reward_key=reward_key,
        limits=limits,
    )
    return build_spec(staged, name, {"agent_type": agent, "format": "harbor"})


def read_tasks(folder: Path) -> list[HarborTask]:
    """Return the tasks in `folder`, by name.

    Raises:
        DataError: what is wrong with each of them.
    """
    tasks, faults = [], []
    for each in task_folders(folder):
        try:
            tasks.append(read_task(each))
        except DataError as error:
            faults.append(str(error))
    if faults:
        more = f"\nand {len(faults) - _MAX_FAULTS} more tasks" if len(faults) > _MAX_FAULTS else ""
        raise DataError("\n".join(faults[:_MAX_FAULTS]) + more)
    return tasks


def _placed_with_needs(task: HarborTask, has_image: bool) -> PlacedTask:
    """Return what the programs in a box are told of `task`, with what they have to see to before it is graded."""
    base, workdir = placed(task), workdir_of(task, WORKDIR)
    needs, of_solution = needs_of(task, workdir, has_image), needs_of_solution(task, workdir)
    for_agent = {**base.for_agent, "workdir": workdir, **({"needs": needs} if needs else {})}
    return PlacedTask(
        task, for_agent, {**base.for_verifier, **({"solution_needs": of_solution} if of_solution else {})}
    )


def placed(task: HarborTask) -> PlacedTask:
    """Return what the programs in a box are told of `task`."""
    toml = task.toml
    for_agent: dict[str, Any] = {
        "env": toml.environment.env,
        "submission": _submission(task),
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


def image_of(tasks: Iterable[HarborTask], dockerfile: Path | None) -> tuple[str, dict[str, TaskFile]]:
    """Return the Dockerfile that serves all of `tasks`, and the files that its COPY finds.

    Raises:
        DataError: there is no such one.
    """
    if dockerfile is not None:
        try:
            return dockerfile.read_text("utf-8"), {}
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{dockerfile}: cannot be read ({error}); expected a Dockerfile") from None
    images = {_image(task): task for task in tasks}
    if len(images) > 1:
        first, second = [task.id for task in images.values()][:2]
        raise DataError(
            f"{first} and {second} have different images, {len(images)} in all; give one Dockerfile for all tasks, or import"
            " them one by one"
        )
    [(text, files)] = images
    return text, dict(files)


def build_spec(staged: StagedTasks, name: str, metadata: dict[str, Any]) -> "HarborBuildSpec":
    """Return the deployment of `staged`."""
    from graftline.harbor.build_spec import HarborBuildSpec, HarborVerifier

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


def _image(task: HarborTask) -> tuple[str, tuple[tuple[str, TaskFile], ...]]:
    """Return a Dockerfile and the files it may copy: what makes two images the same."""
    if task.toml.environment.docker_image is not None:
        return f"FROM {task.toml.environment.docker_image}\n", ()
    files = task.part("environment")
    text = files.pop("Dockerfile").content.decode("utf-8", "replace")
    copies = any(line.lstrip().upper().startswith(("COPY", "ADD")) for line in text.splitlines())
    return text, tuple(sorted(files.items())) if copies else ()


def _submission(task: HarborTask) -> list[str]:
    """Return which paths of the working folder the verifier sees."""
    workdir = f"{workdir_of(task, WORKDIR).rstrip('/')}/"
    paths = [path.removeprefix(workdir) for path in task.toml.artifacts] or ["."]
    if bad := [path for path in paths if path.startswith("/") or ".." in path.split("/")]:
        raise DataError(f"{task.id}: artifacts: {bad[0]!r} is not below the working folder {workdir}")
    return paths
