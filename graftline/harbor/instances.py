"""Instances of a deployment: one per seed. Creating them twice is the same as once."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor import event_loop
from graftline.harbor.answers import HarborBuiltInstances, HarborInstance, InstancePage, read
from graftline.harbor.client import HarborClient, HarborTimeoutError
from graftline.harbor.contract import MAX_SEED
from graftline.harbor.deployment_ref import deployment_path

_PAGE = 1000
_FIRST_POLL_S, _LONGEST_POLL_S, _GROWTH = 0.1, 5.0, 1.5


def create_harbor_instances(
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
        backend_url: Else as the environment says, as everywhere.
        api_key: The same.
        start_seed: Only with `count`.
        seeds: Each once.
        wait_for_ready: Whether to return only when all of them are ready.
        timeout_s: How long that is waited for.

    Raises:
        ConfigError: the seeds are no seeds.
        HarborError: one that is waited for failed, or is not ready in time (`HarborTimeoutError`).
    """
    return event_loop.run(
        create_harbor_instances_async(
            deployment_id, count, backend_url, api_key, start_seed, seeds, wait_for_ready, timeout_s
        )
    )


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
    """As `create_harbor_instances`."""
    wanted, body = _batch(count, start_seed, seeds)
    client = HarborClient(backend_url, api_key)
    async with client.session():
        instances = await made(client, deployment_id, wanted, body)
        if wait_for_ready:
            return await _ready(client, deployment_id, wanted, instances, timeout_s)
    return instances


def list_harbor_instances(
    deployment_id: str, status: str | None = None, backend_url: str | None = None, api_key: str | None = None
) -> list[HarborInstance]:
    """Return all instances of a deployment by seed, or those of one status."""
    return event_loop.run(list_harbor_instances_async(deployment_id, status, backend_url, api_key))


async def list_harbor_instances_async(
    deployment_id: str, status: str | None = None, backend_url: str | None = None, api_key: str | None = None
) -> list[HarborInstance]:
    """As `list_harbor_instances`."""
    return await listed(HarborClient(backend_url, api_key), deployment_id, status=status)


def build_harbor_instances(
    deployment_id: str, backend_url: str | None = None, api_key: str | None = None
) -> HarborBuiltInstances:
    """Have all instances of a deployment made ready; it does not wait for that."""
    return event_loop.run(build_harbor_instances_async(deployment_id, backend_url, api_key))


async def build_harbor_instances_async(
    deployment_id: str, backend_url: str | None = None, api_key: str | None = None
) -> HarborBuiltInstances:
    """As `build_harbor_instances`."""
    path = f"{deployment_path(deployment_id)}/instances/build-all"
    content = await HarborClient(backend_url, api_key).request_async("POST", path, idempotency_key=uuid4().hex)
    return read(HarborBuiltInstances, content, f"build of the instances of {deployment_id!r}")


async def made(
    client: HarborClient, deployment_id: str, wanted: Sequence[int], body: dict[str, Any]
) -> list[HarborInstance]:
    """Return the instances of `wanted` after the batch `body`."""
    path = f"{deployment_path(deployment_id)}/instances/batch"
    content = await client.request_async("POST", path, body, idempotency_key=uuid4().hex)
    answered = read(InstancePage, content, f"instances of {deployment_id!r}")
    instances = {instance.seed: instance for instance in answered.instances}
    if not all(seed in instances for seed in wanted):
        # the answer to a large batch leaves them out
        instances = {instance.seed: instance for instance in await listed(client, deployment_id, wanted)}
    if missing := [seed for seed in wanted if seed not in instances]:
        raise HarborError(f"deployment {deployment_id!r}: has no instance of seed {missing[0]} after its creation")
    return [instances[seed] for seed in sorted(wanted)]


async def listed(
    client: HarborClient, deployment_id: str, wanted: Sequence[int] | None = None, status: str | None = None
) -> list[HarborInstance]:
    """Return the instances of a deployment by seed; of `wanted`, those that are there, without reading further pages."""
    asked, last = (None, MAX_SEED) if wanted is None else (frozenset(wanted), max(wanted, default=-1))
    found: list[HarborInstance] = []
    cursor: str | None = None
    async with client.session():
        while True:
            content = await client.request_async(
                "GET",
                f"{deployment_path(deployment_id)}/instances",
                query={"status": status, "limit": _PAGE, "cursor": cursor},
            )
            page = read(InstancePage, content, f"instances of {deployment_id!r}")
            found += [instance for instance in page.instances if asked is None or instance.seed in asked]
            cursor = page.next_cursor
            # they come by seed: behind the last one that is wanted there is nothing
            if not cursor or not page.instances or page.instances[-1].seed >= last:
                return found


async def _ready(
    client: HarborClient, deployment_id: str, wanted: Sequence[int], instances: list[HarborInstance], timeout_s: float
) -> list[HarborInstance]:
    deadline, pause_s = time.monotonic() + timeout_s, _FIRST_POLL_S
    await client.request_async(
        "POST", f"{deployment_path(deployment_id)}/instances/build-all", idempotency_key=uuid4().hex
    )
    while True:
        instances = await listed(client, deployment_id, wanted)
        if failed := [instance for instance in instances if instance.status == "failed"]:
            raise HarborError(
                f"deployment {deployment_id!r}: {len(failed)} of {len(instances)} instances failed, the first that of "
                f"seed {failed[0].seed}: {failed[0].error or 'the service does not say why'}"
            )
        waited_for = [instance.seed for instance in instances if instance.status != "ready"]
        if not waited_for:
            return instances
        if time.monotonic() + pause_s > deadline:
            raise HarborTimeoutError(
                f"deployment {deployment_id!r}: {len(waited_for)} of {len(instances)} instances are not ready after "
                f"{timeout_s:g} s, the first that of seed {waited_for[0]}; wait longer, their build goes on"
            )
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * _GROWTH, _LONGEST_POLL_S)


def _batch(count: int | None, start_seed: int, seeds: Sequence[int] | None) -> tuple[Sequence[int], dict[str, Any]]:
    """Return the seeds that are asked for, and how the service is asked for them."""
    if (count is None) == (seeds is None):
        raise ConfigError("instances: expected either count or seeds")
    if seeds is not None:
        return checked_seeds(seeds, "instances"), {"seeds": list(seeds)}
    if count is None or count < 1 or start_seed < 0 or start_seed + count - 1 > MAX_SEED:
        raise ConfigError(
            f"instances: {count} seeds from {start_seed} are no seeds; expected 1 or more, between 0 and {MAX_SEED}"
        )
    return range(start_seed, start_seed + count), {"count": count, "start_seed": start_seed}


def checked_seeds(seeds: Sequence[int], what: str) -> Sequence[int]:
    """Return `seeds`.

    Raises:
        ConfigError: there is none, one is named twice, or one is no seed; `what` stands before it.
    """
    if not seeds:
        raise ConfigError(f"{what}: names no seed; expected at least one")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
            raise ConfigError(f"{what}: {seed!r} is no seed; expected a whole number from 0 to {MAX_SEED}")
    if len(set(seeds)) < len(seeds):
        twice = next(seed for place, seed in enumerate(seeds) if seed in seeds[:place])
        raise ConfigError(f"{what}: names seed {twice} twice; expected each once")
    return seeds
