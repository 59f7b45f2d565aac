"""Rollouts of many prompts at many seeds, all at once: each asked for once, kept when it has ended, and never asked for again.

What the machine failed is tried again, then left out. It has no reward, is kept as nothing, and is no 0. A batch in which
nothing could be told is an error: a task app that is out of order must not use up the budget.
"""

import asyncio
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
    RewardInfo,
    RolloutEnv,
    RolloutPolicy,
    RolloutRequest,
    RolloutResponse,
    RolloutSafety,
    SuccessStatus,
    reward_of,
)
from graftline.harbor.execution import is_refusal
from graftline.harbor.task_app_client import TaskAppClient
from graftline.prompts.candidates import Candidate, digest_of, policy_prompt
from graftline.prompts.journal import Journal
from graftline.prompts.proposals import Proposal
from graftline.prompts.settings import PromptLearningConfig
from graftline.prompts.transcript import transcript

logger = logging.getLogger(__name__)

Pair = tuple[str, int]
"""Digest of a prompt, and a seed."""
_TRIED_AGAIN = TRIED_AGAIN | {FailureCause.CANCELLED}
"""Of a resumed optimization, whoever cancelled it has cancelled its rollouts too."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_MOST_LOST_IN_A_ROW = 24
_LOOKS_EVERY_S = 0.05


class BudgetSpentError(Exception):
    """What is left of the budget is not enough for what was asked."""


class StoppedError(Exception):
    """Whoever began it wants it to end."""


@dataclass(frozen=True, slots=True)
class EndedRollout:
    """What came of one prompt at one seed."""

    seed: int
    reward: float | None
    """None where nothing is known."""
    cause: FailureCause | None = None
    error: str = ""
    said: Mapping[str, Any] = field(default_factory=dict)
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
        on_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._task_app, self._config, self._journal, self._run_id, self._stop = task_app, config, journal, run_id, stop
        self._on_ended = on_ended
        self._runner = asyncio.Runner()
        token = config.gepa.token
        self.budget = config.gepa.rollout.budget
        # rollouts are counted here: proposals are paid from the same money, and are none
        self._spending = Spending(EvalBudget(None, token.max_spend_usd, token.max_spend_tokens))
        self._known: dict[Pair, EndedRollout] = {}
        self._tries: dict[Pair, int] = {}
        self._left_out: dict[str, list[set[Pair]]] = {}
        """By batch, for each time that it was asked."""
        self._lost_in_a_row = 0
        self._first_tries = 0
        """Of the batch, those that are still to come."""
        self._texts: dict[int, Mapping[str, Any]] = {}
        self.asked = 0
        """Rollouts so far, each try for itself."""
        self.usd, self.tokens = 0.0, 0
        """As far as somebody said."""
        self._runner.run(self._read(journal.lines()))

    def close(self) -> None:
        """Let go of the event loop."""
        self._runner.close()

    def prepare(self, seeds: Sequence[int]) -> None:
        """See that the task app is there and knows the seeds.

        Raises:
            HarborError: it is not, or does not.
        """
        self._runner.run(self._prepare(seeds))

    def ended(self, pairs: Sequence[tuple[Candidate, int]], reserve: int = 0) -> dict[Pair, EndedRollout]:
        """Return what came of all pairs, asked for at the same time; one that is not known is not among them.

        Args:
            pairs: A pair that is there twice is asked for once.
            reserve: Rollouts that have to be left of the budget afterwards.

        Raises:
            BudgetSpentError: it does not reach.
            StoppedError: `stop` was set.
            HarborError: the task app refuses, or can tell of none of them.
        """
        wanted = {(digest_of(candidate), seed): candidate for candidate, seed in pairs}
        key = digest(sorted([*pair] for pair in wanted))
        # what an earlier process went on without is left out again, in the same turn, or this one would go another way
        kept = self._left_out.get(key)
        left_out = kept.pop(0) if kept else self._run_batch(key, wanted, reserve)
        return {pair: self._known[pair] for pair in wanted if pair in self._known and pair not in left_out}

    def proposed(self, propose: Callable[[], Proposal]) -> Proposal:
        """Return what `propose` returns, which is paid from the same budget of money and tokens.

        Raises:
            BudgetSpentError: it does not reach.
        """
        if refusal := self._runner.run(self._spending.reserve()):
            raise BudgetSpentError(refusal)
        made: Proposal | None = None
        try:
            made = propose()
        finally:
            # of one that failed nobody knows what it used; it is the model's failure, and no reason to end
            usd, tokens = (made.usd, made.tokens) if made is not None else (None, None)
            self._runner.run(self._settle(usd, tokens, is_lost=made is None))
        return made

    @property
    def left(self) -> int | None:
        """How many rollouts may be asked for still; None is without bound."""
        return None if self.budget is None else max(0, self.budget - self.asked)

    def _run_batch(self, key: str, wanted: Mapping[Pair, Candidate], reserve: int) -> set[Pair]:
        fresh = {pair: candidate for pair, candidate in wanted.items() if pair not in self._known}
        if self.left is not None and fresh and len(fresh) + reserve > self.left:
            kept = f", and {reserve} are kept for the validation" if reserve else ""
            raise BudgetSpentError(
                f"rollout.budget of {self.budget}: {self.asked} were run, the next step takes {len(fresh)}{kept}"
            )
        found = self._runner.run(self._all(fresh, reserve)) if fresh else {}
        lost = {pair for pair, rollout in found.items() if rollout.reward is None}
        self._see_to_losses(found, lost)
        self._journal.append({"kind": "batch", "key": key, "left_out": sorted([*pair] for pair in lost)})
        return lost

    def _see_to_losses(self, found: Mapping[Pair, EndedRollout], lost: set[Pair]) -> None:
        of_machine = [found[pair] for pair in lost if found[pair].cause in _TRIED_AGAIN]
        self._lost_in_a_row = self._lost_in_a_row + len(of_machine) if len(of_machine) == len(found) else 0
        is_broken = len(of_machine) == len(found) > 1 or self._lost_in_a_row >= _MOST_LOST_IN_A_ROW
        if of_machine and is_broken:
            first = of_machine[0]
            raise HarborError(
                f"task app: nothing could be told of any of {len(found)} rollouts; seed {first.seed}: {first.cause}"
                f" ({first.error or 'it does not say why'}); see to it, and resume"
            )

    async def _read(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            match line["kind"]:
                case "rollout":
                    pair = line["candidate"], line["seed"]
                    self._tries[pair], self.asked = line["number"], self.asked + 1
                    if line["reward"] is not None:
                        self._known[pair] = EndedRollout(line["seed"], line["reward"], said=line["said"])
                case "batch":
                    lost = {(candidate, seed) for candidate, seed in line["left_out"]}
                    self._left_out.setdefault(line["key"], []).append(lost)
                    continue
                case "proposal":
                    pass
                case _:
                    continue
            await self._spending.reserve()
            is_lost = line["kind"] == "rollout" and line["reward"] is None
            await self._settle(line["usd"], line["tokens"], is_lost)

    async def _settle(self, usd: float | None, tokens: int | None, is_lost: bool) -> None:
        self.usd, self.tokens = self.usd + (usd or 0.0), self.tokens + (tokens or 0)
        await self._spending.settle(usd, tokens, is_lost)

    async def _prepare(self, seeds: Sequence[int]) -> None:
        await self._task_app.health()
        infos = await self._task_app.task_info(seeds)
        self._texts = {seed: info.model_dump(mode="json") for seed, info in zip(seeds, infos, strict=True)}

    async def _all(self, fresh: Mapping[Pair, Candidate], reserve: int) -> dict[Pair, EndedRollout]:
        places = asyncio.Semaphore(self._config.gepa.rollout.max_concurrent)
        self._first_tries = len(fresh)

        async def one(pair: Pair, candidate: Candidate) -> EndedRollout | str:
            async with places:
                return await self._one(pair, candidate, reserve)

        tasks = [asyncio.ensure_future(one(pair, candidate)) for pair, candidate in fresh.items()]
        everything, watcher = asyncio.gather(*tasks), asyncio.ensure_future(self._watch())
        waited: list[asyncio.Future[Any]] = [everything, watcher]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                raise StoppedError
            found = dict(zip(fresh, await everything, strict=True))
        finally:
            for task in (watcher, *tasks):
                task.cancel()
            # what was begun is told to end, and is waited for
            await asyncio.gather(watcher, everything, *tasks, return_exceptions=True)
        for ended in found.values():
            # what others began is paid, and kept
            if isinstance(ended, str):
                raise BudgetSpentError(ended)
        return {pair: ended for pair, ended in found.items() if not isinstance(ended, str)}

    async def _watch(self) -> None:
        while not self._stop.is_set():
            await asyncio.sleep(_LOOKS_EVERY_S)

    async def _one(self, pair: Pair, candidate: Candidate, reserve: int) -> EndedRollout | str:
        """Run one until it says something, or has failed as often as may be; return why it may not begin, where it may not."""
        candidate_digest, seed = pair
        attempts = self._config.gepa.rollout.attempts
        for attempt in range(1, attempts + 1):
            if refusal := await self._spending.reserve():
                return refusal
            if attempt == 1:
                self._first_tries -= 1
            elif self.left is not None and self.left <= reserve + self._first_tries:
                # what is kept for others is not for another try
                await self._spending.settle(0.0, 0, is_lost=True)
                break
            self.asked += 1
            number = self._tries[pair] = self._tries.get(pair, 0) + 1
            usd: float | None = None
            tokens: int | None = None
            ended: EndedRollout | None = None
            try:
                response = await self._response(candidate_digest, seed, number, candidate)
                usd, tokens = used(response)
                ended = self._ended(seed, response)
            finally:
                # what a machine failed does not say what it used, and is no reason to end
                await self._settle(usd, tokens, is_lost=ended is None or ended.reward is None)
            self._note(candidate_digest, number, ended, usd, tokens)
            if ended.reward is not None or ended.cause not in _TRIED_AGAIN or attempt == attempts:
                break
            logger.info("seed %d: %s (%s); it is tried again", seed, ended.cause, ended.error)
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 4 ** (attempt - 1))
            await asyncio.sleep(pause_s * (0.5 + random.random()))
        assert ended is not None  # the first try has begun
        self._on_ended()
        return ended

    async def _response(self, digest: str, seed: int, number: int, candidate: Candidate) -> RolloutResponse:
        request = self._request(digest, seed, number, candidate)
        try:
            return await self._task_app.rollout(request)
        except HarborAPIError as error:
            if is_refusal(error):
                raise
            return _unanswered(request, error)
        except GraftlineError as error:
            return _unanswered(request, error)

    def _request(self, digest: str, seed: int, number: int, candidate: Candidate) -> RolloutRequest:
        config = self._config
        env_name = config.gepa.env_name or config.env_name or config.task_app_id
        return RolloutRequest(
            # the same of the same try after whatever broke off: a service that ran it has its answer still
            trace_correlation_id=f"{self._run_id}-{digest[:16]}-s{seed}-{number}",
            env=RolloutEnv(env_name=env_name, config={**config.env_config, **config.gepa.env_config}, seed=seed),
            policy=RolloutPolicy(
                policy_name=config.policy.policy_name, config={**policy_of(config), "prompt": policy_prompt(candidate)}
            ),
            safety=RolloutSafety(max_time_s=config.gepa.rollout.timeout_s),
        )

    def _ended(self, seed: int, response: RolloutResponse) -> EndedRollout:
        reward = response.reward_info.outcome_reward if response.reward_valid else None
        error = "" if reward is not None else (response.status_detail or "")
        return EndedRollout(
            seed, reward, response.failure_cause, error, transcript(self._texts.get(seed, {}), response)
        )

    def _note(self, digest: str, number: int, ended: EndedRollout, usd: float | None, tokens: int | None) -> None:
        self._journal.append(
            {
                "kind": "rollout",
                "candidate": digest,
                "seed": ended.seed,
                "number": number,
                "reward": ended.reward,
                "cause": ended.cause,
                "error": ended.error,
                "usd": usd,
                "tokens": tokens,
                "said": dict(ended.said) if ended.reward is not None else {},
            }
        )
        if ended.reward is not None:
            self._known[digest, ended.seed] = ended


def policy_of(config: PromptLearningConfig) -> dict[str, Any]:
    """Return `policy.config` of a rollout, but for the prompt: what the table `policy` sets, and its `config` as it is.

    The table has the names that files have (`max_completion_tokens`, `inference_url`), `config` those of the task app.
    """
    policy = config.policy
    sent = {"provider", "model", "inference_url", "temperature", "max_completion_tokens", "context_override"}
    # what is set to its default is set all the same
    named = policy.model_dump(mode="json", include=sent, exclude_none=True, exclude_unset=True)
    return {**named, **policy.config}


def used(response: RolloutResponse) -> tuple[float | None, int | None]:
    """Return what a rollout cost, in US dollars and in tokens; None where it does not say."""
    extra = (response.model_extra or {}).get("execution_metadata")
    said: Mapping[str, Any] = {**(extra if isinstance(extra, dict) else {}), **response.metadata}
    tokens = said.get("tokens", said.get("total_tokens"))
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
    return reward_of(said.get("cost_usd")), tokens if is_count else None


def _unanswered(request: RolloutRequest, error: GraftlineError) -> RolloutResponse:
    return RolloutResponse(
        trace_correlation_id=request.trace_correlation_id,
        reward_info=RewardInfo(outcome_reward=None),
        success_status=SuccessStatus.NETWORK_ERROR,
        failure_cause=FailureCause.HARBOR_FAILED,
        status_detail=str(error),
    )
