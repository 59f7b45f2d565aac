"""Instances of a deployment, one per seed: made (twice is the same as once), listed, and looked up by seed.

Nothing is worked out from the seed itself: what it stands for is what the service says.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.address import HarborDeploymentRef, deployment_path
from graftline.harbor.client import HarborClient, HarborTimeoutError, RetryPolicy
from graftline.harbor.contract import MAX_SEED, TaskDescription, TaskInfo
from graftline.harbor.event_loop import blocking
from graftline.harbor.messages import HarborBuiltInstances, HarborInstance, InstancePage, read

_PAGE = 1000
_POLICY = RetryPolicy(timeout_s=60.0)
_MOST_SHOWN = 10
_FIRST_POLL_S, _LONGEST_POLL_S, _GROWTH = 0.1, 5.0, 1.5


async def create_harbor_instances_async(
    deployment_id: str,
    count: int | None = None,
    backend_url: str | None = None,
    api_key: str | None = None,
    start_seed: int = 0,
    seeds: Sequence[int] | None = None,
    wait_for_ready: bool = False,
    timeout_s: float = 600.0,
) -> list[HarborInstance]:
    """Return the instances of `count` seeds from `start_seed` on, or of `seeds`, by seed; those not there are made.

    Args:
        deployment_id: Or its name.
        count: Not with `seeds`.
        backend_url: By default as the environment says, as `api_key`.
        api_key: Of the service.
        start_seed: Only with `count`.
        seeds: Each once.
        wait_for_ready: Whether to return only when all of them are ready, within `timeout_s`.
        timeout_s: How long that is waited for.

    Raises:
        ConfigError: the seeds are no seeds.
        HarborError: one that is waited for failed, or is not ready in time (`HarborTimeoutError`).
    """
    if (count is None) == (seeds is None):
        raise ConfigError("instances: expected either count or seeds")
    if seeds is not None:
        check_seeds(seeds, "instances")
        body: dict[str, Any] = {"seeds": list(seeds)}
    elif count is None or count < 1 or start_seed < 0 or start_seed + count - 1 > MAX_SEED:
        raise ConfigError(
            f"instances: {count} seeds from {start_seed} are no seeds; expected 1 or more, between 0 and {MAX_SEED}"
        )
    else:
        seeds, body = range(start_seed, start_seed + count), {"count": count, "start_seed": start_seed}
    client = HarborClient(backend_url, api_key)
    async with client.session():
        instances = await _create(client, deployment_id, seeds, body)
        if wait_for_ready:
            return await _wait_until_ready(client, deployment_id, seeds, timeout_s)
    return instances


async def list_harbor_instances_async(
    deployment_id: str, status: str | None = None, backend_url: str | None = None, api_key: str | None = None
) -> list[HarborInstance]:
    """Return all instances of a deployment by seed, or those of one status."""
    return await _list(HarborClient(backend_url, api_key), deployment_id, status=status)


async def build_harbor_instances_async(
    deployment_id: str, backend_url: str | None = None, api_key: str | None = None
) -> HarborBuiltInstances:
    """Have all instances of a deployment made ready; it does not wait for that."""
    path = f"{deployment_path(deployment_id)}/instances/build-all"
    content = await HarborClient(backend_url, api_key).request_async("POST", path, idempotency_key=uuid4().hex)
    return read(HarborBuiltInstances, content, f"build of the instances of {deployment_id!r}")


create_harbor_instances = blocking(create_harbor_instances_async)
list_harbor_instances = blocking(list_harbor_instances_async)
build_harbor_instances = blocking(build_harbor_instances_async)


def check_seeds(seeds: Sequence[int], title: str) -> Sequence[int]:
    """Return `seeds`.

    Raises:
        ConfigError: there is none, one is named twice, or one is no seed; `title` stands before it.
    """
    if not seeds:
        raise ConfigError(f"{title}: names no seed; expected at least one")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
            raise ConfigError(f"{title}: {seed!r} is no seed; expected a whole number from 0 to {MAX_SEED}")
    if len(set(seeds)) < len(seeds):
        twice = next(seed for place, seed in enumerate(seeds) if seed in seeds[:place])
        raise ConfigError(f"{title}: names seed {twice} twice; expected each once")
    return seeds


async def _create(
    client: HarborClient, deployment_id: str, seeds: Sequence[int], body: dict[str, Any]
) -> list[HarborInstance]:
    """Have the service make the batch `body`, and return the instances of `seeds`."""
    path = f"{deployment_path(deployment_id)}/instances/batch"
    content = await client.request_async("POST", path, body, idempotency_key=uuid4().hex)
    page = read(InstancePage, content, f"instances of {deployment_id!r}")
    by_seed = {instance.seed: instance for instance in page.instances}
    if not all(seed in by_seed for seed in seeds):
        # the answer to a large batch leaves them out
        by_seed = {instance.seed: instance for instance in await _list(client, deployment_id, seeds)}
    if missing := [seed for seed in seeds if seed not in by_seed]:
        raise HarborError(f"deployment {deployment_id!r}: has no instance of seed {missing[0]} after its creation")
    return [by_seed[seed] for seed in sorted(seeds)]


async def _list(
    client: HarborClient, deployment_id: str, seeds: Sequence[int] | None = None, status: str | None = None
) -> list[HarborInstance]:
    """Return the instances of a deployment by seed; of `seeds`, those that are there, without reading further pages."""
    selected, last = (None, MAX_SEED) if seeds is None else (frozenset(seeds), max(seeds, default=-1))
    instances: list[HarborInstance] = []
    cursor: str | None = None
    async with client.session():
        while True:
            content = await client.request_async(
                "GET",
                f"{deployment_path(deployment_id)}/instances",
                query={"status": status, "limit": _PAGE, "cursor": cursor},
            )
            page = read(InstancePage, content, f"instances of {deployment_id!r}")
            instances += [instance for instance in page.instances if selected is None or instance.seed in selected]
            cursor = page.next_cursor
            # they come by seed: behind the last one that is asked for there is nothing
            if not cursor or not page.instances or page.instances[-1].seed >= last:
                return instances


async def _wait_until_ready(
    client: HarborClient, deployment_id: str, seeds: Sequence[int], timeout_s: float
) -> list[HarborInstance]:
    deadline, pause_s = time.monotonic() + timeout_s, _FIRST_POLL_S
    path = f"{deployment_path(deployment_id)}/instances/build-all"
    await client.request_async("POST", path, idempotency_key=uuid4().hex)
    while True:
        instances = await _list(client, deployment_id, seeds)
        if failed := [instance for instance in instances if instance.status == "failed"]:
            raise HarborError(
                f"deployment {deployment_id!r}: {len(failed)} of {len(instances)} instances failed, the first that of "
                f"seed {failed[0].seed}: {failed[0].error or 'the service does not say why'}"
            )
        pending = [instance.seed for instance in instances if instance.status != "ready"]
        if not pending:
            return instances
        if time.monotonic() + pause_s > deadline:
            raise HarborTimeoutError(
                f"deployment {deployment_id!r}: {len(pending)} of {len(instances)} instances are not ready after "
                f"{timeout_s:g} s, the first that of seed {pending[0]}; wait longer, their build goes on"
            )
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * _GROWTH, _LONGEST_POLL_S)


class HarborInstanceProvider:
    """Looks up the instances of one deployment; each is asked for once."""

    def __init__(
        self,
        deployment_ref: HarborDeploymentRef,
        create_missing: bool = False,
        allow_http: bool = False,
    ) -> None:
        """Take the deployment; no request is sent yet.

        Args:
            deployment_ref: Which deployment.
            create_missing: Whether a seed without an instance gets one.
            allow_http: Whether the key may go to another machine unencrypted.
        """
        self.deployment_ref = deployment_ref
        self._create_missing = create_missing
        self._allow_http = allow_http
        self._client: HarborClient | None = None
        self._by_seed: dict[int, HarborInstance] = {}

    def __call__(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """As `task_info`: a provider takes the place of `provide_task_instances`."""
        return self.task_info(seeds)

    async def instance_ids_async(self, seeds: Sequence[int]) -> dict[int, str]:
        """Return the id of the instance of every seed.

        Raises:
            HarborError: a seed has none; the message names it.
        """
        return {instance.seed: instance.id for instance in await self.instances_async(seeds)}

    async def task_info_async(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """Return the task of every seed, in their order; it fails as `instance_ids` does."""
        return [self._task(instance) for instance in await self.instances_async(seeds)]

    instance_ids = blocking(instance_ids_async)
    task_info = blocking(task_info_async)

    async def instances_async(self, seeds: Sequence[int]) -> list[HarborInstance]:
        """Return the instance of every seed, in their order; it fails as `instance_ids` does."""
        check_seeds(seeds, f"deployment {self.deployment_ref.deployment_id!r}")
        if missing := [seed for seed in seeds if seed not in self._by_seed]:
            await self._look_up(missing)
        return [self._by_seed[seed] for seed in seeds]

    async def _look_up(self, seeds: Sequence[int]) -> None:
        if self._client is None:
            self._client = HarborClient.of_deployment(self.deployment_ref, _POLICY, self._allow_http)
        deployment_id = self.deployment_ref.deployment_id
        async with self._client.session():
            instances = await _list(self._client, deployment_id, seeds)
            self._by_seed |= {instance.seed: instance for instance in instances}
            missing = [seed for seed in seeds if seed not in self._by_seed]
            if missing and self._create_missing:
                instances = await _create(self._client, deployment_id, missing, {"seeds": missing})
                self._by_seed |= {instance.seed: instance for instance in instances}
                return
        if missing:
            more = f" and {len(missing) - _MOST_SHOWN} more" if len(missing) > _MOST_SHOWN else ""
            raise HarborError(
                f"deployment {deployment_id!r}: has no instance of seed {', '.join(map(str, missing[:_MOST_SHOWN]))}{more}; "
                "make them with create_harbor_instances, or pass create_missing=True"
            )

    def _task(self, instance: HarborInstance) -> TaskInfo:
        task_id = instance.task_id or instance.id
        return TaskInfo(
            task=TaskDescription(id=task_id, name=task_id),
            dataset={"id": self.deployment_ref.deployment_id},
            task_metadata={"seed": instance.seed, "instance_id": instance.id, "status": instance.status},
        )
