"""Rollouts of several seeds of a deployment at the same time, each asked for once and under a name of its own."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from graftline.harbor import event_loop
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.contract import (
    MAX_TIMEOUT_S,
    FailureCause,
    RolloutEnv,
    RolloutPolicy,
    RolloutRequest,
    RolloutResponse,
)
from graftline.harbor.execution import ROLLOUTS, HarborExecutionBackend


@dataclass(frozen=True, slots=True)
class EndedRollout:
    """What came of one seed."""

    seed: int
    response: RolloutResponse
    view: Mapping[str, Any] = field(default_factory=dict)
    """As the service shows the rollout, with its attempts; empty where it has none to show."""

    @property
    def rollout_id(self) -> str:
        """Empty where the service never had it."""
        return str(self.view.get("rollout_id", ""))

    @property
    def task_id(self) -> str:
        """What the seed stands for."""
        return str(self.view.get("task_id", ""))

    @property
    def reward(self) -> float | None:
        """None where nothing is known."""
        return self.response.reward_info.outcome_reward

    @property
    def reward_valid(self) -> bool:
        """Whether it counts."""
        return self.response.reward_valid

    @property
    def cause(self) -> FailureCause | None:
        """Whose failure it is, where it is one."""
        return self.response.failure_cause

    @property
    def cost_usd(self) -> float | None:
        """None where nobody said."""
        return self.view.get("cost_usd")

    @property
    def tokens(self) -> int | None:
        """None where nobody said."""
        return self.view.get("tokens")

    @property
    def seconds(self) -> float | None:
        """From the first attempt to the end, without the time in the queue."""
        began, ended = self.view.get("started_at"), self.view.get("finished_at")
        if not began or not ended:
            return None
        return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "seed": self.seed,
            "task_id": self.task_id,
            "rollout_id": self.rollout_id,
            "trace_correlation_id": self.response.trace_correlation_id,
            "success_status": self.response.success_status,
            "reward": self.reward,
            "reward_valid": self.reward_valid,
            "failure_cause": self.cause,
            "error": self.response.status_detail,
            "seconds": self.seconds,
            "cost_usd": self.cost_usd,
            "tokens": self.tokens,
        }


def run_rollouts(
    ref: HarborDeploymentRef,
    seeds: Sequence[int],
    policy: Mapping[str, Any],
    at_once: int = 8,
    on_ended: Callable[[EndedRollout], None] = lambda ended: None,
) -> list[EndedRollout]:
    """Return how a rollout of every seed ended, in their order.

    Args:
        ref: The deployment.
        seeds: Each once.
        policy: `policy.config` of all of them.
        at_once: How many are asked for at the same time; the service says how many of them it runs.
        on_ended: Gets each one as it ends.

    Raises:
        HarborError: the service refuses one of them; those that go on are cancelled.
    """
    # the deployment says for itself how long a rollout may take
    backend = HarborExecutionBackend(ref, timeout=float(MAX_TIMEOUT_S))
    return event_loop.run(_all(backend, seeds, policy, at_once, on_ended))


async def _all(
    backend: HarborExecutionBackend,
    seeds: Sequence[int],
    policy: Mapping[str, Any],
    at_once: int,
    on_ended: Callable[[EndedRollout], None],
) -> list[EndedRollout]:
    # of another run of the same command the names differ, so that it asks for rollouts of its own
    run, places = uuid4().hex, asyncio.Semaphore(at_once)

    async def one(seed: int) -> EndedRollout:
        async with places:
            ended = await _one(backend, f"run-{run}-s{seed}", seed, policy)
            on_ended(ended)
            return ended

    async with backend.client.session():
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(seed)) for seed in seeds]
        except BaseExceptionGroup as group_error:
            # the first refusal says it; the others are of the same kind
            raise group_error.exceptions[0] from None
    return [task.result() for task in tasks]


async def _one(
    backend: HarborExecutionBackend, correlation_id: str, seed: int, policy: Mapping[str, Any]
) -> EndedRollout:
    request = RolloutRequest(
        trace_correlation_id=correlation_id,
        env=RolloutEnv(seed=seed),
        policy=RolloutPolicy(config=dict(policy)),
    )
    response = await backend.execute_async(request)
    rollout_id = response.metadata.get("rollout_id")
    view = await backend.client.request_async("GET", f"{ROLLOUTS}/{rollout_id}") if rollout_id else {}
    return EndedRollout(seed, response, view if isinstance(view, dict) else {})
