"""What executors of containers elsewhere have in common: one build at a time, and containers that a killed process left.

A container is found among those of others by its labels. It is left over when the run that had it is: its holder, a process, is dead,
or its lease is. Of a holder on another machine only the lease says something.
"""

import hashlib
import logging
import shutil
import tempfile
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from graftline.core.errors import DataError, HarborError
from graftline.harbor.archive import Snapshots
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import BuildContext, Built, Execution, RolloutSpec
from graftline.harbor.executors.containers import Container, ContainerSpec, run_in_containers
from graftline.harbor.executors.trial import Abilities, Box, CancelledError, Role, run_trial
from graftline.harbor.leases import is_dead, new_owner
from graftline.harbor.results import failure
from graftline.harbor.task_format.packed import HARBOR_TASK, holds_tasks, unpack_task
from graftline.harbor.task_format.task_folder import HarborTask

logger = logging.getLogger(__name__)

LABEL = "graftline.harbor."
LEASE_SLACK_S = 600.0
"""By what the lease of a container is longer than what runs in it may take."""
_LAST_CALLS_S = 10.0
_TASKS = "harbor-tasks-"

T = TypeVar("T")


class ContainerExecutor:
    """The base of `docker` and `daytona`."""

    name: str
    needs_dockerfile = True

    def __init__(self, owner: str) -> None:
        self._owner_labels, self._holder = {f"{LABEL}owner": owner}, new_owner()
        self._changed = threading.Condition()
        self._live: set[str] = set()
        self._builds: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._is_closed = False
        self._tasks_folder: Path | None = None

    @abstractmethod
    def has(self, snapshot_id: str) -> bool:
        """Return whether a snapshot is there still."""

    @abstractmethod
    def _list(self) -> Iterable[tuple[str, Mapping[str, str]]]:
        """Return the id and the labels of each container of our owner."""

    @abstractmethod
    def _remove(self, container_id: str) -> None:
        """Remove a container, whatever runs in it; one that cannot be removed is logged."""

    @abstractmethod
    def _create(self, spec: ContainerSpec) -> tuple[str, Callable[[], Container]]:
        """Make a container, and return its id and what fills it."""

    @abstractmethod
    def _find_or_build(self, digest: str, context: BuildContext) -> Built:
        """Make a snapshot called by `digest`, or return the one that is there; no other thread builds the same."""

    def build(self, context: BuildContext) -> Built:
        if not context.dockerfile.strip() and holds_tasks(self._tasks.add(context.digest, context.archive)):
            return Built(f"{_TASKS}{context.digest}", "images are made when their tasks are run\n")
        if not context.dockerfile.strip():
            raise DataError(f"the context has no Dockerfile, which executor {self.name!r} builds by; add one")
        digest = hashlib.sha256("\0".join(self._identity(context)).encode()).hexdigest()
        with self._changed:
            lock = self._builds[digest]
        with lock:
            return self._find_or_build(digest, context)

    def _identity(self, context: BuildContext) -> tuple[str, ...]:
        return context.digest, context.dockerfile

    def run(self, rollout: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        if self._is_closed:
            raise HarborError(f"{self.name}: the executor is closed; open another one")
        if rollout.entrypoint == HARBOR_TASK:
            return self._run_task(rollout, is_cancelled)
        return run_in_containers(rollout, self._open_container, is_cancelled)

    def _run_task(self, rollout: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        context = self._tasks.path(rollout.snapshot_id.removeprefix(_TASKS))
        if context is None:
            raise HarborError(f"{self.name}: snapshot {rollout.snapshot_id!r} is gone; build the deployment again")

        def glance() -> None:
            if self._is_closed:
                raise HarborError(f"{self.name}: the executor was closed meanwhile; open another one")
            if is_cancelled():
                raise CancelledError

        @contextmanager
        def open_box(role: Role, task: HarborTask, is_public: bool) -> Iterator[Box]:
            glance()
            with self._held(*self._create_box(rollout, role, task, is_public, glance)) as box:
                yield box

        try:
            task, reward_key = unpack_task(context, str(rollout.request.get("task_id") or ""))
            return run_trial(rollout, task, self._abilities(rollout), open_box, reward_key)
        except CancelledError:
            return Execution(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error="cancelled")
        except DataError as error:
            return failure(FailureCause.VERIFIER_FAILED, f"{self.name} cannot run this task: {error}")

    def _abilities(self, rollout: RolloutSpec) -> Abilities:
        """Return what boxes of tasks can give."""
        raise DataError("boxes of Harbor tasks are not made here; import with --dockerfile, or take docker or local")

    def _create_box(
        self, rollout: RolloutSpec, role: Role, task: HarborTask, is_public: bool, glance: Callable[[], None]
    ) -> tuple[str, Callable[[], Box]]:
        """Make the box of a role, and return its id and what starts it."""
        raise NotImplementedError

    def reap(self) -> int:
        """Remove the containers of our owner that no live run has, and return how many there were."""
        present = list(self._list())
        with self._changed:
            live = set(self._live)
        orphans = [container_id for container_id, labels in present if self._is_orphan(container_id, labels, live)]
        for container_id in orphans:
            self._remove(container_id)
        if orphans:
            logger.warning("%s: removed %d containers that were left", self.name, len(orphans))
        return len(orphans)

    def close(self) -> None:
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            live = list(self._live)
        for container_id in live:
            self._remove(container_id)
        with self._changed:
            # a thread in the middle of a call has its connection still
            self._changed.wait_for(lambda: not self._live, _LAST_CALLS_S)
        self._disconnect()
        if self._tasks_folder is not None:
            shutil.rmtree(self._tasks_folder, ignore_errors=True)

    @property
    def _tasks(self) -> Snapshots:
        """The contexts of Harbor tasks, which are in no image."""
        with self._changed:
            if self._tasks_folder is None:
                self._tasks_folder = Path(tempfile.mkdtemp(prefix="graftline-tasks-"))
            return Snapshots(self._tasks_folder / "tasks")

    def _has_tasks(self, snapshot_id: str) -> bool:
        return snapshot_id.startswith(_TASKS) and self._tasks.path(snapshot_id.removeprefix(_TASKS)) is not None

    def _disconnect(self) -> None:
        """Let go of the connection, and of what is not to be kept."""

    @contextmanager
    def _open_container(self, spec: ContainerSpec) -> Iterator[Container]:
        if self._is_closed:
            raise HarborError(f"{self.name}: the executor is closed; open another one")
        with self._held(*self._create(spec)) as container:
            yield container

    @contextmanager
    def _held(self, container_id: str, fill: Callable[[], T]) -> Iterator[T]:
        """Yield what `fill` returns, and remove the container in the end."""
        with self._changed:
            self._live.add(container_id)
            is_closed = self._is_closed
        try:
            if is_closed:
                raise HarborError(f"{self.name}: the executor was closed meanwhile; open another one")
            yield fill()
        finally:
            self._remove(container_id)
            with self._changed:
                self._live.discard(container_id)
                self._changed.notify_all()

    def _labels(self, rollout: RolloutSpec, role: Role, timeout_s: float) -> dict[str, str]:
        """Return the labels of a container that is to be made."""
        labels = {
            "rollout": rollout.rollout_id,
            "attempt": str(rollout.attempt),
            "role": role,
            "holder": self._holder,
            "lease": str(int(time.time() + timeout_s + LEASE_SLACK_S)),
        }
        return {**self._owner_labels, **{f"{LABEL}{name}": value for name, value in labels.items()}}

    def _is_orphan(self, container_id: str, labels: Mapping[str, str], live: set[str]) -> bool:
        holder, lease = labels.get(f"{LABEL}holder", ""), labels.get(f"{LABEL}lease", "")
        if holder == self._holder:
            return container_id not in live
        return is_dead(holder) or not lease.isdigit() or int(lease) < time.time()
