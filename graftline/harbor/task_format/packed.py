"""Harbor tasks in the context of a deployment, each a tar of its folder as it was read: nothing of a task is left out by its name.

    harbor-tasks.json  tasks/<id>.tar

The executor makes the images, and takes out what is due when it is due (`executors.trial`).
"""

import io
import json
import tarfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from graftline.core.errors import DataError
from graftline.harbor.task_format.task_folder import MAX_FILES, MAX_TASK_BYTES, HarborTask, TaskFile, task_of

HARBOR_TASK = "harbor-task"
"""The entrypoint of a deployment whose seeds are Harbor tasks in images of their own."""
MANIFEST, FOLDER = "harbor-tasks.json", "tasks"


def pack_tasks(tasks: Iterable[HarborTask], folder: Path, reward_key: str) -> list[str]:
    """Write the context of `tasks` to `folder`, and return the paths of the tars in it."""
    (folder / FOLDER).mkdir(parents=True)
    (folder / MANIFEST).write_text(json.dumps({"reward_key": reward_key}) + "\n", "utf-8")
    paths = []
    for task in tasks:
        paths.append(f"{FOLDER}/{task.id}.tar")
        with tarfile.open(folder / paths[-1], "w") as tar:
            for path, file in sorted(task.files.items()):
                member = tarfile.TarInfo(path)
                member.size, member.mode = len(file.content), 0o755 if file.is_executable else 0o644
                tar.addfile(member, io.BytesIO(file.content))
    return paths


def holds_tasks(context: Path) -> bool:
    """Return whether an unpacked context is one of tasks."""
    return (context / MANIFEST).is_file() and (context / FOLDER).is_dir()


@lru_cache(maxsize=64)
def unpack_task(context: Path, task_id: str) -> tuple[HarborTask, str]:
    """Return a task of an unpacked context, and which number is its reward.

    Raises:
        DataError: it is not there, or is none.
    """
    path = context / FOLDER / f"{task_id}.tar"
    if "/" in task_id or not path.is_file():
        raise DataError(f"task {task_id[:80]!r}: is not in the deployment; name a seed that stands for one")
    files: dict[str, TaskFile] = {}
    remaining = MAX_TASK_BYTES
    try:
        manifest = json.loads((context / MANIFEST).read_text("utf-8"))
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                remaining -= member.size
                stream = tar.extractfile(member) if member.isreg() and remaining >= 0 else None
                if stream is None or len(files) >= MAX_FILES or ".." in member.name.split("/"):
                    raise DataError(f"task {task_id!r}: {member.name[:80]!r} cannot be part of a task; import it again")
                files[member.name] = TaskFile(stream.read(), bool(member.mode & 0o100))
    except (tarfile.TarError, ValueError, OSError) as error:
        raise DataError(f"task {task_id!r}: cannot be read ({error}); import it again") from None
    return task_of(task_id, files), str(manifest.get("reward_key") or "reward")
