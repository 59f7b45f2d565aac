"""The two ways to an optimization: the service runs it on one of its deployments, or it is run from here on any task app."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from graftline.core.errors import ConfigError, GraftlineError
from graftline.core.secrets import open_secrets
from graftline.harbor.answers import Answer, read
from graftline.harbor.client import HarborClient
from graftline.harbor.server_events import ServerEvent, server_events
from graftline.harbor.task_app_client import TaskAppClient
from graftline.llm.blocking import BlockingChatModel
from graftline.prompts.journal import FileJournal, Journal, MemoryJournal
from graftline.prompts.optimize import check, optimize
from graftline.prompts.outcome import Outcome
from graftline.prompts.settings import PromptLearningConfig
from graftline.prompts.stop_file import stopped_by

JOBS = "/api/prompt-learning/online/jobs"
EVENTS = "prompt_learning."
"""What the kinds of its events begin with: `created`, `running`, `generation.started`, `candidate.evaluated`,
`candidate.refused`, `generation.completed`, `frontier.updated`, and one of `succeeded`, `failed` and `cancelled` as the last."""
LAST = frozenset({f"{EVENTS}succeeded", f"{EVENTS}failed", f"{EVENTS}cancelled"})
JOURNAL = "journal.jsonl"
_LOOKS_EVERY_S = 0.1
_ENDS_WITHIN_S = 20.0
"""So long a cancelled one is waited for: who proposes may think for minutes, and cannot be interrupted."""


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
    """Of the best prompt, over the seeds that all of them are compared on."""
    mean_reward: float | None = None
    """Of the best prompt, over the seeds that it was judged on; its score where the service says no more."""
    best_prompt: Any = None
    """Text by part."""
    error: str | None = None
    """Why it failed; of one that succeeded, why its best prompt was not judged on seeds that had no part in the choice."""
    num_completed: int = 0
    """Rollouts so far."""
    num_total: int = 0
    """Rollouts at most; 0 where nothing bounds them."""
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


class Run(Protocol):
    """One optimization on its way."""

    job_id: str
    """Empty before it was begun."""

    async def submit(self) -> str:
        """Begin it, and return its id; a second time it is the same one."""

    async def look(self) -> PromptLearningResult:
        """Return how far it is."""

    async def resume(self) -> PromptLearningResult:
        """Go on with one that failed or was cancelled; what is paid is not paid again."""

    async def cancel(self) -> PromptLearningResult:
        """End it, as soon as who is asked for a change answers; what was found stays."""

    async def outcome(self) -> Outcome:
        """Return all prompts that were found, once it has ended."""

    def events(self) -> AsyncGenerator[ServerEvent, None]:
        """Yield what happens, from its beginning to its last event."""


class _Job(Answer):
    job_id: str
    status: PromptLearningStatus = PromptLearningStatus.PENDING
    best_score: float | None = None
    mean_reward: float | None = None
    best_prompt: Any = None
    error: str | None = None
    num_completed: int = 0
    num_total: int = 0


class ServiceRun:
    """The service runs it, on a deployment of its own."""

    def __init__(self, client: HarborClient, config: PromptLearningConfig, task_app_url: str, job_id: str = "") -> None:
        self.job_id = job_id
        self._client, self._config, self._url, self._key = client, config, task_app_url, uuid4().hex

    async def submit(self) -> str:
        if not self.job_id:
            body = {
                "algorithm": self._config.algorithm,
                "auto_start": True,
                "config_body": {"prompt_learning": self._config.body(self._url)},
                "idempotency_key": self._key,
            }
            content = await self._client.request_async("POST", JOBS, body, idempotency_key=self._key)
            self.job_id = read(_Job, content, "creation of a prompt optimization").job_id
        return self.job_id

    async def look(self) -> PromptLearningResult:
        return await self._asked("GET", "")

    async def resume(self) -> PromptLearningResult:
        return await self._asked("POST", "/resume")

    async def cancel(self) -> PromptLearningResult:
        return await self._asked("POST", "/cancel")

    async def outcome(self) -> Outcome:
        content = await self._client.request_async("GET", f"{JOBS}/{self.job_id}/results")
        found = content.get("outcome") if isinstance(content, dict) else None
        if found is None:
            raise ConfigError(f"prompt optimization {self.job_id!r}: found nothing yet; wait for its end")
        return Outcome.model_validate(found)

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        path = f"{JOBS}/{self.job_id}/events/stream"
        async with aclosing(server_events(self._client, path, lambda event: event.kind in LAST)) as found:
            async for event in found:
                yield event

    async def _asked(self, method: str, what: str) -> PromptLearningResult:
        key = f"{self._key}{what}-{uuid4().hex}" if method == "POST" else ""
        content = await self._client.request_async(method, f"{JOBS}/{self.job_id}{what}", idempotency_key=key)
        found = read(_Job, content, f"prompt optimization {self.job_id!r}")
        # of a mean that is 0.0 the score is not asked
        mean = found.best_score if found.mean_reward is None else found.mean_reward
        return PromptLearningResult(
            found.job_id,
            found.status,
            found.best_score,
            mean,
            found.best_prompt,
            found.error,
            found.num_completed,
            found.num_total,
            content,
        )


class LocalRun:
    """It is run from here, in a thread; what it was told is kept in a folder, if one is given."""

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
        return self._result(self._status())

    async def resume(self) -> PromptLearningResult:
        if self._status() is PromptLearningStatus.RUNNING:
            return await self.look()
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
            await asyncio.sleep(_LOOKS_EVERY_S)

    def _begin(self) -> None:
        journal: Journal = FileJournal(self._folder / JOURNAL) if self._folder is not None else self._memory
        kept = next((str(line["id"]) for line in journal.lines() if line["kind"] == "optimisation"), "")
        self.job_id = self.job_id or kept or f"prompts-{uuid4().hex}"
        self._events.clear()
        self._tell("created", {"job_id": self.job_id})
        self._thread = threading.Thread(target=self._main, args=(journal,), name=self.job_id, daemon=True)
        self._thread.start()

    def _main(self, journal: Journal) -> None:
        from graftline.prompts.open_proposer import open_proposer  # loads what asks models

        root = Path.cwd()
        try:
            secrets = open_secrets(os.environ, root)
            with (
                journal.held() if isinstance(journal, FileJournal) else nullcontext(),
                open_proposer(self._config.gepa, secrets, self._proposer_model, self._allow_http) as proposer,
                stopped_by(self._folder, self._stop) if self._folder is not None else nullcontext(),
            ):
                self._outcome = optimize(
                    self._config, self._task_app, proposer, journal, self.job_id, self._stop, self._tell
                )
            self._error = self._outcome.error
        except GraftlineError as error:
            self._error = str(error)
        except Exception as error:
            # whoever waits is told, in whichever thread it broke
            self._error = f"the optimization broke ({type(error).__name__}: {error})"
        last = self._ended()
        self._tell(str(last), {"status": str(last), "error": self._error or None})

    def _tell(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "progress":
            self._progress = data["num_completed"], data["num_total"]
            return
        self._events.append(ServerEvent(f"{EVENTS}{kind}", dict(data), str(len(self._events) + 1)))

    def _status(self) -> PromptLearningStatus:
        if self._thread is None:
            return PromptLearningStatus.PENDING
        if self._thread.is_alive() and not (self._events and self._events[-1].kind in LAST):
            return PromptLearningStatus.RUNNING
        return self._ended()

    def _ended(self) -> PromptLearningStatus:
        if self._stop.is_set() and (self._outcome is None or self._outcome.is_cancelled):
            return PromptLearningStatus.CANCELLED
        is_whole = self._outcome is not None and not self._error
        return PromptLearningStatus.SUCCEEDED if is_whole else PromptLearningStatus.FAILED

    def _result(self, status: PromptLearningStatus) -> PromptLearningResult:
        found = self._outcome
        fields = result_fields(found) if found is not None else {}
        done, total = self._progress
        said = self._error or (remark_of(found) if found is not None else "")
        return PromptLearningResult(
            self.job_id, status, error=said or None, num_completed=done, num_total=total, **fields
        )


def remark_of(outcome: Outcome) -> str:
    """Return what has to be said of an outcome that is one; empty where there is nothing."""
    if not outcome.not_judged or outcome.error or outcome.is_cancelled:
        return ""
    return f"the best prompt was not judged on seeds that had no part in its choice: {outcome.not_judged}"


def result_fields(outcome: Outcome) -> dict[str, Any]:
    """Return what a result says of an outcome."""
    best = outcome.best_prompt
    if best is None:
        return {}
    return {"best_score": outcome.front_score, "mean_reward": outcome.best_score, "best_prompt": best.texts}
