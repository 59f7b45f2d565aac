"""A deployment of this service as a task app, asked without going through HTTP."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graftline.harbor.client import HarborAPIError
from graftline.harbor.contract import RolloutRequest, RolloutResponse, TaskDescription, TaskInfo
from graftline.harbor.refusal import RequestError
from graftline.harbor.service.lookups import Parts, check_runs, deployment_of, task_ids
from graftline.harbor.service.rollout_requests import Rollouts

_FIRST_LOOK_S, _LONGEST_S, _GROWTH = 0.02, 0.5, 1.5


class InnerTaskApp:
    """Asks the queue of this service for rollouts of one deployment."""

    def __init__(self, parts: Parts, deployment: str, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Take what the service is made of, and a deployment by its id or name.

        Args:
            is_cancelled: Whether a rollout that nobody waits for any more is to be ended; else it goes on, and whoever asks
                for it again finds it.
        """
        self._parts, self._deployment, self._is_cancelled = parts, deployment, is_cancelled
        self._rollouts = Rollouts(parts)

    @property
    def url(self) -> str:
        return ""

    async def rollout(self, request: RolloutRequest) -> RolloutResponse:
        try:
            view = await asyncio.to_thread(self._rollouts.add, self._deployment, request, None)
        except RequestError as refusal:
            raise HarborAPIError(refusal.status, str(refusal), refusal.details, refusal.code) from None
        pause_s = _FIRST_LOOK_S
        try:
            while not await asyncio.to_thread(self._rollouts.is_over, view.rollout_id):
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_S, pause_s * _GROWTH)
        except asyncio.CancelledError:
            if self._is_cancelled():
                self._rollouts.cancel(view.rollout_id)
            raise
        return RolloutResponse.model_validate(await asyncio.to_thread(self._rollouts.response, view.rollout_id))

    async def task_info(self, seeds: Sequence[int]) -> list[TaskInfo]:
        return await asyncio.to_thread(self._infos, seeds)

    async def health(self) -> Mapping[str, Any]:
        await asyncio.to_thread(self._infos, ())
        return {"status": "ok"}

    def _infos(self, seeds: Sequence[int]) -> list[TaskInfo]:
        try:
            with self._parts.database.reading() as connection:
                deployment = deployment_of(connection, self._deployment)
                check_runs(connection, deployment)
                names = task_ids(deployment, seeds)
        except RequestError as refusal:
            raise HarborAPIError(refusal.status, str(refusal), refusal.details, refusal.code) from None
        known = {task["seed"]: task.get("metadata", {}) for task in deployment.tasks or ()}
        return [
            TaskInfo(task=TaskDescription(id=name, name=name), task_metadata=known.get(seed, {}))
            for seed, name in zip(seeds, names, strict=True)
        ]
