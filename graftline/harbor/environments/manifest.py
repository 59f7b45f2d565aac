"""Which task a seed stands for: a list that is fixed once. Tasks that come later get the seeds after it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.core.record import write_atomically
from graftline.harbor.contract import Seed, TaskSeed
from graftline.rollouts.task import Task

MAX_TASKS_BYTES = 1 << 30


class ManifestEntry(BaseModel):
    """One seed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    seed: Seed
    task_id: str
    task_digest: str
    """Of the task as it was when it got its seed."""


class SeedManifest(BaseModel):
    """Seeds and their tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    entries: tuple[ManifestEntry, ...]
    """By seed, from 0, without a gap."""

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Self:
        """Return the manifest of `tasks`, by their ids. Raises DataError where two have the same id."""
        return cls(entries=()).extend(tasks)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the manifest in `path`. Raises DataError where there is none, or it is damaged."""
        try:
            manifest = cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); expected a manifest of seeds") from None
        except ValidationError as error:
            raise DataError(
                f"{path}: is no manifest of seeds ({_fault(error)}); restore it, or make a new one"
            ) from None
        seeds = [entry.seed for entry in manifest.entries]
        ids = {entry.task_id for entry in manifest.entries}
        if seeds != [*range(len(seeds))] or len(ids) < len(seeds):
            raise DataError(f"{path}: has a gap, or a task twice; seeds run from 0, and each has a task of its own")
        return manifest

    @property
    def version(self) -> str:
        """What tells the list from all others."""
        return digest([entry.model_dump() for entry in self.entries])

    def extend(self, tasks: Iterable[Task]) -> Self:
        """Return the manifest with those of `tasks` that have no seed yet, by their ids; no seed changes its task.

        Raises:
            DataError: two have the same id.
        """
        known_ids = {entry.task_id for entry in self.entries}
        new = [task for task in by_id(tasks).values() if task.id not in known_ids]
        entries = (
            ManifestEntry(seed=seed, task_id=task.id, task_digest=task.digest)
            for seed, task in enumerate(sorted(new, key=lambda task: task.id), len(self.entries))
        )
        return type(self)(entries=(*self.entries, *entries))

    def task_of(self, tasks: Mapping[str, Task]) -> dict[int, Task]:
        """Return the task of every seed; one whose task is not among `tasks` any more is left out.

        Raises:
            DataError: a task is not the one that got the seed.
        """
        by_seed = {}
        for entry in self.entries:
            task = tasks.get(entry.task_id)
            if task is None:
                continue
            if task.digest != entry.task_digest:
                raise DataError(
                    f"seed {entry.seed}: task {entry.task_id!r} is not what it was when it got the seed; results before"
                    " and after would not compare, so make a new manifest"
                )
            by_seed[entry.seed] = task
        return by_seed

    def write(self, path: Path) -> None:
        """Put the manifest into `path`."""
        write_atomically(path, json.dumps(self.model_dump(mode="json"), indent=1) + "\n")


def load_tasks(path: Path) -> list[Task]:
    """Return the tasks in a file of JSON lines.

    Raises:
        DataError: there is none, it is too large, or a line is no task.
    """
    try:
        if path.stat().st_size > MAX_TASKS_BYTES:
            raise DataError(f"{path}: has more than {MAX_TASKS_BYTES} bytes; split it into several deployments")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); expected tasks, one line of JSON for each"
        ) from None
    tasks = []
    for number, line in enumerate(lines, 1):
        try:
            tasks.append(Task.model_validate_json(line))
        except ValidationError as error:
            raise DataError(f"{path}:{number}: is no task ({_fault(error)}); make the file again") from None
    return tasks


def by_id(tasks: Iterable[Task]) -> dict[str, Task]:
    """Return `tasks` by their ids. Raises DataError where two have the same id."""
    unique: dict[str, Task] = {}
    for task in tasks:
        if unique.setdefault(task.id, task) is not task:
            raise DataError(f"task {task.id!r}: is there twice; a seed can stand for one only, so leave one out")
    return unique


def seed_tasks(tasks: Mapping[int, Task]) -> list[TaskSeed]:
    """Return what a deployment is told of its seeds (`tasks` of its creation)."""
    return [TaskSeed(seed=seed, task_id=task.id, metadata={"task_digest": task.digest}) for seed, task in tasks.items()]


def _fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    location: Sequence[str] = [str(part) for part in fault["loc"]]
    return f"{'.'.join(location) or 'the whole'}: {fault['msg']}"
