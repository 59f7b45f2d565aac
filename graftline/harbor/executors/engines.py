"""What executors of containers elsewhere have in common: one build at a time, and containers that a killed process left.

A container is found among those of others by its labels. It is left over when the run that had it is: its holder, a process, is dead,
or its lease is. Of a holder on another machine only the lease says something.
"""

import hashlib
import logging
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from graftline.core.errors import DataError, HarborError
from graftline.harbor.executors.base import BuildContext, Built, Execution, RolloutSpec
from graftline.harbor.executors.containers import Container, ContainerSpec, run_in_containers
from graftline.harbor.leases import is_dead, new_owner

logger = logging.getLogger(__name__)

LABEL = "graftline.harbor."
LEASE_SLACK_S = 600.0
"""By what the lease of a container is longer than what runs in it may take."""
_LAST_CALLS_S = 10.0


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
        return run_in_containers(rollout, self._open_container, is_cancelled)

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

    def _disconnect(self) -> None:
        """Let go of the connection, and of what is not to be kept."""

    @contextmanager
    def _open_container(self, spec: ContainerSpec) -> Iterator[Container]:
        if self._is_closed:
            raise HarborError(f"{self.name}: the executor is closed; open another one")
        container_id, fill = self._create(spec)
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

    def _labels(self, spec: ContainerSpec) -> dict[str, str]:
        """Return the labels of a container that is to be made."""
        labels = {
            "rollout": spec.rollout.rollout_id,
            "attempt": str(spec.rollout.attempt),
            "role": spec.role,
            "holder": self._holder,
            "lease": str(int(time.time() + spec.timeout_s + LEASE_SLACK_S)),
        }
        return {**self._owner_labels, **{f"{LABEL}{name}": value for name, value in labels.items()}}

    def _is_orphan(self, container_id: str, labels: Mapping[str, str], live: set[str]) -> bool:
        holder, lease = labels.get(f"{LABEL}holder", ""), labels.get(f"{LABEL}lease", "")
        if holder == self._holder:
            return container_id not in live
        return is_dead(holder) or not lease.isdigit() or int(lease) < time.time()
