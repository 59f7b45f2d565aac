"""The two ways to an evaluation: the service runs the seeds of a deployment, or they are run from here at any task app."""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from uuid import uuid4

from graftline.core.errors import GraftlineError
from graftline.evals.budget import Spending
from graftline.evals.results import EvalResult, EvalStatus, SeedResult, result_of_answer, result_of_seeds
from graftline.evals.settings import EvalBudget, EvalJobConfig
from graftline.harbor.client import HarborClient
from graftline.harbor.contract import (
    FailureCause,
    RolloutEnv,
    RolloutPolicy,
    RolloutRequest,
    RolloutResponse,
    RolloutSafety,
    reward_of,
)
from graftline.harbor.deployment_ref import HarborDeploymentRef
from graftline.harbor.running import Background
from graftline.harbor.task_app_client import TaskAppClient

logger = logging.getLogger(__name__)

JOBS = "/api/eval/jobs"
_ENDS_WITHIN_S = 20.0
"""So long one that was cancelled is waited for."""


class Run(Protocol):
    """One evaluation on its way."""

    async def submit(self) -> str:
        """Begin it, and return its id; a second time it is the same one."""

    async def look(self) -> EvalResult:
        """Return how far it is."""

    async def results(self) -> EvalResult:
        """Return how far it is, with what came of every seed."""

    async def cancel(self) -> EvalResult:
        """End it; what has ended of it stays."""


class ServiceRun:
    """The service runs the seeds of a deployment."""

    def __init__(self, config: EvalJobConfig, ref: HarborDeploymentRef) -> None:
        self.client = HarborClient.of_deployment(ref, allow_http=config.allow_http)
        self._config, self._ref, self._key = config, ref, uuid4().hex
        self.job_id = ""

    async def submit(self) -> str:
        if not self.job_id:
            content = await self.client.request_async("POST", JOBS, self._body(), idempotency_key=self._key)
            self.job_id = result_of_answer(content, "creation of an evaluation").job_id
        return self.job_id

    async def look(self) -> EvalResult:
        return await self._asked("GET", "")

    async def results(self) -> EvalResult:
        return await self._asked("GET", "/results")

    async def cancel(self) -> EvalResult:
        return await self._asked("POST", "/cancel")

    async def _asked(self, method: str, what: str) -> EvalResult:
        content = await self.client.request_async(
            method, f"{JOBS}/{self.job_id}{what}", idempotency_key=f"{self._key}-cancel" if method == "POST" else ""
        )
        return result_of_answer(content, f"evaluation {self.job_id!r}")

    def _body(self) -> dict[str, Any]:
        config = self._config
        assert isinstance(config.budget, EvalBudget)
        budget = {name: getattr(config.budget, name) for name in ("max_rollouts", "max_usd", "max_tokens")}
        return {
            "task_app_url": self._ref.task_app_url,
            "app_id": config.app_id,
            "env_name": config.env_name,
            "seeds": list(config.seeds),
            "policy": dict(config.policy_config),
            "env_config": dict(config.env_config),
            "verifier_config": dict(config.verifier_config),
            "max_concurrent": config.concurrency,
            "timeout": config.timeout,
            "budget": budget,
            "min_coverage": config.min_coverage,
            "idempotency_key": self._key,
        }


class LocalRun:
    """Seeds are run from here, in a thread with an event loop of its own, so many at a time as may be."""

    def __init__(self, config: EvalJobConfig, task_app: TaskAppClient) -> None:
        self._config, self._task_app = config, task_app
        self._ended: dict[int, SeedResult] = {}
        self._background: Background[None] | None = None
        self._is_cancelled = False
        self.job_id = ""

    async def submit(self) -> str:
        if not self.job_id:
            # nothing is begun at a task app that is not there
            await self._task_app.health()
            self.job_id = f"eval-{uuid4().hex}"
            self._background = Background(self._run())
        return self.job_id

    async def look(self) -> EvalResult:
        background, ended = self._background, [*self._ended.values()]
        status, error = EvalStatus.RUNNING, None
        if background is not None and background.is_done:
            ended = [*self._ended.values()]
            status, error = self._status(ended, background)
        return result_of_seeds(self.job_id, status, ended, len(self._config.seeds), error)

    async def results(self) -> EvalResult:
        return await self.look()

    async def cancel(self) -> EvalResult:
        if self._background is not None and not self._background.is_done:
            self._is_cancelled = True
            self._background.cancel()
            await asyncio.to_thread(self._background.wait, _ENDS_WITHIN_S)
        return await self.look()

    def _status(self, ended: list[SeedResult], background: Background[None]) -> tuple[EvalStatus, str | None]:
        fault = background.fault
        if self._is_cancelled:
            return EvalStatus.CANCELLED, None
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]
        if fault is not None:
            return EvalStatus.FAILED, f"the evaluation ended early ({type(fault).__name__}: {fault})"
        covered = sum(result.reward_valid for result in ended)
        if covered >= self._config.min_coverage * len(self._config.seeds):
            return EvalStatus.COMPLETED, None
        first = next((result for result in ended if not result.reward_valid and result.error), None)
        said = f"; seed {first.seed}: {first.error}" if first else ""
        uncovered = len(self._config.seeds) - covered
        return EvalStatus.COMPLETED_WITH_ERRORS, f"{uncovered} of {len(self._config.seeds)} seeds have no reward{said}"

    async def _run(self) -> None:
        assert isinstance(self._config.budget, EvalBudget)
        spending, seeds = Spending(self._config.budget), iter(self._config.seeds)
        workers = min(self._config.concurrency, len(self._config.seeds))
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(seeds, spending))

    async def _work(self, seeds: Iterator[int], spending: Spending) -> None:
        for seed in seeds:
            if refusal := await spending.reserve():
                result = SeedResult(seed=seed, status="cancelled", failure_cause=FailureCause.CANCELLED, error=refusal)
            else:
                result = await self._one(seed)
                await spending.settle(result.cost_usd, result.tokens)
            self._ended[seed] = result

    async def _one(self, seed: int) -> SeedResult:
        request, began = self._request(seed), time.monotonic()
        try:
            response = await self._task_app.rollout(request)
        except GraftlineError as error:
            # one seed that is refused is a result; the others may do better
            logger.warning("evaluation %s, seed %d: %s", self.job_id, seed, error)
            return SeedResult(
                seed=seed,
                status="failed",
                failure_cause=FailureCause.HARBOR_FAILED,
                error=str(error),
                latency_s=time.monotonic() - began,
                trace_correlation_id=request.trace_correlation_id,
            )
        return _seed_result(seed, response, time.monotonic() - began)

    def _request(self, seed: int) -> RolloutRequest:
        config = self._config
        judged = {"verifier_config": dict(config.verifier_config)} if config.verifier_config else {}
        return RolloutRequest(
            trace_correlation_id=f"{self.job_id}-s{seed}",
            env=RolloutEnv(env_name=config.env_name or config.app_id, config=dict(config.env_config), seed=seed),
            policy=RolloutPolicy(config=dict(config.policy_config)),
            safety=RolloutSafety(max_time_s=config.timeout),
            **judged,
        )


def _seed_result(seed: int, response: RolloutResponse, latency_s: float) -> SeedResult:
    used = (response.model_extra or {}).get("execution_metadata")
    said: Mapping[str, Any] = {**(used if isinstance(used, dict) else {}), **response.metadata}
    tokens = said.get("tokens", said.get("total_tokens"))
    return SeedResult(
        seed=seed,
        status="completed" if response.reward_valid else "failed",
        reward=response.reward_info.outcome_reward,
        reward_valid=response.reward_valid,
        success_status=response.success_status,
        failure_cause=response.failure_cause,
        error=response.status_detail,
        cost_usd=reward_of(said.get("cost_usd")),
        tokens=tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None,
        latency_s=latency_s,
        rollout_id=str(said.get("rollout_id") or ""),
        trace_correlation_id=response.trace_correlation_id,
    )
