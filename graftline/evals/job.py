"""Evaluations for users: `EvalJob(EvalJobConfig(…))`, submitted, waited for, looked at.

Seeds of a deployment are run by its service, those of any other task app from here; the result is of the same kind. Every
`…_async` method has a twin without it, which works inside a running event loop too.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

from graftline.core.errors import ConfigError, GraftlineError
from graftline.evals.budget import EvalBudget, Spending
from graftline.evals.results import EvalResult, EvalStatus, result_of_answer, result_of_seeds
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.client import HarborClient
from graftline.harbor.contract import (
    MAX_TIMEOUT_S,
    FailureCause,
    RolloutEnv,
    RolloutPolicy,
    RolloutRequest,
    RolloutResponse,
    RolloutSafety,
    SuccessStatus,
)
from graftline.harbor.event_loop import Background, blocking
from graftline.harbor.instances import check_seeds
from graftline.harbor.job_polling import ServiceJob, job_progress, poll
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.messages import SeedResult
from graftline.harbor.task_app_client import TaskAppClient, create_task_app_client

__all__ = ["EvalBudget", "EvalJob", "EvalJobConfig", "EvalResult", "EvalStatus", "SeedResult"]

logger = logging.getLogger(__name__)

JOBS = "/api/eval/jobs"
_MOST_AT_ONCE = 1000
_ENDS_WITHIN_S = 20.0
"""So long a canceled one is waited for."""
_BUDGET_KEYS = frozenset({"max_rollouts", "max_usd", "max_tokens"})


@dataclass(kw_only=True)
class EvalJobConfig:
    """An evaluation: every seed once, of one task app."""

    task_app_url: str | LocalAPIConfig | None = None
    """A URL, of a deployment or of any task app; or the task app itself."""
    local_api_url: str | LocalAPIConfig | None = None
    """Another name of `task_app_url`."""
    task_app_config: LocalAPIConfig | None = None
    """The task app, in place of a URL."""
    api_key: str | None = field(default=None, repr=False)
    """Of the Harbor service."""
    backend_url: str | None = None
    """The Harbor service; that of the deployment by default."""
    task_app_api_key: str | None = field(default=None, repr=False)
    """Of a task app that is no deployment of the service."""
    local_api_key: str | None = field(default=None, repr=False)
    """Another name of `task_app_api_key`."""
    app_id: str | None = None
    env_name: str | None = None
    seeds: Sequence[int] = ()
    policy_config: Mapping[str, Any] = field(default_factory=dict)
    env_config: Mapping[str, Any] = field(default_factory=dict)
    verifier_config: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 20
    timeout: float = 600.0
    """Seconds of each rollout."""
    budget: EvalBudget | Mapping[str, Any] = field(default_factory=EvalBudget)
    min_coverage: float = 0.95
    """Share of seeds with a reward that counts below which the evaluation is `completed_with_errors`."""
    allow_http: bool = False
    """Whether keys may go to another machine unencrypted."""

    def __post_init__(self) -> None:
        apps = [app for app in (self.task_app_url, self.local_api_url, self.task_app_config) if app]
        if len(apps) != 1:
            raise ConfigError(
                f"evaluation: names {len(apps) or 'no'} task apps; expected one of task_app_url and task_app_config"
            )
        self.local_api_url = None
        if isinstance(apps[0], LocalAPIConfig):
            self.task_app_url, self.task_app_config = None, apps[0]
        else:
            self.task_app_url, self.task_app_config = apps[0], None
        self.task_app_api_key = self.task_app_api_key or self.local_api_key
        self.seeds = check_seeds(list(self.seeds), "evaluation: seeds")
        if not 1 <= self.concurrency <= _MOST_AT_ONCE:
            raise ConfigError(f"evaluation: concurrency is {self.concurrency!r}; expected 1 to {_MOST_AT_ONCE}")
        if not 0 < self.timeout <= MAX_TIMEOUT_S:
            raise ConfigError(f"evaluation: timeout is {self.timeout!r} s; expected up to {MAX_TIMEOUT_S}")
        if not 0 <= self.min_coverage <= 1:
            raise ConfigError(f"evaluation: min_coverage is {self.min_coverage!r}; expected a share from 0 to 1")
        if isinstance(self.budget, Mapping):
            if unknown := set(self.budget) - _BUDGET_KEYS:
                keys = ", ".join(sorted(_BUDGET_KEYS))
                raise ConfigError(f"evaluation: budget names {min(map(str, unknown))!r}; known: {keys}")
            self.budget = EvalBudget(**self.budget)


class EvalJob:
    """One evaluation."""

    def __init__(self, config: EvalJobConfig) -> None:
        """Take the configuration; no request is sent yet.

        Raises:
            ConfigError: it names nothing that can be asked.
            ValueError: the service has no key.
        """
        self.config = config
        self._run = _open_run(config)
        self.job_id: str | None = None

    async def submit_async(self) -> str:
        """Begin the evaluation, and return its id; a second time it is the same one.

        Raises:
            HarborError: the service refuses it, or the task app is not there.
        """
        self.job_id = await self._run.submit()
        return self.job_id

    async def poll_until_complete_async(
        self, progress: bool = False, timeout_s: float | None = None, interval_s: float = 0.5
    ) -> EvalResult:
        """Return the result when every seed has ended, however.

        Args:
            progress: Whether to show on standard error how many have.
            timeout_s: How long that is waited for; None is for as long as it takes.
            interval_s: Between two looks, at first; later longer.

        Raises:
            HarborTimeoutError: it is not done in time, which is a `TimeoutError`; it goes on.
            HarborError: the service does not say.
        """
        job_id = self._require_id()

        def late(result: EvalResult) -> str:
            return f"evaluation {job_id!r}: {result.num_completed} of {result.num_total} seeds have ended"

        with job_progress("evaluation", job_id, progress) as (advance, finish):
            result = await poll(self._run.look, late, advance, timeout_s, interval_s)
            finish(f"{result.status}, {result.n_valid} of {result.num_total} seeds count")
        return await self._run.results()

    async def cancel_async(self) -> EvalResult:
        """End the evaluation; results of seeds that have ended stay."""
        self._require_id()
        return await self._run.cancel()

    async def results_async(self) -> EvalResult:
        """Return how far it is, with the result of every seed that has ended."""
        self._require_id()
        return await self._run.results()

    submit = blocking(submit_async)
    poll_until_complete = blocking(poll_until_complete_async)
    cancel = blocking(cancel_async)
    results = blocking(results_async)

    def _require_id(self) -> str:
        if self.job_id is None:
            raise ConfigError("evaluation: was not submitted; call submit() first")
        return self.job_id


class ServiceRun(ServiceJob[EvalResult]):
    """The service runs the seeds of a deployment."""

    def __init__(self, config: EvalJobConfig, ref: HarborDeploymentRef) -> None:
        client = HarborClient.of_deployment(ref, allow_http=config.allow_http)
        super().__init__(client, JOBS, result_of_answer, "evaluation")
        self._config, self._ref = config, ref

    async def submit(self) -> str:
        """Begin it, and return its id; a second time it is the same one."""
        config = self._config
        assert isinstance(config.budget, EvalBudget)
        body = {
            "task_app_url": self._ref.task_app_url,
            "app_id": config.app_id,
            "env_name": config.env_name,
            "seeds": list(config.seeds),
            "policy": dict(config.policy_config),
            "env_config": dict(config.env_config),
            "verifier_config": dict(config.verifier_config),
            "max_concurrent": config.concurrency,
            "timeout": config.timeout,
            "budget": asdict(config.budget),
            "min_coverage": config.min_coverage,
        }
        return await self.begin(body, lambda content: result_of_answer(content, "creation of an evaluation").job_id)

    async def results(self) -> EvalResult:
        """Return how far it is, with the result of every seed."""
        return await self.request("GET", "/results")


class LocalRun:
    """Seeds are run from here, in a thread with an event loop of its own, so many at a time as may be."""

    def __init__(self, config: EvalJobConfig, task_app: TaskAppClient) -> None:
        self._config, self._task_app = config, task_app
        self._results: dict[int, SeedResult] = {}
        self._background: Background[None] | None = None
        self._is_canceled = False
        self.job_id = ""

    async def submit(self) -> str:
        if not self.job_id:
            # nothing is begun at a task app that is not there
            await self._task_app.health()
            self.job_id = f"eval-{uuid4().hex}"
            self._background = Background(self._run())
        return self.job_id

    async def look(self) -> EvalResult:
        background, status, error = self._background, EvalStatus.RUNNING, None
        is_done = background is not None and background.is_done
        results = [*self._results.values()]
        if background is not None and is_done:
            status, error = self._status(results, background)
        return result_of_seeds(self.job_id, status, results, len(self._config.seeds), error)

    async def results(self) -> EvalResult:
        return await self.look()

    async def cancel(self) -> EvalResult:
        if self._background is not None and not self._background.is_done:
            self._is_canceled = True
            self._background.cancel()
            await asyncio.to_thread(self._background.wait, _ENDS_WITHIN_S)
        return await self.look()

    def _status(self, results: list[SeedResult], background: Background[None]) -> tuple[EvalStatus, str | None]:
        if self._is_canceled:
            return EvalStatus.CANCELLED, None
        fault = background.fault
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]
        if fault is not None:
            return EvalStatus.FAILED, f"the evaluation ended early ({type(fault).__name__}: {fault})"
        total = len(self._config.seeds)
        n_valid = sum(result.reward_valid for result in results)
        if n_valid >= self._config.min_coverage * total:
            return EvalStatus.COMPLETED, None
        first = next((result for result in results if not result.reward_valid and result.error), None)
        reason = f"; seed {first.seed}: {first.error}" if first else ""
        return EvalStatus.COMPLETED_WITH_ERRORS, f"{total - n_valid} of {total} seeds have no reward{reason}"

    async def _run(self) -> None:
        assert isinstance(self._config.budget, EvalBudget)
        spending, seeds = Spending(self._config.budget), iter(self._config.seeds)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._config.concurrency, len(self._config.seeds))):
                group.create_task(self._work(seeds, spending))

    async def _work(self, seeds: Iterator[int], spending: Spending) -> None:
        for seed in seeds:
            if refusal := await spending.reserve():
                result = SeedResult(seed=seed, status="cancelled", failure_cause=FailureCause.CANCELLED, error=refusal)
            else:
                result = await self._run_seed(seed)
                await spending.settle(result.cost_usd, result.tokens)
            self._results[seed] = result

    async def _run_seed(self, seed: int) -> SeedResult:
        request, began = self._request(seed), time.monotonic()
        try:
            response = await self._task_app.rollout(request)
        except GraftlineError as error:
            # one seed that is refused is a result; the others may do better
            logger.warning("evaluation %s, seed %d: %s", self.job_id, seed, error)
            correlation_id = request.trace_correlation_id
            response = RolloutResponse.without_reward(correlation_id, SuccessStatus.NETWORK_ERROR, str(error))
        return _seed_result(seed, response, time.monotonic() - began)

    def _request(self, seed: int) -> RolloutRequest:
        config = self._config
        verifier = {"verifier_config": dict(config.verifier_config)} if config.verifier_config else {}
        return RolloutRequest(
            trace_correlation_id=f"{self.job_id}-s{seed}",
            env=RolloutEnv(env_name=config.env_name or config.app_id, config=dict(config.env_config), seed=seed),
            policy=RolloutPolicy(config=dict(config.policy_config)),
            safety=RolloutSafety(max_time_s=config.timeout),
            **verifier,
        )


def _seed_result(seed: int, response: RolloutResponse, latency_s: float) -> SeedResult:
    cost_usd, tokens = response.cost_and_tokens
    return SeedResult(
        seed=seed,
        status="completed" if response.reward_valid else "failed",
        reward=response.reward_info.outcome_reward,
        reward_valid=response.reward_valid,
        success_status=response.success_status,
        failure_cause=response.failure_cause,
        error=response.status_detail,
        cost_usd=cost_usd,
        tokens=tokens,
        latency_s=latency_s,
        rollout_id=str(response.usage.get("rollout_id") or ""),
        trace_correlation_id=response.trace_correlation_id,
    )


def _open_run(config: EvalJobConfig) -> ServiceRun | LocalRun:
    app, key = config.task_app_config, config.task_app_api_key
    url = app.get_task_app_url() if app and app.execution_backend == "harbor" else config.task_app_url
    app_key = app.harbor.api_key if app and app.harbor else None
    ref = HarborDeploymentRef.of_url(url, config.api_key or app_key or key) if isinstance(url, str) else None
    if ref is not None and (not config.backend_url or config.backend_url.rstrip("/") == ref.backend_url):
        return ServiceRun(config, ref)
    task_app = app or config.task_app_url
    assert task_app is not None  # the configuration saw to it
    key = key or (config.api_key if ref else None)
    return LocalRun(config, create_task_app_client(task_app, key, config.timeout, config.allow_http))
