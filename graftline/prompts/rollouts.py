"""Rollouts of many prompts at many seeds, all at once: each asked for once, kept when it has ended, and never asked for again.

A rollout that the machine failed is tried again, then left out. It has no reward, is kept as nothing, and is no 0. A batch of
which nothing could be told is an error: a task app that is out of order must not use up the budget.
"""

import asyncio
import json
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graftline.core.errors import GraftlineError, HarborError
from graftline.core.hashing import digest
from graftline.evals.budget import EvalBudget, Spending
from graftline.harbor.client import HarborAPIError
from graftline.harbor.contract import (
    TRIED_AGAIN,
    FailureCause,
    RolloutEnv,
    RolloutPolicy,
    RolloutRequest,
    RolloutResponse,
    RolloutSafety,
    SuccessStatus,
)
from graftline.harbor.execution import is_refusal
from graftline.harbor.task_app_client import TaskAppClient
from graftline.prompts.candidates import Candidate, digest_of, policy_prompt
from graftline.prompts.journal import Journal
from graftline.prompts.proposers import Proposal
from graftline.prompts.settings import PromptLearningConfig

logger = logging.getLogger(__name__)

Pair = tuple[str, int]
"""Digest of a prompt, and a seed."""
_RETRIED_CAUSES = TRIED_AGAIN | {FailureCause.CANCELLED}
"""Whoever canceled an optimization that is resumed has canceled its rollouts too."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_MOST_LOST_IN_A_ROW = 24
_POLL_S = 0.05
_MOST_CHARACTERS = 2000
"""Of a text of a transcript: what is read in one go."""
_DETAILS = ("feedback", "level", "ending", "failure", "over_in", "over_out", "format_ok", "steps", "all_general")
"""Of our own environment, in the order in which they are shown."""
_TIMES = ("agent_s", "verify_s")


class BudgetSpentError(Exception):
    """The remaining budget is not enough for what was asked."""


class StoppedError(Exception):
    """Whoever began it asks it to end."""


@dataclass(frozen=True, slots=True)
class FinishedRollout:
    """What came of one prompt at one seed."""

    seed: int
    reward: float | None
    """None where nothing is known."""
    cause: FailureCause | None = None
    error: str = ""
    transcript: Mapping[str, Any] = field(default_factory=dict)
    """What it was about and what was answered (`transcript`)."""


class Rollouts:
    """Asks one task app; what ended is in the journal. Of one thread."""

    def __init__(
        self,
        task_app: TaskAppClient,
        config: PromptLearningConfig,
        journal: Journal,
        run_id: str,
        stop: threading.Event,
        on_finished: Callable[[], None] = lambda: None,
    ) -> None:
        self._task_app, self._config, self._journal, self._run_id, self._stop = task_app, config, journal, run_id, stop
        self._on_finished = on_finished
        self._runner = asyncio.Runner()
        token = config.gepa.token
        self.budget = config.gepa.rollout.budget
        # rollouts are counted here: proposals are paid from the same money, and are none
        self._spending = Spending(EvalBudget(None, token.max_spend_usd, token.max_spend_tokens))
        self._finished: dict[Pair, FinishedRollout] = {}
        self._tries: dict[Pair, int] = {}
        self._omitted: dict[str, list[set[Pair]]] = {}
        """By batch, for each time that it was asked."""
        self._lost_in_a_row = 0
        self._open_first_tries = 0
        """Of the batch, those that are still to come."""
        self._tasks: dict[int, Mapping[str, Any]] = {}
        self.count = 0
        """Rollouts so far, each try for itself."""
        self.usd, self.tokens = 0.0, 0
        """As far as somebody said."""
        self._runner.run(self._replay(journal.lines()))

    def close(self) -> None:
        """Let go of the event loop."""
        self._runner.close()

    def prepare(self, seeds: Sequence[int]) -> None:
        """See that the task app is there and knows the seeds.

        Raises:
            HarborError: it is not, or does not.
        """
        self._runner.run(self._prepare(seeds))

    def run(self, pairs: Sequence[tuple[Candidate, int]], reserve: int = 0) -> dict[Pair, FinishedRollout]:
        """Return what came of all pairs, asked for at the same time; a pair that nothing is known of is not among them.

        Args:
            pairs: A pair that is there twice is asked for once.
            reserve: Rollouts that have to remain of the budget afterwards.

        Raises:
            BudgetSpentError: it does not reach.
            StoppedError: `stop` was set.
            HarborError: the task app refuses, or can tell of none of them.
        """
        batch = {(digest_of(candidate), seed): candidate for candidate, seed in pairs}
        key = digest(sorted([*pair] for pair in batch))
        # what an earlier process went on without is omitted again, in the same turn, or this one would go another way
        earlier = self._omitted.get(key)
        omitted = earlier.pop(0) if earlier else self._run_batch(key, batch, reserve)
        return {pair: self._finished[pair] for pair in batch if pair in self._finished and pair not in omitted}

    def pay_for(self, propose: Callable[[], Proposal]) -> Proposal:
        """Return what `propose` returns, which is paid from the same budget of money and tokens.

        Raises:
            BudgetSpentError: it does not reach.
        """
        if refusal := self._runner.run(self._spending.reserve()):
            raise BudgetSpentError(refusal)
        proposal: Proposal | None = None
        try:
            proposal = propose()
        finally:
            # of one that failed nobody knows what it used; it is the model's failure, and no reason to end
            usd, tokens = (proposal.usd, proposal.tokens) if proposal is not None else (None, None)
            self._runner.run(self._settle(usd, tokens, is_lost=proposal is None))
        return proposal

    @property
    def remaining(self) -> int | None:
        """How many rollouts may be asked for still; None is without bound."""
        return None if self.budget is None else max(0, self.budget - self.count)

    def _run_batch(self, key: str, batch: Mapping[Pair, Candidate], reserve: int) -> set[Pair]:
        fresh = {pair: candidate for pair, candidate in batch.items() if pair not in self._finished}
        if self.remaining is not None and fresh and len(fresh) + reserve > self.remaining:
            reserved = f", and {reserve} are kept for the validation" if reserve else ""
            raise BudgetSpentError(
                f"rollout.budget of {self.budget}: {self.count} were run, the next step takes {len(fresh)}{reserved}"
            )
        finished = self._runner.run(self._run_all(fresh, reserve)) if fresh else {}
        lost = {pair for pair, rollout in finished.items() if rollout.reward is None}
        failures = [finished[pair] for pair in lost if finished[pair].cause in _RETRIED_CAUSES]
        is_all_lost = len(failures) == len(finished)
        self._lost_in_a_row = self._lost_in_a_row + len(failures) if is_all_lost else 0
        if failures and ((is_all_lost and len(finished) > 1) or self._lost_in_a_row >= _MOST_LOST_IN_A_ROW):
            first = failures[0]
            raise HarborError(
                f"task app: nothing could be told of any of {len(finished)} rollouts; seed {first.seed}: {first.cause}"
                f" ({first.error or 'it does not say why'}); see to it, and resume"
            )
        self._journal.append({"kind": "batch", "key": key, "left_out": sorted([*pair] for pair in lost)})
        return lost

    async def _replay(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            if line["kind"] == "batch":
                omitted = {(candidate, seed) for candidate, seed in line["left_out"]}
                self._omitted.setdefault(line["key"], []).append(omitted)
            if line["kind"] not in ("rollout", "proposal"):
                continue
            is_lost = False
            if line["kind"] == "rollout":
                pair = line["candidate"], line["seed"]
                self._tries[pair], self.count = line["number"], self.count + 1
                is_lost = line["reward"] is None
                if not is_lost:
                    self._finished[pair] = FinishedRollout(line["seed"], line["reward"], transcript=line["said"])
            await self._spending.reserve()
            await self._settle(line["usd"], line["tokens"], is_lost)

    async def _settle(self, usd: float | None, tokens: int | None, is_lost: bool) -> None:
        self.usd, self.tokens = self.usd + (usd or 0.0), self.tokens + (tokens or 0)
        await self._spending.settle(usd, tokens, is_lost)

    async def _prepare(self, seeds: Sequence[int]) -> None:
        await self._task_app.health()
        infos = await self._task_app.task_info(seeds)
        self._tasks = {seed: info.model_dump(mode="json") for seed, info in zip(seeds, infos, strict=True)}

    async def _run_all(self, fresh: Mapping[Pair, Candidate], reserve: int) -> dict[Pair, FinishedRollout]:
        slots = asyncio.Semaphore(self._config.gepa.rollout.max_concurrent)
        self._open_first_tries = len(fresh)

        async def run(pair: Pair, candidate: Candidate) -> FinishedRollout | str:
            async with slots:
                return await self._run_pair(pair, candidate, reserve)

        tasks = [asyncio.ensure_future(run(pair, candidate)) for pair, candidate in fresh.items()]
        everything, watcher = asyncio.gather(*tasks), asyncio.ensure_future(self._watch())
        futures: list[asyncio.Future[Any]] = [everything, watcher]
        try:
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                raise StoppedError
            results = dict(zip(fresh, await everything, strict=True))
        finally:
            for task in (watcher, *tasks):
                task.cancel()
            # what was begun is told to end, and is waited for
            await asyncio.gather(watcher, everything, *tasks, return_exceptions=True)
        for result in results.values():
            # what the other pairs used is paid, and kept
            if isinstance(result, str):
                raise BudgetSpentError(result)
        return {pair: result for pair, result in results.items() if not isinstance(result, str)}

    async def _watch(self) -> None:
        while not self._stop.is_set():
            await asyncio.sleep(_POLL_S)

    async def _run_pair(self, pair: Pair, candidate: Candidate, reserve: int) -> FinishedRollout | str:
        """Try one until it says something, or has failed as often as may be; return why it may not begin, where it may not."""
        attempts = self._config.gepa.rollout.attempts
        for attempt in range(1, attempts + 1):
            if refusal := await self._spending.reserve():
                return refusal
            if attempt == 1:
                self._open_first_tries -= 1
            elif self.remaining is not None and self.remaining <= reserve + self._open_first_tries:
                # what is kept for other rollouts is not for another try
                await self._spending.settle(0.0, 0, is_lost=True)
                break
            self.count += 1
            number = self._tries[pair] = self._tries.get(pair, 0) + 1
            rollout: FinishedRollout | None = None
            usd, tokens = None, None
            try:
                response = await self._ask(self._request(pair, number, candidate))
                usd, tokens = response.cost_and_tokens
                rollout = self._read(pair[1], response)
            finally:
                # what a machine failed does not say what it used, and is no reason to end
                await self._settle(usd, tokens, is_lost=rollout is None or rollout.reward is None)
            self._note(pair, number, rollout, usd, tokens)
            if rollout.reward is not None or rollout.cause not in _RETRIED_CAUSES or attempt == attempts:
                break
            logger.info("seed %d: %s (%s); it is tried again", pair[1], rollout.cause, rollout.error)
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 4 ** (attempt - 1))
            await asyncio.sleep(pause_s * (0.5 + random.random()))
        assert rollout is not None  # the first try has begun
        self._on_finished()
        return rollout

    async def _ask(self, request: RolloutRequest) -> RolloutResponse:
        try:
            return await self._task_app.rollout(request)
        except GraftlineError as error:
            if isinstance(error, HarborAPIError) and is_refusal(error):
                raise
            return RolloutResponse.without_reward(request.trace_correlation_id, SuccessStatus.NETWORK_ERROR, str(error))

    def _request(self, pair: Pair, number: int, candidate: Candidate) -> RolloutRequest:
        config = self._config
        env_name = config.gepa.env_name or config.env_name or config.task_app_id
        return RolloutRequest(
            # the same of the same try after whatever broke off: a service that ran it has its answer still
            trace_correlation_id=f"{self._run_id}-{pair[0][:16]}-s{pair[1]}-{number}",
            env=RolloutEnv(env_name=env_name, config={**config.env_config, **config.gepa.env_config}, seed=pair[1]),
            policy=RolloutPolicy(
                policy_name=config.policy.policy_name, config={**policy_of(config), "prompt": policy_prompt(candidate)}
            ),
            safety=RolloutSafety(max_time_s=config.gepa.rollout.timeout_s),
        )

    def _read(self, seed: int, response: RolloutResponse) -> FinishedRollout:
        reward = response.reward_info.outcome_reward if response.reward_valid else None
        error = "" if reward is not None else (response.status_detail or "")
        return FinishedRollout(
            seed, reward, response.failure_cause, error, transcript(self._tasks.get(seed, {}), response)
        )

    def _note(self, pair: Pair, number: int, rollout: FinishedRollout, usd: float | None, tokens: int | None) -> None:
        self._journal.append(
            {
                "kind": "rollout",
                "candidate": pair[0],
                "seed": pair[1],
                "number": number,
                "reward": rollout.reward,
                "cause": rollout.cause,
                "error": rollout.error,
                "usd": usd,
                "tokens": tokens,
                "said": dict(rollout.transcript) if rollout.reward is not None else {},
            }
        )
        if rollout.reward is not None:
            self._finished[pair] = rollout


def policy_of(config: PromptLearningConfig) -> dict[str, Any]:
    """Return `policy.config` of a rollout, but for the prompt: what the table `policy` sets, and its `config` as it is.

    The table has the names that files have (`max_completion_tokens`, `inference_url`), `config` those of the task app.
    """
    policy = config.policy
    sent = {"provider", "model", "inference_url", "temperature", "max_completion_tokens", "context_override"}
    # what is set to its default is set all the same
    named = policy.model_dump(mode="json", include=sent, exclude_none=True, exclude_unset=True)
    return {**named, **policy.config}


def transcript(task: Mapping[str, Any], response: RolloutResponse) -> dict[str, Any]:
    """Return what a rollout says to whoever proposes a change: `inputs`, `output`, `feedback`, `details`; all JSON.

    Task apps differ in how much they tell; what is not there is left out.

    Args:
        task: The `TaskInfo` of its seed, as JSON; empty where nobody said.
        response: How it ended.
    """
    details = {
        key: value for key, value in response.reward_info.details.items() if isinstance(value, str | int | float | bool)
    }
    feedback = details.pop("feedback", "") or response.status_detail or _describe(details)
    parts = {
        "inputs": _inputs(task),
        "output": _output(response),
        "feedback": _cut(str(feedback)),
        "details": {key: details[key] for key in (*_DETAILS, *sorted(set(details) - {*_DETAILS})) if key in details},
    }
    return {key: value for key, value in parts.items() if value}


def _inputs(task: Mapping[str, Any]) -> dict[str, str]:
    description, metadata = task.get("task") or {}, task.get("task_metadata") or {}
    inputs = {
        "instruction": description.get("description") or description.get("name"),
        "language": metadata.get("language"),
        "text": metadata.get("text"),
    }
    return {key: _cut(value) for key, value in inputs.items() if isinstance(value, str) and value}


def _output(response: RolloutResponse) -> str:
    """Return the last message of the agent, as it came; else its last artifact."""
    steps = (response.trace or {}).get("steps")
    for step in reversed(steps if isinstance(steps, list) else []):
        if isinstance(step, dict) and step.get("source") == "agent":
            message = step.get("message")
            if isinstance(message, str) and message:
                return _cut(message)
            if step.get("tool_calls"):
                calls = [call.get("arguments") for call in step["tool_calls"] if isinstance(call, dict)]
                return _cut(json.dumps(calls))
    texts = [artifact.content for artifact in response.artifact or [] if isinstance(artifact.content, str)]
    return _cut(texts[-1]) if texts else ""


def _describe(details: Mapping[str, Any]) -> str:
    """Return the details of a verifier as a sentence, where it has no words for them itself."""
    words = "; ".join(f"{key.replace('_', ' ')} is {details[key]}" for key in sorted(details) if key not in _TIMES)
    return f"The verifier says: {words}." if words else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
