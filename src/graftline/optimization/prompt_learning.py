"""Prompt optimisations for users: `PromptLearningJob(PromptLearningConfig.from_toml(…))`, submitted and waited for.

The service carries them out, and asks the task app for rollouts; before a job is sent, the task app is asked whether it is
there, takes the key, and knows the first seed.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

from graftline.errors import ConfigError
from graftline.harbor import running
from graftline.harbor.answers import Answer, read
from graftline.harbor.client import HarborClient, HarborTimeoutError
from graftline.harbor.deployment_ref import HarborDeploymentRef
from graftline.harbor.server_events import ServerEvent, server_events
from graftline.harbor.task_app_client import TaskAppClient, create_task_app_client
from graftline.optimization.settings import PromptLearningConfig
from graftline.progress import progress_bars

__all__ = ["PromptLearningConfig", "PromptLearningJob", "PromptLearningResult", "PromptLearningStatus"]

JOBS = "/api/prompt-learning/online/jobs"
EVENTS = "prompt_learning."
"""What the kinds of its events begin with: `created`, `running`, `generation.started`, `candidate.evaluated`,
`generation.completed`, `frontier.updated`, and one of `succeeded`, `failed` and `cancelled` as the last."""
_LAST = frozenset({f"{EVENTS}succeeded", f"{EVENTS}failed", f"{EVENTS}cancelled"})
_GROWTH, _LONGEST_POLL_S = 1.5, 10.0


class PromptLearningStatus(StrEnum):
    """Of a job."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    COMPLETED = "completed"
    """The same as `succeeded`, of services that call it so."""
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""
        return self not in (self.PENDING, self.QUEUED, self.RUNNING)


@dataclass(frozen=True, slots=True)
class PromptLearningResult:
    """What a job came to, as far as it is. A score of 0.0 is a number; None is that nothing is known."""

    job_id: str
    status: PromptLearningStatus
    best_score: float | None = None
    mean_reward: float | None = None
    """Of the best prompt, over the seeds that it was judged on; its score where the service says no more."""
    best_prompt: Any = None
    error: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether there is a best prompt."""
        return self.status in (PromptLearningStatus.SUCCEEDED, PromptLearningStatus.COMPLETED)

    @property
    def failed(self) -> bool:
        """Whether it ended without one."""
        return self.status is PromptLearningStatus.FAILED

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""
        return self.status.is_terminal


class _Job(Answer):
    job_id: str
    status: PromptLearningStatus = PromptLearningStatus.PENDING
    best_score: float | None = None
    mean_reward: float | None = None
    best_prompt: Any = None
    error: str | None = None
    num_completed: int = 0
    num_total: int = 0


class PromptLearningJob:
    """One prompt optimisation."""

    def __init__(
        self,
        config: PromptLearningConfig | str | Path,
        backend_url: str | None = None,
        api_key: str | None = None,
        task_app_api_key: str | None = None,
        allow_http: bool = False,
    ) -> None:
        """Take the configuration, or the path of its file; nothing is asked yet.

        Args:
            config: What is to be made better, on what.
            backend_url: The service; that of the deployment, or as the environment says, where it is not given.
            api_key: Its key; the same.
            task_app_api_key: Of a task app that is no deployment of the service.
            allow_http: Whether keys may go to another machine unencrypted.
        """
        self.config = config if isinstance(config, PromptLearningConfig) else PromptLearningConfig.from_toml(config)
        self.job_id: str | None = None
        self._given = (backend_url, api_key, task_app_api_key, allow_http)
        self._key = uuid4().hex
        self._asked: HarborClient | None = None

    def submit(self) -> str:
        """Check the task app, send the job, and return its id; a second time it is the same one.

        Raises:
            ConfigError: the configuration is not whole, or names no task app.
            HarborError: the task app is not there, refuses the key or the seed; or the service refuses the job.
        """
        return running.run(self.submit_async())

    async def submit_async(self) -> str:
        """As `submit`."""
        if self.job_id is None:
            if not self.config.gepa.evaluation.train_seeds:
                raise ConfigError("prompt_learning.gepa.evaluation: names no train_seeds; expected at least one")
            client, task_app = self._client(), self._task_app()
            await task_app.health()
            await task_app.task_info([self.config.seeds[0]])
            body = {
                "algorithm": self.config.algorithm,
                "auto_start": True,
                "config_body": {"prompt_learning": self.config.body(task_app.url)},
                "idempotency_key": self._key,
            }
            content = await client.request_async("POST", JOBS, body, idempotency_key=self._key)
            self.job_id = read(_Job, content, "creation of a prompt optimisation").job_id
        return self.job_id

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
        return running.run(self.poll_until_complete_async(progress, timeout_s, interval_s))

    async def poll_until_complete_async(
        self, progress: bool = False, timeout_s: float | None = None, interval_s: float = 1.0
    ) -> PromptLearningResult:
        """As `poll_until_complete`."""
        job_id = self._submitted()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with ExitStack() as stack:
            bars = stack.enter_context(progress_bars()) if progress else None
            if bars:
                bars.start("optimisation", job_id)
            while True:
                found, raw = await self._look("GET", "")
                if bars:
                    bars.advance(found.num_completed, found.num_total)
                if found.status.is_terminal:
                    break
                if deadline is not None and time.monotonic() + interval_s > deadline:
                    raise HarborTimeoutError(
                        f"prompt optimisation {job_id!r}: is {found.status!s} still after {timeout_s:g} s; poll again, "
                        "it goes on"
                    )
                await asyncio.sleep(interval_s)
                interval_s = min(interval_s * _GROWTH, max(interval_s, _LONGEST_POLL_S))
            if bars:
                bars.finish(str(found.status))
        return _result(found, raw)

    def status(self) -> PromptLearningResult:
        """Return how far it is."""
        return running.run(self.status_async())

    async def status_async(self) -> PromptLearningResult:
        """As `status`."""
        return _result(*await self._look("GET", ""))

    def cancel(self) -> PromptLearningResult:
        """End the job."""
        return running.run(self.cancel_async())

    async def cancel_async(self) -> PromptLearningResult:
        """As `cancel`."""
        return _result(*await self._look("POST", "/cancel"))

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        """Yield what happens to the job, from its beginning to its last event."""
        path = f"{JOBS}/{self._submitted()}/events/stream"
        async with aclosing(server_events(self._client(), path, lambda event: event.kind in _LAST)) as found:
            async for event in found:
                yield event

    async def _look(self, method: str, what: str) -> tuple[_Job, Mapping[str, Any]]:
        job_id = self._submitted()
        content = await self._client().request_async(
            method, f"{JOBS}/{job_id}{what}", idempotency_key=f"{self._key}-cancel" if method == "POST" else ""
        )
        return read(_Job, content, f"prompt optimisation {job_id!r}"), content

    def _client(self) -> HarborClient:
        if self._asked is None:
            url, key, _, allow_http = self._given
            ref = self._deployment()
            self._asked = HarborClient(
                url or (ref.backend_url if ref else None), key or (ref.api_key if ref else None), allow_http=allow_http
            )
        return self._asked

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

    def _task_app(self) -> TaskAppClient:
        config, (_, key, own_key, allow_http) = self.config, self._given
        ref = self._deployment()
        if config.task_app_config is not None and config.task_app_url:
            raise ConfigError("prompt_learning: has both task_app_url and task_app_config; set the one to None")
        if (app := config.task_app_config) is not None and app.execution_backend != "harbor":
            # the service asks it where it is served, and so is it asked here
            own = app.api_key.get_secret_value() if app.api_key else None
            return create_task_app_client(app.get_task_app_url(), own_key or own, allow_http=allow_http)
        if app is not None:
            return create_task_app_client(app, allow_http=allow_http)
        if ref is not None:
            return create_task_app_client(ref.task_app_url, key, allow_http=allow_http)
        if not config.task_app_url:
            raise ConfigError(
                "prompt_learning: names no task app; expected task_app_url, task_app_config or harbor.deployment_id"
            )
        return create_task_app_client(config.task_app_url, own_key, allow_http=allow_http)

    def _submitted(self) -> str:
        if self.job_id is None:
            raise ConfigError("prompt optimisation: was not submitted; call submit() first")
        return self.job_id


def _result(found: _Job, raw: Mapping[str, Any]) -> PromptLearningResult:
    # of a mean that is 0.0 the score is not asked
    mean = found.best_score if found.mean_reward is None else found.mean_reward
    return PromptLearningResult(found.job_id, found.status, found.best_score, mean, found.best_prompt, found.error, raw)
