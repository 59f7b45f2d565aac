"""From seeds to the instances of a deployment, as the service has them: nothing is worked out from the seed itself."""

from collections.abc import Sequence
from typing import Any

from graftline.core.errors import HarborError
from graftline.harbor import event_loop
from graftline.harbor.answers import HarborInstance
from graftline.harbor.client import HarborClient, Patience
from graftline.harbor.contract import TaskDescription, TaskInfo
from graftline.harbor.deployment_ref import HarborDeploymentRef
from graftline.harbor.instances import checked_seeds, listed, made

_SHOWN = 10


class HarborInstanceProvider:
    """Knows the instances of one deployment; those it was asked for once are not asked for again."""

    def __init__(
        self,
        deployment_ref: HarborDeploymentRef,
        task_id: str | None = None,
        task_name: str | None = None,
        create_missing: bool = False,
        timeout: float = 60.0,
        allow_http: bool = False,
    ) -> None:
        """Take the deployment; nothing is asked yet.

        Args:
            deployment_ref: Which deployment.
            task_id: What tasks are called, in place of what the deployment calls the task of each seed.
            task_name: The same, for people.
            create_missing: Whether a seed without an instance gets one.
            timeout: Seconds of one call.
            allow_http: Whether the key may go to another machine unencrypted.
        """
        self.deployment_ref = deployment_ref
        self._task_id, self._task_name, self._create_missing = task_id, task_name, create_missing
        self._timeout_s, self._allow_http = timeout, allow_http
        self._client: HarborClient | None = None
        self._known: dict[int, HarborInstance] = {}

    def __call__(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """As `task_info`: a provider takes the place of `provide_task_instances`."""
        return self.task_info(seeds)

    def instance_ids(self, seeds: Sequence[int]) -> dict[int, str]:
        """Return the id of the instance of every seed.

        Raises:
            HarborError: a seed has none; the message names it.
        """
        return event_loop.run(self.instance_ids_async(seeds))

    async def instance_ids_async(self, seeds: Sequence[int]) -> dict[int, str]:
        """As `instance_ids`."""
        return {instance.seed: instance.id for instance in await self.instances_async(seeds)}

    def task_info(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """Return the task of every seed, in their order; it fails as `instance_ids` does."""
        return event_loop.run(self.task_info_async(seeds))

    async def task_info_async(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """As `task_info`."""
        return [self._task(instance) for instance in await self.instances_async(seeds)]

    async def instances_async(self, seeds: Sequence[int]) -> list[HarborInstance]:
        """Return the instance of every seed, in their order; it fails as `instance_ids` does."""
        checked_seeds(seeds, f"deployment {self.deployment_ref.deployment_id!r}")
        if missing := [seed for seed in seeds if seed not in self._known]:
            await self._look_up(missing)
        return [self._known[seed] for seed in seeds]

    async def _look_up(self, seeds: Sequence[int]) -> None:
        if self._client is None:
            self._client = HarborClient.of_deployment(
                self.deployment_ref, Patience(timeout_s=self._timeout_s), self._allow_http
            )
        deployment_id = self.deployment_ref.deployment_id
        async with self._client.session():
            found = await listed(self._client, deployment_id, seeds)
            self._known.update({instance.seed: instance for instance in found})
            missing = [seed for seed in seeds if seed not in self._known]
            if missing and self._create_missing:
                instances = await made(self._client, deployment_id, missing, {"seeds": missing})
                self._known.update({instance.seed: instance for instance in instances})
                return
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise HarborError(
                f"deployment {deployment_id!r}: has no instance of seed {', '.join(map(str, missing[:_SHOWN]))}{more}; "
                "make them with create_harbor_instances, or pass create_missing=True"
            )

    def _task(self, instance: HarborInstance) -> TaskInfo:
        metadata: dict[str, Any] = {"seed": instance.seed, "instance_id": instance.id, "status": instance.status}
        task_id = self._task_id or instance.task_id or instance.id
        return TaskInfo(
            task=TaskDescription(id=task_id, name=self._task_name or task_id),
            dataset={"id": self.deployment_ref.deployment_id},
            task_metadata=metadata,
        )
