"""How the files of tests are dealt out to the processes of pytest-xdist: those of a folder to one of them, while there are others."""

from collections.abc import Iterable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

LONGEST = ("tests/shell", "tests/integration", "tests/unit/training", "tests/unit/pipeline")
"""Folders that are begun first, for they take longest."""


def folder_of(file: str) -> str:
    return file.rpartition("/")[0]


def next_file(files: Iterable[str], folder: str | None, begun: Iterable[str]) -> str:
    """Return which of `files` comes next for a process that was last in `folder`, where processes have `begun` some.

    What the fixtures of a folder make for a session, models, servers and whole lineages, is so made in one process, and not in each.
    """
    waiting = dict[str, list[str]]()
    for file in files:
        waiting.setdefault(folder_of(file), []).append(file)
    if folder in waiting:
        return waiting[folder][0]
    fresh = [name for name in (*LONGEST, *waiting) if name in waiting and name not in {*begun}]
    return waiting[fresh[0] if fresh else max(waiting, key=lambda name: len(waiting[name]))][0]


class FolderScheduling(LoadFileScheduling):
    """Files stay whole, and the processes in their folders."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._folders = dict[WorkerController, str]()

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = next_file(self.workqueue, self._folders.get(node), self._folders.values())
        self._folders[node] = folder_of(file)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
