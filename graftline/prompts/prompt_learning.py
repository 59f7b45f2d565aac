"""Prompt optimizations for users: `PromptLearningJob(PromptLearningConfig.from_toml(…))`, submitted and waited for.

The service carries out those on its deployments; on any other task app, they are run from here. Before a job is begun, the task
app is asked whether it is there, takes the key, and knows the first seed. Every `…_async` method has a twin without it.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

from graftline.core.errors import ConfigError, GraftlineError
from graftline.core.secrets import open_secrets
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.client import HarborClient
from graftline.harbor.event_loop import blocking
from graftline.harbor.job_polling import ServiceJob, job_progress, poll
from graftline.harbor.messages import Answer, read
from graftline.harbor.server_events import ServerEvent, server_events
from graftline.harbor.task_app_client import TaskAppClient, create_task_app_client
from graftline.llm.blocking import BlockingChatModel
from graftline.prompts.journal import FileJournal, Journal, MemoryJournal, watch_stop_file
from graftline.prompts.optimize import check, optimize
from graftline.prompts.outcome import Outcome, PromptLearningResult, PromptLearningStatus
from graftline.prompts.settings import PromptLearningConfig

__all__ = ["PromptLearningConfig", "PromptLearningJob", "PromptLearningResult", "PromptLearningStatus"]

JOBS = "/api/prompt-learning/online/jobs"
EVENTS = "prompt_learning."
"""What the kinds of its events begin with: `created`, `running`, `generation.started`, `candidate.evaluated`,
`candidate.refused`, `generation.completed`, `frontier.updated`, and one of `succeeded`, `failed` and `cancelled` as the last."""
LAST = frozenset({f"{EVENTS}succeeded", f"{EVENTS}failed", f"{EVENTS}cancelled"})
JOURNAL = "journal.jsonl"
_EVENT_POLL_S = 0.1
_ENDS_WITHIN_S = 20.0
"""So long a canceled one is waited for: who proposes may think for minutes, and cannot be interrupted."""
_LONGEST_POLL_S = 10.0


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
        """Take the configuration, or the path of its file; no request is sent yet.

        Args:
            config: What is to be made better, on what.
            backend_url: The service; by default that of the deployment, or as the environment says.
            api_key: Its key; the same.
            task_app_api_key: Of a task app that is no deployment of the service.
            allow_http: Whether keys may go to another machine unencrypted.
            folder: Where one that is run from here keeps its journal, so that it can be resumed by another process.
            proposer_model: What one that is run from here asks for changes, where the configuration names no model.
            job_id: Of one that the service has already, to be looked at, resumed or canceled.
        """
        self.config = config if isinstance(config, PromptLearningConfig) else PromptLearningConfig.from_toml(config)
        self._backend_url, self._api_key, self._task_app_api_key = backend_url, api_key, task_app_api_key
        self._allow_http, self._folder = allow_http, None if folder is None else Path(folder)
        self._proposer_model, self._earlier_id = proposer_model, job_id
        self._run: ServiceRun | LocalRun | None = None
        self._is_submitted = bool(job_id)

    @property
    def job_id(self) -> str | None:
        """None before it was submitted."""
        if not self._is_submitted:
            return None
        return self._earlier_id if self._run is None else self._run.job_id

    @property
    def is_of_service(self) -> bool:
        """Whether the service carries it out, so that it goes on without this process."""
        return isinstance(self._open_run(), ServiceRun)

    async def submit_async(self) -> str:
        """Check the task app, begin the job, and return its id; a second time it is the same one.

        Raises:
            ConfigError: the configuration is not whole, or names no task app.
            HarborError: the task app is not there, refuses the key or the seed; or the service refuses the job.
        """
        if self._is_submitted:
            return self._require_run().job_id
        if not self.config.gepa.evaluation.train_seeds:
            raise ConfigError("prompt_learning.gepa.evaluation: names no train_seeds; expected two or more")
        run = self._open_run()
        if isinstance(run, ServiceRun):
            task_app = self._task_app()
            await task_app.health()
            await task_app.task_info([self.config.seeds[0]])
        job_id = await run.submit()
        self._is_submitted = True
        return job_id

    async def poll_until_complete_async(
        self, progress: bool = False, timeout_s: float | None = None, interval_s: float = 1.0
    ) -> PromptLearningResult:
        """Return the result when the job has ended, however.

        Args:
            progress: Whether to show on standard error how far it is.
            timeout_s: How long that is waited for; None is for as long as it takes.
            interval_s: Between two looks, at first; later longer.

        Raises:
            HarborTimeoutError: it is not done in time, which is a `TimeoutError`; it goes on.
            HarborError: the service does not say.
        """
        run = self._require_run()

        def late(result: PromptLearningResult) -> str:
            return f"prompt optimization {run.job_id!r}: is {result.status!s} still"

        with job_progress("optimization", run.job_id, progress) as (advance, finish):
            result = await poll(run.look, late, advance, timeout_s, interval_s, _LONGEST_POLL_S)
            finish(str(result.status))
        return result

    async def status_async(self) -> PromptLearningResult:
        """Return how far it is."""
        return await self._require_run().look()

    async def resume_async(self) -> PromptLearningResult:
        """Go on with a job that failed, was canceled, or was lost with its process; what is paid is not paid again."""
        if not self._is_submitted and self._folder is not None:
            await self.submit_async()
            return await self._require_run().look()
        return await self._require_run().resume()

    async def cancel_async(self) -> PromptLearningResult:
        """End the job; prompts that were found stay. It is running still where who proposes takes long to answer."""
        return await self._require_run().cancel()

    async def results_async(self) -> Outcome:
        """Return all prompts that were found: where each comes from, and its reward by seed.

        Raises:
            ConfigError: it has not ended, or found nothing.
        """
        return await self._require_run().outcome()

    submit = blocking(submit_async)
    poll_until_complete = blocking(poll_until_complete_async)
    status = blocking(status_async)
    resume = blocking(resume_async)
    cancel = blocking(cancel_async)
    results = blocking(results_async)

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        """Yield what happens to the job, from its beginning to its last event."""
        async with aclosing(self._require_run().events()) as events:
            async for event in events:
                yield event

    def _require_run(self) -> "ServiceRun | LocalRun":
        if not self._is_submitted:
            raise ConfigError("prompt optimization: was not submitted; call submit() first")
        return self._open_run()

    def _open_run(self) -> "ServiceRun | LocalRun":
        if self._run is None:
            ref = self._deployment()
            if self._earlier_id or ref is not None:
                url = self._backend_url or (ref.backend_url if ref else None)
                key = self._api_key or (ref.api_key if ref else None)
                client = HarborClient(url, key, allow_http=self._allow_http)
                self._run = ServiceRun(client, self.config, ref.task_app_url if ref else "", self._earlier_id)
            else:
                self._run = LocalRun(
                    self.config, self._task_app(), self._folder, self._proposer_model, self._allow_http
                )
        return self._run

    def _deployment(self) -> HarborDeploymentRef | None:
        """Return the deployment that rollouts run on; None where they run on another task app."""
        config, url, key = self.config, self._backend_url, self._api_key
        app = config.task_app_config
        if app is not None and config.task_app_url:
            raise ConfigError("prompt_learning: has both task_app_url and task_app_config; set the one to None")
        if app is not None:
            ref = app.harbor if app.execution_backend == "harbor" else None
        else:
            ref = HarborDeploymentRef.of_url(config.task_app_url, key) if config.task_app_url else None
        if config.harbor is None:
            return ref
        deployment_id = config.harbor.deployment_id
        if app is None and not config.task_app_url:
            return HarborDeploymentRef(deployment_id, url, key)
        if ref is None or ref.deployment_id != deployment_id:
            raise ConfigError(
                f"prompt_learning.harbor.deployment_id: is {deployment_id!r}, and the task app is another one; name one"
            )
        return ref

    def _task_app(self) -> TaskAppClient:
        ref = self._deployment()
        app = self.config.task_app_config or (ref.task_app_url if ref else self.config.task_app_url)
        if not app:
            raise ConfigError(
                "prompt_learning: names no task app; expected task_app_url, task_app_config or harbor.deployment_id"
            )
        is_url_of_deployment = self.config.task_app_config is None and ref is not None
        key = self._api_key if is_url_of_deployment else self._task_app_api_key
        return create_task_app_client(app, key, self.config.gepa.rollout.timeout_s, allow_http=self._allow_http)


class _JobAnswer(Answer):
    job_id: str
    status: PromptLearningStatus = PromptLearningStatus.PENDING
    best_score: float | None = None
    mean_reward: float | None = None
    best_prompt: Any = None
    error: str | None = None
    num_completed: int = 0
    num_total: int = 0


def _result_of_answer(content: Any, title: str) -> PromptLearningResult:
    fields = read(_JobAnswer, content, title).model_dump()
    # a mean of 0.0 is a number, beside which the score is not looked at
    if fields["mean_reward"] is None:
        fields["mean_reward"] = fields["best_score"]
    return PromptLearningResult(**fields, raw=content)


class ServiceRun(ServiceJob[PromptLearningResult]):
    """The service runs it, on a deployment of its own."""

    def __init__(self, client: HarborClient, config: PromptLearningConfig, task_app_url: str, job_id: str = "") -> None:
        super().__init__(client, JOBS, _result_of_answer, "prompt optimization", job_id)
        self._config, self._url = config, task_app_url

    async def submit(self) -> str:
        body = {
            "algorithm": self._config.algorithm,
            "auto_start": True,
            "config_body": {"prompt_learning": self._config.body(self._url)},
        }
        return await self.begin(
            body, lambda content: read(_JobAnswer, content, "creation of a prompt optimization").job_id
        )

    async def resume(self) -> PromptLearningResult:
        return await self.request("POST", "/resume")

    async def outcome(self) -> Outcome:
        content = await self.ask("GET", "/results")
        outcome = content.get("outcome") if isinstance(content, dict) else None
        if outcome is None:
            raise ConfigError(f"prompt optimization {self.job_id!r}: found nothing yet; wait for its end")
        return Outcome.model_validate(outcome)

    def events(self) -> AsyncGenerator[ServerEvent, None]:
        path = f"{JOBS}/{self.job_id}/events/stream"
        return server_events(self.client, path, lambda event: event.kind in LAST)


class LocalRun:
    """It is run from here, in a thread; its journal is kept in a folder, if there is one."""

    def __init__(
        self,
        config: PromptLearningConfig,
        task_app: TaskAppClient,
        folder: Path | None = None,
        proposer_model: BlockingChatModel | None = None,
        allow_http: bool = False,
    ) -> None:
        self.job_id = ""
        self._config, self._task_app, self._folder = config, task_app, folder
        self._proposer_model, self._allow_http = proposer_model, allow_http
        self._memory = MemoryJournal()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._outcome: Outcome | None = None
        self._error = ""
        self._progress = 0, config.gepa.rollout.budget or 0
        self._events: list[ServerEvent] = []

    async def submit(self) -> str:
        if self._thread is None:
            check(self._config)
            # nothing is begun at a task app that is not there
            await self._task_app.health()
            await self._task_app.task_info(list(self._config.seeds[:1]))
            self._begin()
        return self.job_id

    async def look(self) -> PromptLearningResult:
        status, outcome = self._status(), self._outcome
        fields = outcome.result_fields() if outcome is not None else {}
        done, total = self._progress
        error = self._error or (outcome.remark if outcome is not None else "")
        return PromptLearningResult(
            self.job_id, status, error=error or None, num_completed=done, num_total=total, **fields
        )

    async def resume(self) -> PromptLearningResult:
        if self._status() is not PromptLearningStatus.RUNNING:
            self._stop, self._outcome, self._error = threading.Event(), None, ""
            self._begin()
        return await self.look()

    async def cancel(self) -> PromptLearningResult:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _ENDS_WITHIN_S)
        return await self.look()

    async def outcome(self) -> Outcome:
        if self._outcome is None:
            raise ConfigError(f"prompt optimization {self.job_id!r}: found nothing yet; wait for its end")
        return self._outcome

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        number = 0
        while True:
            while number < len(self._events):
                yield self._events[number]
                if self._events[number].kind in LAST:
                    return
                number += 1
            await asyncio.sleep(_EVENT_POLL_S)

    def _begin(self) -> None:
        journal: Journal = FileJournal(self._folder / JOURNAL) if self._folder is not None else self._memory
        earlier_id = next((str(line["id"]) for line in journal.lines() if line["kind"] == "optimisation"), "")
        self.job_id = self.job_id or earlier_id or f"prompts-{uuid4().hex}"
        self._events.clear()
        self._notify("created", {"job_id": self.job_id})
        self._thread = threading.Thread(target=self._main, args=(journal,), name=self.job_id, daemon=True)
        self._thread.start()

    def _main(self, journal: Journal) -> None:
        from graftline.prompts.proposers import open_proposer  # loads what asks models

        try:
            secrets = open_secrets(os.environ, Path.cwd())
            with (
                journal.lock() if isinstance(journal, FileJournal) else nullcontext(),
                open_proposer(self._config.gepa, secrets, self._proposer_model, self._allow_http) as proposer,
                watch_stop_file(self._folder, self._stop) if self._folder is not None else nullcontext(),
            ):
                self._outcome = optimize(
                    self._config, self._task_app, proposer, journal, self.job_id, self._stop, self._notify
                )
            self._error = self._outcome.error
        except GraftlineError as error:
            self._error = str(error)
        except Exception as error:
            # whoever waits is told, in whichever thread it broke
            self._error = f"the optimization broke ({type(error).__name__}: {error})"
        status = str(self._final_status())
        self._notify(status, {"status": status, "error": self._error or None})

    def _notify(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "progress":
            self._progress = data["num_completed"], data["num_total"]
            return
        self._events.append(ServerEvent(f"{EVENTS}{kind}", dict(data), str(len(self._events) + 1)))

    def _status(self) -> PromptLearningStatus:
        if self._thread is None:
            return PromptLearningStatus.PENDING
        if self._thread.is_alive() and not (self._events and self._events[-1].kind in LAST):
            return PromptLearningStatus.RUNNING
        return self._final_status()

    def _final_status(self) -> PromptLearningStatus:
        if self._stop.is_set() and (self._outcome is None or self._outcome.is_cancelled):
            return PromptLearningStatus.CANCELLED
        is_whole = self._outcome is not None and not self._error
        return PromptLearningStatus.SUCCEEDED if is_whole else PromptLearningStatus.FAILED
