"""Prompt optimizations for users: `PromptLearningJob(PromptLearningConfig.from_toml(…))`, submitted and waited for.

The service carries out those on its deployments; on any other task app, they are run from here. Before a job is begun, the task
app is asked whether it is there, takes the key, and knows the first seed.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from pathlib import Path

from graftline.core.errors import ConfigError
from graftline.core.progress import progress_bars
from graftline.harbor import event_loop
from graftline.harbor.client import HarborClient, HarborTimeoutError
from graftline.harbor.deployment_ref import HarborDeploymentRef
from graftline.harbor.server_events import ServerEvent
from graftline.harbor.task_app_client import TaskAppClient, create_task_app_client
from graftline.llm.blocking import BlockingChatModel
from graftline.prompts.outcome import Outcome
from graftline.prompts.runs import (
    EVENTS,
    JOBS,
    LocalRun,
    PromptLearningResult,
    PromptLearningStatus,
    Run,
    ServiceRun,
)
from graftline.prompts.settings import PromptLearningConfig

__all__ = [
    "EVENTS",
    "JOBS",
    "PromptLearningConfig",
    "PromptLearningJob",
    "PromptLearningResult",
    "PromptLearningStatus",
]

_GROWTH, _LONGEST_POLL_S = 1.5, 10.0


class PromptLearningJob:
    """One prompt optimization."""

    def __init__(
        self,
        config: PromptLearningConfig | str | Path,
        backend_url: str | None = None,
        api_key: str | None = None,
        task_app_api_key: str | None = None,
        allow_http: bool = False,
        folder: str | Path | None = None,
        proposer_model: BlockingChatModel | None = None,
        job_id: str = "",
    ) -> None:
        """Take the configuration, or the path of its file; nothing is asked yet.

        Args:
            config: What is to be made better, on what.
            backend_url: The service; that of the deployment, or as the environment says, where it is not given.
            api_key: Its key; the same.
            task_app_api_key: Of a task app that is no deployment of the service.
            allow_http: Whether keys may go to another machine unencrypted.
            folder: Where one that is run from here keeps what it was told, so that it can be resumed by another process.
            proposer_model: What one that is run from here asks for changes, where the configuration names no model.
            job_id: Of one that the service has already, to be looked at, resumed or cancelled.
        """
        self.config = config if isinstance(config, PromptLearningConfig) else PromptLearningConfig.from_toml(config)
        self._given = (backend_url, api_key, task_app_api_key, allow_http)
        self._folder, self._proposer_model = None if folder is None else Path(folder), proposer_model
        self._earlier = job_id
        self._run: Run | None = None
        self._is_submitted = bool(job_id)

    @property
    def job_id(self) -> str | None:
        """None before it was submitted."""
        if not self._is_submitted:
            return None
        return self._earlier if self._run is None else self._run.job_id

    @property
    def is_of_service(self) -> bool:
        """Whether the service carries it out, so that it goes on without this process."""
        return isinstance(self._opened(), ServiceRun)

    def submit(self) -> str:
        """Check the task app, begin the job, and return its id; a second time it is the same one.

        Raises:
            ConfigError: the configuration is not whole, or names no task app.
            HarborError: the task app is not there, refuses the key or the seed; or the service refuses the job.
        """
        return event_loop.run(self.submit_async())

    async def submit_async(self) -> str:
        """As `submit`."""
        if self._is_submitted:
            return self._begun().job_id
        if not self.config.gepa.evaluation.train_seeds:
            raise ConfigError("prompt_learning.gepa.evaluation: names no train_seeds; expected two or more")
        run = self._opened()
        if isinstance(run, ServiceRun):
            task_app = self._task_app()
            await task_app.health()
            await task_app.task_info([self.config.seeds[0]])
        job_id = await run.submit()
        self._is_submitted = True
        return job_id

    def poll_until_complete(
        self, progress: bool = False, timeout_s: float | None = None, interval_s: float = 1.0
    ) -> PromptLearningResult:
        """Return the result when the job has ended, however.

        Args:
            progress: Whether to show on standard error how far it is.
            timeout_s: How long that is waited for; None is for as long as it takes.
            interval_s: How long it is left alone between two looks, at first; later for longer.

        Raises:
            HarborTimeoutError: it is not done in time, which is a `TimeoutError`; it goes on.
            HarborError: the service does not say.
        """
        return event_loop.run(self.poll_until_complete_async(progress, timeout_s, interval_s))

    async def poll_until_complete_async(
        self, progress: bool = False, timeout_s: float | None = None, interval_s: float = 1.0
    ) -> PromptLearningResult:
        """As `poll_until_complete`."""
        run = self._begun()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with ExitStack() as stack:
            bars = stack.enter_context(progress_bars()) if progress else None
            if bars:
                bars.start("optimisation", run.job_id)
            while True:
                found = await run.look()
                if bars:
                    bars.advance(found.num_completed, found.num_total)
                if found.status.is_terminal:
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    raise HarborTimeoutError(
                        f"prompt optimization {run.job_id!r}: is {found.status!s} still after {timeout_s:g} s; poll"
                        " again, it goes on"
                    )
                left_s = interval_s if deadline is None else max(0.0, deadline - time.monotonic())
                await asyncio.sleep(min(interval_s, left_s))
                interval_s = min(interval_s * _GROWTH, max(interval_s, _LONGEST_POLL_S))
            if bars:
                bars.finish(str(found.status))
        return found

    def status(self) -> PromptLearningResult:
        """Return how far it is."""
        return event_loop.run(self.status_async())

    async def status_async(self) -> PromptLearningResult:
        """As `status`."""
        return await self._begun().look()

    def resume(self) -> PromptLearningResult:
        """Go on with a job that failed, was cancelled, or was lost with its process; what is paid is not paid again."""
        return event_loop.run(self.resume_async())

    async def resume_async(self) -> PromptLearningResult:
        """As `resume`."""
        if not self._is_submitted and self._folder is not None:
            await self.submit_async()
            return await self._begun().look()
        return await self._begun().resume()

    def cancel(self) -> PromptLearningResult:
        """End the job; what was found stays. It is running still where who proposes takes long to answer."""
        return event_loop.run(self.cancel_async())

    async def cancel_async(self) -> PromptLearningResult:
        """As `cancel`."""
        return await self._begun().cancel()

    def results(self) -> Outcome:
        """Return all prompts that were found: where each comes from, and its reward by seed.

        Raises:
            ConfigError: it has not ended, or found nothing.
        """
        return event_loop.run(self.results_async())

    async def results_async(self) -> Outcome:
        """As `results`."""
        return await self._begun().outcome()

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        """Yield what happens to the job, from its beginning to its last event."""
        async with aclosing(self._begun().events()) as found:
            async for event in found:
                yield event

    def _begun(self) -> Run:
        if not self._is_submitted:
            raise ConfigError("prompt optimization: was not submitted; call submit() first")
        return self._opened()

    def _opened(self) -> Run:
        if self._run is None:
            url, key, _, allow_http = self._given
            if self._earlier or self._deployment() is not None:
                self._check_names_one()
                ref = self._deployment()
                client = HarborClient(
                    url or (ref.backend_url if ref else None),
                    key or (ref.api_key if ref else None),
                    allow_http=allow_http,
                )
                self._run = ServiceRun(client, self.config, ref.task_app_url if ref else "", self._earlier)
            else:
                task_app = self._task_app()
                self._run = LocalRun(self.config, task_app, self._folder, self._proposer_model, allow_http)
        return self._run

    def _deployment(self) -> HarborDeploymentRef | None:
        """Return the deployment that rollouts run on; None where they run on another task app."""
        config, (url, key, _, _) = self.config, self._given
        if (app := config.task_app_config) is not None:
            named = app.harbor if app.execution_backend == "harbor" else None
        else:
            named = HarborDeploymentRef.of_url(config.task_app_url, key) if config.task_app_url else None
        if config.harbor is None:
            return named
        deployment_id = config.harbor.deployment_id
        if app is None and not config.task_app_url:
            return HarborDeploymentRef(deployment_id, url, key)
        if named is None or named.deployment_id != deployment_id:
            raise ConfigError(
                f"prompt_learning.harbor.deployment_id: is {deployment_id!r}, and the task app is another one; name one"
            )
        return named

    def _check_names_one(self) -> None:
        if self.config.task_app_config is not None and self.config.task_app_url:
            raise ConfigError("prompt_learning: has both task_app_url and task_app_config; set the one to None")

    def _task_app(self) -> TaskAppClient:
        config, (_, key, own_key, allow_http) = self.config, self._given
        ref, timeout_s = self._deployment(), config.gepa.rollout.timeout_s
        self._check_names_one()
        if (app := config.task_app_config) is not None:
            return create_task_app_client(app, own_key, timeout_s, allow_http=allow_http)
        if ref is not None:
            return create_task_app_client(ref.task_app_url, key, timeout_s, allow_http=allow_http)
        if not config.task_app_url:
            raise ConfigError(
                "prompt_learning: names no task app; expected task_app_url, task_app_config or harbor.deployment_id"
            )
        return create_task_app_client(config.task_app_url, own_key, timeout_s, allow_http=allow_http)
