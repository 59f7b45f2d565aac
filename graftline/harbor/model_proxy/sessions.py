"""Who may ask the proxy, and for how much: a session is one attempt at a rollout, with a key of its own.

What an attempt may use is in the settings; what all attempts of a job may use together is its budget. Both are looked at before
a call begins and while an answer comes, so that what is used beyond them is what was asked at the same moment.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from graftline.core.config import Config
from graftline.harbor.contract import FailureCause, SuccessStatus, counts
from graftline.harbor.executors.base import Execution
from graftline.harbor.model_proxy.calls import CallFile, ModelCall

CallEnd = Literal["answered", "failed", "ended"]
"""By the model; because of the server; or because of the client, or of what it asked."""
_ENDS_WITHIN_S = 5.0


class CallLimits(Config):
    """What the calls of one attempt may use; what is not given is not bounded."""

    max_usd: float | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_calls: int | None = Field(default=None, ge=1)


@dataclass(slots=True)
class JobSpending:
    """What all attempts of a job may use, and have used."""

    max_usd: float | None = None
    max_tokens: int | None = None
    usd: float = 0.0
    """Of attempts that have ended."""
    tokens: int = 0
    sessions: "set[ProxySession]" = field(default_factory=set)
    """Of attempts that go on."""

    def find_exhausted(self) -> str:
        """Return what is used up; empty where nothing is."""
        usd = self.usd + sum(session.usd for session in self.sessions)
        tokens = self.tokens + sum(session.tokens for session in self.sessions)
        return _find_spent("the job", usd, self.max_usd, tokens, self.max_tokens)


class ProxySession:
    """The calls of one attempt. Whoever runs the attempt opens and closes it; the event loop of the proxy does the rest."""

    def __init__(
        self, rollout_id: str, attempt: int, limits: CallLimits, job: JobSpending, path: Path, is_priced: bool
    ) -> None:
        self.rollout_id, self.attempt = rollout_id, attempt
        self.key = f"glp-{secrets.token_urlsafe(32)}"
        self.job = job
        self.end_rollout: Callable[[], None] = lambda: None
        """Called when the budget of the job is used up."""
        self._limits, self._file, self._is_priced = limits, CallFile(path), is_priced
        self.calls = self.began = 0
        self.requests = 0
        """That are answered at the moment."""
        self._is_answered = False
        self.usd, self.tokens = 0.0, 0
        """Of calls that have ended."""
        self.unanswered = ""
        """Why the last call got no answer of the model, where none did since."""
        self.refusal = ""
        """Why a call was refused, by the proxy or by the server, where none was answered yet."""
        self.lost = ""
        """Why a call could not be written down."""
        self.exhausted: Literal["", "rollout", "job"] = ""
        """Whose budget ended it."""
        self.exhausted_reason = ""
        self._cancels: set[Callable[[], None]] = set()
        self.is_closed, self._idle = False, threading.Event()
        self._idle.set()

    @contextmanager
    def end_with(self, cancel: Callable[[], None]) -> Iterator[bool]:
        """Have `cancel` called when the session is closed before the context ends; yields whether it is open still."""
        self._idle.clear()
        self._cancels.add(cancel)
        try:
            yield not self.is_closed
        finally:
            self._cancels.discard(cancel)
            if not self._cancels:
                self._idle.set()

    def begin(self) -> str:
        """Count a call that begins; return why it may not, empty where it may."""
        if reason := self.find_exhausted():
            return reason
        self.began += 1
        return ""

    def find_exhausted(self, tokens: int = 0) -> str:
        """Return which budget is used up, `tokens` of an answer that comes added; empty where none is."""
        limits = self._limits
        own = _find_spent("the rollout", self.usd, limits.max_usd, self.tokens + tokens, limits.max_tokens)
        if not own and not tokens and limits.max_calls is not None and self.began >= limits.max_calls:
            own = f"the rollout has used {self.began} calls, of {limits.max_calls}"
        reason = own or self.job.find_exhausted()
        if reason and not self.exhausted:
            self.exhausted, self.exhausted_reason = "rollout" if own else "job", reason
            if not own:
                self.end_rollout()
        return reason

    def end(self, call: ModelCall, end: CallEnd) -> None:
        """Write down a call that has ended."""
        self.calls += 1
        if end != "ended":
            self.unanswered = call.fault if end == "failed" else ""
        if end == "answered":
            self._is_answered, self.refusal = True, ""
        self.tokens += call.prompt_tokens + call.completion_tokens
        self.usd += call.cost_usd or 0.0
        try:
            self._file.add(call.model_copy(update={"number": self.calls}))
        except OSError as error:
            self.lost = f"what its model was asked cannot be written down ({error.strerror}); see to the disk"

    def refuse(self, reason: str) -> None:
        """Remember why a call was refused."""
        if not self._is_answered:
            self.refusal = reason

    def close(self) -> None:
        """End the calls that go on, and wait until they are written down."""
        self.is_closed = True
        for cancel in [*self._cancels]:
            cancel()
        self._idle.wait(_ENDS_WITHIN_S)
        self._file.close()

    def judge(self, execution: Execution) -> Execution:
        """Return how the attempt ended, with what the proxy knows of it.

        What a model cost is what was counted here. An attempt whose last call got no answer of the model says nothing of the
        agent, whatever was made of it; nor does one that got none at all, or that the budget of its job ended.
        """
        if self.calls or execution.tokens is None:
            execution = replace(execution, tokens=self.tokens)
        if self.calls or execution.cost_usd is None:
            execution = replace(execution, cost_usd=self.usd if self._is_priced or not self.calls else None)
        if self.exhausted == "job":
            return _without_reward(execution, FailureCause.CANCELLED, f"its budget is used up: {self.exhausted_reason}")
        if execution.failure_cause is FailureCause.CANCELLED:
            return execution
        if self.exhausted == "rollout":
            if not counts(execution.reward, execution.failure_cause) and execution.failure_cause is not None:
                return execution
            error = execution.error or self.exhausted_reason
            cause = FailureCause.AGENT_EXHAUSTED_BUDGET
            return replace(execution, success_status=SuccessStatus.TIMEOUT, failure_cause=cause, error=error)
        if self.lost:
            return _without_reward(execution, FailureCause.HARBOR_FAILED, self.lost)
        if self.unanswered:
            return _without_reward(execution, FailureCause.MODEL_PROVIDER_FAILED, f"the model: {self.unanswered}")
        if self.refusal:
            # asked again, it would end the same
            return _without_reward(execution, FailureCause.UNCLASSIFIED, f"no model has answered: {self.refusal}")
        return execution


class Sessions:
    """The sessions of a proxy, by key; opened and closed by any thread."""

    def __init__(self, folder: Path, limits: CallLimits, is_priced: bool) -> None:
        self._folder, self._limits, self._is_priced = folder, limits, is_priced
        self._by_key: dict[str, ProxySession] = {}
        self._jobs: dict[str, JobSpending] = {}
        self._lock = threading.Lock()

    def open(
        self, rollout_id: str, attempt: int, job_id: str | None = None, budget: Mapping[str, Any] = {}
    ) -> ProxySession:
        """Return a new session; `budget` is that of its job: `max_usd`, `max_tokens`, and what is spent, `usd`, `tokens`."""
        with self._lock:
            job = self._jobs.setdefault(job_id, JobSpending()) if job_id is not None else JobSpending()
            job.max_usd, job.max_tokens = budget.get("max_usd"), budget.get("max_tokens")
            # what other processes have spent is known by their rows alone
            job.usd, job.tokens = max(job.usd, budget.get("usd") or 0.0), max(job.tokens, budget.get("tokens") or 0)
            path = self.path(rollout_id, attempt)
            session = ProxySession(rollout_id, attempt, self._limits, job, path, self._is_priced)
            # another set, for the event loop of the proxy goes over it
            job.sessions = job.sessions | {session}
            self._by_key[session.key] = session
        return session

    def close(self, session: ProxySession) -> None:
        """End a session: its key opens nothing more, and the calls that go on are ended."""
        self._by_key.pop(session.key, None)
        session.close()
        with self._lock:
            job = session.job
            job.sessions = job.sessions - {session}
            job.usd, job.tokens = job.usd + session.usd, job.tokens + session.tokens

    def find(self, key: str) -> ProxySession | None:
        """Return the session that a key opens."""
        return self._by_key.get(key)

    def path(self, rollout_id: str, attempt: int) -> Path:
        """Return where the calls of an attempt are written."""
        return self._folder / rollout_id / f"{attempt}.jsonl"


def _find_spent(owner: str, usd: float, max_usd: float | None, tokens: int, max_tokens: int | None) -> str:
    if max_usd is not None and usd >= max_usd:
        return f"{owner} has used {usd:.4f} USD, of {max_usd:g}"
    if max_tokens is not None and tokens >= max_tokens:
        return f"{owner} has used {tokens} tokens, of {max_tokens}"
    return ""


def _without_reward(execution: Execution, cause: FailureCause, error: str) -> Execution:
    details = execution.details
    if execution.reward is not None:
        details = {**details, "reported_reward": execution.reward}
    status = SuccessStatus.NETWORK_ERROR if cause is FailureCause.MODEL_PROVIDER_FAILED else SuccessStatus.FAILURE
    error = "; ".join(filter(None, (error, execution.error)))
    return replace(execution, reward=None, failure_cause=cause, success_status=status, error=error, details=details)
