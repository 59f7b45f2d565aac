"""Evaluations for users: `EvalJob(EvalJobConfig(…))`, submitted, waited for, looked at.

Seeds of a deployment are run by its service, those of any other task app from here; the result is of the same kind. Every
`…_async` method has a twin without it, which works inside a running event loop too.
"""

import asyncio
import time
from contextlib import ExitStack

from graftline.core.errors import ConfigError
from graftline.core.progress import progress_bars
from graftline.evals.results import EvalResult, EvalStatus, SeedResult
from graftline.evals.runs import LocalRun, Run, ServiceRun
from graftline.evals.settings import EvalBudget, EvalJobConfig
from graftline.harbor import running
from graftline.harbor.client import HarborTimeoutError
from graftline.harbor.deployment_ref import HarborDeploymentRef
from graftline.harbor.task_app_client import create_task_app_client

__all__ = ["EvalBudget", "EvalJob", "EvalJobConfig", "EvalResult", "EvalStatus", "SeedResult"]

_GROWTH, _LONGEST_POLL_S = 1.5, 5.0


class EvalJob:
    """One evaluation."""

    def __init__(self, config: EvalJobConfig) -> None:
        """Take the configuration; nothing is asked yet.

        Raises:
            ConfigError: it names nothing that can be asked.
            ValueError: the service has no key.
        """
        self.config = config
        self._run = _run_of(config)
        self.job_id: str | None = None

    def submit(self) -> str:
        """Begin the evaluation, and return its id; a second time it is the same one.

        Raises:
            HarborError: the service refuses it, or the task app is not there.
        """
        return running.run(self.submit_async())

    async def submit_async(self) -> str:
        """As `submit`."""
        self.job_id = await self._run.submit()
        return self.job_id

    def poll_until_complete(
        self, progress: bool = False, timeout_s: float | None = None, interval_s: float = 0.5
    ) -> EvalResult:
        """Return the result when every seed has ended, however.

        Args:
            progress: Whether to show on standard error how many have.
            timeout_s: How long that is waited for; None is for as long as it takes.
            interval_s: How long it is left alone between two looks, at first; later for longer.

        Raises:
            HarborTimeoutError: it is not done in time, which is a `TimeoutError`; it goes on.
            HarborError: the service does not say.
        """
        return running.run(self.poll_until_complete_async(progress, timeout_s, interval_s))

    async def poll_until_complete_async(
        self, progress: bool = False, timeout_s: float | None = None, interval_s: float = 0.5
    ) -> EvalResult:
        """As `poll_until_complete`."""
        job_id = self._submitted()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with ExitStack() as stack:
            bars = stack.enter_context(progress_bars()) if progress else None
            if bars:
                bars.start("evaluation", job_id)
            while True:
                result = await self._run.look()
                if bars:
                    bars.advance(result.num_completed, result.num_total)
                if result.is_terminal:
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    raise HarborTimeoutError(
                        f"evaluation {job_id!r}: {result.num_completed} of {result.num_total} seeds have ended after "
                        f"{timeout_s:g} s; poll again, it goes on"
                    )
                left_s = interval_s if deadline is None else max(0.0, deadline - time.monotonic())
                await asyncio.sleep(min(interval_s, left_s))
                interval_s = min(interval_s * _GROWTH, max(interval_s, _LONGEST_POLL_S))
            if bars:
                bars.finish(f"{result.status}, {result.n_valid} of {result.num_total} seeds count")
        return await self._run.results()

    def cancel(self) -> EvalResult:
        """End the evaluation; what has ended of it stays."""
        return running.run(self.cancel_async())

    async def cancel_async(self) -> EvalResult:
        """As `cancel`."""
        self._submitted()
        return await self._run.cancel()

    def results(self) -> EvalResult:
        """Return how far it is, with what came of every seed that has ended."""
        return running.run(self.results_async())

    async def results_async(self) -> EvalResult:
        """As `results`."""
        self._submitted()
        return await self._run.results()

    def _submitted(self) -> str:
        if self.job_id is None:
            raise ConfigError("evaluation: was not submitted; call submit() first")
        return self.job_id


def _run_of(config: EvalJobConfig) -> Run:
    ref = _deployment_of(config)
    if ref is None or (config.backend_url and config.backend_url.rstrip("/") != ref.backend_url):
        key = config.task_app_api_key or (config.api_key if ref else None)
        app = config.task_app_config or config.task_app_url
        assert app is not None  # the configuration saw to it
        return LocalRun(config, create_task_app_client(app, key, config.timeout, config.allow_http))
    return ServiceRun(config, ref)


def _deployment_of(config: EvalJobConfig) -> HarborDeploymentRef | None:
    """Return the deployment that is evaluated, with where it is and a key; None where it is another task app."""
    app = config.task_app_config
    url = app.get_task_app_url() if app and app.execution_backend == "harbor" else config.task_app_url
    own = app.harbor.api_key if app and app.harbor else None
    return (
        HarborDeploymentRef.of_url(url, config.api_key or own or config.task_app_api_key)
        if isinstance(url, str)
        else None
    )
