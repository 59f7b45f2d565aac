"""The executor `memory`: nothing is run, and rewards are worked out or come from a table. For tests, and to try a service."""

import hashlib
from collections.abc import Callable
from typing import Literal

from graftline.core.config import Config
from graftline.core.errors import HarborError
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import BuildContext, Built, Execution, RolloutSpec

_PREFIX = "memory-"
_SHORT = 12
_STEPS = 1000

Outcomes = Callable[[RolloutSpec], Execution]
"""Returns how a rollout ends, or raises what an executor raises."""


class MemoryExecutorConfig(Config):
    """Rewards that are worked out from the context and the seed."""

    kind: Literal["memory"] = "memory"


class MemoryExecutor:
    """The executor. What it knows of snapshots is in their names, so that a service that starts again finds them all."""

    name = "memory"
    needs_dockerfile = False

    def __init__(self, outcomes: Outcomes | None = None) -> None:
        self._outcomes = outcomes or worked_out
        self._is_open = True

    def build(self, context: BuildContext) -> Built:
        return Built(f"{_PREFIX}{context.digest[:_SHORT]}")

    def has(self, snapshot_id: str) -> bool:
        return snapshot_id.startswith(_PREFIX)

    def run(self, box: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        if not self._is_open:
            raise HarborError("memory: the executor is closed; open another one")
        if not self.has(box.snapshot_id):
            raise HarborError(f"memory: snapshot {box.snapshot_id!r} is gone; build the deployment again")
        if is_cancelled():
            return Execution(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error="cancelled")
        return self._outcomes(box)

    def close(self) -> None:
        self._is_open = False


def worked_out(box: RolloutSpec) -> Execution:
    """Return a success whose reward in [0, 1) is the same for the same snapshot and seed."""
    env = box.request.get("env")
    seed = env.get("seed") if isinstance(env, dict) else box.request.get("seed")
    digest = hashlib.sha256(f"{box.snapshot_id}\0{seed or 0}".encode()).hexdigest()
    reward = int(digest[:8], 16) % _STEPS / _STEPS
    result = {"metrics": {"reward_mean": reward}, "success": True}
    return Execution(SuccessStatus.SUCCESS, reward, result=result, cost_usd=0.0, tokens=0)
