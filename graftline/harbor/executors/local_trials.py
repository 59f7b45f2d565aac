"""Harbor tasks on the executor `local`: each in a container of this machine, on the image that its Dockerfile makes here."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graftline.core.errors import DataError, HarborError, SandboxError
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import Execution, RolloutSpec
from graftline.harbor.executors.images import Image, ImageStore
from graftline.harbor.executors.trial import Abilities, Box, CancelledError, Role, limits_of_box, run_trial
from graftline.harbor.results import failure
from graftline.harbor.task_format.packed import unpack_task
from graftline.harbor.task_format.task_folder import HarborTask
from graftline.sandbox.containers import CommandEnd, LinuxContainer, Network

_POLL_S = 0.2


class LocalTrials:
    """Runs Harbor tasks, `at_once` of them; safe to use from many threads."""

    def __init__(self, images: ImageStore, network: Network, at_once: int, is_open: Callable[[], bool]) -> None:
        self._images, self._network, self._is_open = images, network, is_open
        self._places = threading.BoundedSemaphore(at_once)

    def run(self, rollout: RolloutSpec, context: Path, is_cancelled: Callable[[], bool]) -> Execution:
        """Run one rollout of a task of `context` to its end. Raises HarborError where nothing was run."""

        def glance() -> None:
            if not self._is_open():
                raise HarborError("local: the executor is closed; open another one")
            if is_cancelled():
                raise CancelledError

        abilities = Abilities(self._network == "host", switches_network=False, variables=frozenset(rollout.secrets))
        try:
            task, reward_key = unpack_task(context, str(rollout.request.get("task_id") or ""))
            while not self._places.acquire(timeout=_POLL_S):
                glance()
            try:
                return run_trial(rollout, task, abilities, lambda *box: self._open(rollout, glance, *box), reward_key)
            finally:
                self._places.release()
        except CancelledError:
            return Execution(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error="cancelled")
        except DataError as error:
            # asked for again, it would end the same
            return failure(
                FailureCause.VERIFIER_FAILED, f"local cannot run task {rollout.request.get('task_id')}: {error}"
            )

    def image_of(self, task: HarborTask, role: Role) -> Image:
        """Return the image of a role. DataError if it cannot be made here, which says all that is missing."""
        named, files = task.image_name(role), task.part(task.image_part(role))
        if named is not None and ("Dockerfile" not in files or self._images.knows(named)):
            return self._images.build(f"FROM {named}\n", {})
        dockerfile = files.pop("Dockerfile").content.decode("utf-8", "replace")
        context = {path: (file.content, 0o755 if file.is_executable else 0o644) for path, file in files.items()}
        return self._images.build(dockerfile, context)

    @contextmanager
    def _open(
        self, rollout: RolloutSpec, glance: Callable[[], None], role: Role, task: HarborTask, is_public: bool
    ) -> Iterator[Box]:
        glance()
        image, limits = self.image_of(task, role), limits_of_box(task, rollout.limits)
        try:
            container = LinuxContainer(
                self._images.layers_folder,
                image.layers,
                network="host" if is_public else "none",
                memory_mb=limits.memory_mb,
                disk_mb=limits.disk_mb,
                cores=limits.cpu_cores,
            )
        except SandboxError as error:
            raise HarborError(f"local: {error}") from error
        try:
            yield LocalBox(container, image, glance)
        finally:
            container.close()


class LocalBox:
    """A container of this machine as a `Box`."""

    def __init__(self, container: LinuxContainer, image: Image, glance: Callable[[], None]) -> None:
        self._container, self._image, self._glance = container, image, glance
        self.workdir = image.workdir

    @property
    def limits_enforced(self) -> Mapping[str, Any]:
        container = self._container
        features = container.features
        return {
            "isolation": "namespaces",
            "features": list(features),
            "image": self._image.name,
            "cpu_cores": container.cores if "cpu_quota" in features else None,
            "memory_mb": container.memory_mb if "total_memory" in features else None,
            "disk_mb": container.disk_mb if "disk_limits" in features else None,
            "network": container.network,
        }

    def run(
        self, words: Sequence[str], env: Mapping[str, str], folder: str, user: str, timeout_s: float, output: str = ""
    ) -> CommandEnd:
        try:
            return self._container.run(
                words,
                env={**self._image.env, **env},
                folder=folder,
                user=user or self._image.user,
                timeout_s=timeout_s,
                output=output,
                glance=self._glance,
            )
        except SandboxError as error:
            raise HarborError(f"local: {error}") from error

    def put(self, folder: str, archive: bytes) -> None:
        try:
            self._container.put(folder, archive)
        except SandboxError as error:
            raise HarborError(f"local: {error}") from error

    def get(self, path: str, limit: int) -> bytes:
        try:
            return self._container.get(path, limit)
        except SandboxError as error:
            raise HarborError(f"local: {error}") from error

    def set_network(self, is_public: bool) -> None:
        """Nothing: a task whose roles differ is refused before."""
