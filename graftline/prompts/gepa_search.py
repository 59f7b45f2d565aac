"""The door to `gepa` (https://arxiv.org/abs/2507.19457): prompts that change by reflection, and a front of them by seed.

Where ours differs from the package's own defaults:

1. A generation is several changes at once, so that all their rollouts are asked for together and no server waits.
2. A rollout without a reward is `nan` to the package, and none of its comparisons sees one: selection, acceptance and judgment
   are ours (`candidates`), over the seeds that both prompts have a reward on.
3. The package's run folder is not used: its pickle forgets the random choices. A run with the same journal goes the same way.
4. A proposal that lost what is filled in is counted, and never judged.
"""

import logging
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from graftline.core.errors import ActorError, ConfigError, HarborError, install_command
from graftline.core.hashing import digest
from graftline.prompts.candidates import (
    Candidate,
    PromptShape,
    best_by_seed,
    best_of,
    digest_of,
    find_changed_parts,
    is_better,
    mean,
    names_in,
    rank,
)
from graftline.prompts.journal import Journal
from graftline.prompts.outcome import JudgedPrompt
from graftline.prompts.proposers import ChangeRequest, Proposal, Proposer, Reflection
from graftline.prompts.rollouts import BudgetSpentError, FinishedRollout, Rollouts
from graftline.prompts.settings import GepaTable

logger = logging.getLogger(__name__)

Notify = Callable[[str, Mapping[str, Any]], None]
_MOST_FAILED_PROPOSALS = 3


@dataclass(slots=True)
class SearchResult:
    """What a search came to, and which prompt of it is the best one."""

    prompts: list[JudgedPrompt] = field(default_factory=list)
    """Those of the archive, the initial one first."""
    termination_reason: str = ""
    error: str = ""
    """What it could not go on with; empty where it ended as it should."""
    counts: Counter[str] = field(default_factory=Counter)
    """Proposals by what became of them."""
    best: int | None = None
    """None before the prompts were judged."""
    chosen_on: Literal["front", "validation"] = "front"


def load() -> None:
    """Load the package, before anything is paid for.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import gepa.api
        import gepa.strategies.proposal_sampling  # noqa: F401
    except ImportError:
        raise ConfigError(f"prompt optimization needs gepa; {install_command('optimization')}") from None


class Search:
    """One search: the adapter that `gepa` asks for rollouts and texts, and the listener that it notifies.

    Args:
        front: Seeds that all prompts are compared on.
        feedback: Seeds that changes are found on.
        reserve: Rollouts that have to remain of the budget.
    """

    def __init__(
        self,
        shape: PromptShape,
        rollouts: Rollouts,
        proposer: Proposer,
        journal: Journal,
        gepa: GepaTable,
        front: Sequence[int],
        feedback: Sequence[int],
        reserve: int,
        stop: threading.Event,
        notify: Notify,
    ) -> None:
        self.shape, self.front, self.result = shape, front, SearchResult()
        self._rollouts, self._proposer, self._journal, self._gepa = rollouts, proposer, journal, gepa
        self._feedback, self._reserve, self._stop, self._notify = feedback, reserve, stop, notify
        self._how: dict[str, str] = {}
        self._pairs: set[tuple[str, int]] = set()
        self._judged = {digest_of(shape.initial)}
        self._requests: Counter[str] = Counter()
        self._best = self._failed_in_a_row = self._generations_since_best = 0
        self._journaled = {line["key"]: line for line in journal.lines() if line["kind"] == "proposal"}

    def search(self) -> None:
        """Find prompts until there is a reason to end; they are in `result`.

        Raises:
            BudgetSpentError: the budget does not reach for the first prompt.
            StoppedError: it was asked to stop.
            HarborError: nothing can be told of what was asked.
        """
        from gepa.api import optimize
        from gepa.strategies.proposal_sampling import IndependentSampling

        gepa, population, state = self._gepa, self._gepa.population, self
        size = min(gepa.rollout.minibatch_size, len(self._feedback))

        class Sampling(IndependentSampling):
            """As many changes at once as the budget reaches for."""

            def sample_tasks(self, *arguments: Any) -> Any:
                self.n = state.affordable_changes(population.children_per_generation, size)
                return super().sample_tasks(*arguments)

        # the package's types do not know what it hands through, which is ours
        adapter: Any = self
        try:
            optimize(
                seed_candidate=dict(self.shape.initial),
                trainset=list(self._feedback),
                valset=list(self.front),
                adapter=adapter,
                candidate_selection_strategy=_Selector(random.Random(gepa.rng_seed or 0), gepa, self.front),
                reflection_minibatch_size=size,
                sampling_strategy=Sampling(population.children_per_generation),
                stop_callbacks=[lambda gepa_state: self.should_stop(gepa_state.i + 1)],
                callbacks=[adapter],
                logger=_Log(),
                track_best_outputs=False,
                seed=gepa.rng_seed or 0,
                val_evaluation_policy=_Judgment(self, self.front),
                acceptance_criterion=_Acceptance(),
            )
        except BudgetSpentError as error:
            # what is kept for the validation is not spent
            if not self.result.prompts:
                raise
            self.result.termination_reason = str(error)

    def affordable_changes(self, most: int, size: int) -> int:
        """Return how many changes at once the budget reaches for; of pairs alone, so that it is the same when resumed."""
        if self._rollouts.budget is None:
            return most
        remaining = self._rollouts.budget - self._reserve - len(self._pairs) - len(self.front)
        return max(1, min(most, remaining // (2 * size)))

    def should_stop(self, generation: int) -> bool:
        """Return whether no generation begins any more, where `generation` would be the next from 0; keep why."""
        population = self._gepa.population
        if self._stop.is_set():
            self.result.termination_reason = "cancelled"
        elif self._generations_since_best >= population.patience_generations:
            self.result.termination_reason = f"{self._generations_since_best} generations without a better prompt"
        elif generation >= population.num_generations:
            self.result.termination_reason = f"{population.num_generations} generations"
        return bool(self.result.termination_reason)

    def run(self, pairs: Sequence[tuple[Candidate, int]]) -> dict[tuple[str, int], FinishedRollout]:
        """Return what came of prompts at seeds; a pair that nothing is known of is not among them."""
        self._pairs |= {(digest_of(candidate), seed) for candidate, seed in pairs}
        return self._rollouts.run(pairs, self._reserve)

    def evaluate(self, batch: list[int], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        return self.batch_evaluate([(candidate, batch)])[0]

    def batch_evaluate(self, items: list[tuple[dict[str, str], list[int]]]) -> list[Any]:
        from gepa.core.adapter import EvaluationBatch

        finished = self.run([(candidate, seed) for candidate, seeds in items for seed in seeds])
        batches = []
        for candidate, seeds in items:
            rollouts = [finished.get((digest_of(candidate), seed)) for seed in seeds]
            scores = [math.nan if rollout is None or rollout.reward is None else rollout.reward for rollout in rollouts]
            batches.append(EvaluationBatch(outputs=[None] * len(seeds), scores=scores, trajectories=rollouts))
        return batches

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        by_seed = {rollout.seed: rollout for rollout in eval_batch.trajectories if rollout is not None}
        rows = [
            {"seed": seed, "reward": by_seed[seed].reward, "said": by_seed[seed].transcript} for seed in sorted(by_seed)
        ]
        return {part: rows for part in components_to_update}

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        texts: dict[str, str] = {}
        for part in components_to_update:
            reflections = [Reflection(row["seed"], row["reward"], row["said"]) for row in reflective_dataset[part]]
            if reflections:
                texts |= self._change_part({**candidate, **texts}, part, reflections)
        return texts

    def _change_part(self, candidate: Candidate, part: str, reflections: Sequence[Reflection]) -> dict[str, str]:
        """Return the changed part; nothing where there is no change that may be judged."""
        proposal = None if self.result.termination_reason else self._propose(candidate, part, reflections)
        if proposal is None:
            return {}
        child = {**candidate, part: proposal.text}
        key, fault = digest_of(child), self.shape.fault(child)
        if fault or key in self._judged:
            self.result.counts["refused" if fault else "known"] += 1
            self._notify("candidate.refused", {"part": part, "reason": fault or "it was judged before"})
            return {}
        self._judged.add(key)
        self.result.counts["judged"] += 1
        self._how[key] = proposal.how
        return {part: proposal.text}

    def _propose(self, candidate: Candidate, part: str, reflections: Sequence[Reflection]) -> Proposal | None:
        request_key = digest([dict(candidate), part])
        number = self._requests[request_key]
        self._requests[request_key] += 1
        key = digest([request_key, number, [[reflection.seed, reflection.reward] for reflection in reflections]])
        if (line := self._journaled.get(key)) is not None:
            return Proposal(line["text"], line["how"], line["usd"], line["tokens"])
        names = [*sorted(names_in(self.shape.initial[part])), *sorted(self.shape.wildcards[part])]
        request = ChangeRequest(part, candidate[part], reflections, names, number)
        try:
            proposal = self._rollouts.pay_for(lambda: self._proposer.propose(request))
        except BudgetSpentError as error:
            # raised from here, `gepa` would take it for a failure of the model, and ask again
            self.result.termination_reason = str(error)
            return None
        except ActorError as error:
            self.result.counts["unanswered"] += 1
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= _MOST_FAILED_PROPOSALS:
                self.result.termination_reason = "failed"
                self.result.error = (
                    f"the proposer did not answer {self._failed_in_a_row} times in a row: {error}; resume"
                )
            return None
        self._failed_in_a_row = 0
        fields = {"text": proposal.text, "how": proposal.how, "usd": proposal.usd, "tokens": proposal.tokens}
        self._journal.append({"kind": "proposal", "key": key, **fields})
        return proposal

    def on_iteration_start(self, event: Any) -> None:
        self._notify("generation.started", {"generation": event["iteration"]})

    def on_valset_evaluated(self, event: Any) -> None:
        prompts, texts = self.result.prompts, dict(event["candidate"])
        parents = [number for number in event["parent_ids"] if number is not None]
        scores = _by_seed(event["scores_by_val_id"], self.front)
        prompts.append(
            JudgedPrompt(
                number=len(prompts),
                digest=digest_of(texts),
                texts=texts,
                parents=parents,
                changed=find_changed_parts(prompts[parents[0]].texts, texts) if parents else [],
                how=self._how.get(digest_of(texts), "the first"),
                scores=scores,
                asked=len(self._pairs),
            )
        )
        event_data = {"candidate": len(prompts) - 1, "parents": parents, "score": mean(scores)}
        self._notify("candidate.evaluated", event_data)

    def on_pareto_front_updated(self, event: Any) -> None:
        self._notify("frontier.updated", {"archived": len(self.result.prompts) + 1})

    def on_candidate_rejected(self, event: Any) -> None:
        self.result.counts["not better"] += 1

    def on_iteration_end(self, event: Any) -> None:
        prompts = self.result.prompts
        best = best_of([prompt.scores for prompt in prompts])
        self._generations_since_best = 0 if best != self._best else self._generations_since_best + 1
        self._best = best
        data = {"generation": event["iteration"], "best": best, "score": mean(prompts[best].scores)}
        self._notify("generation.completed", data)


class _Selector:
    """Which prompt is changed next: one that is the best somewhere, the more often the likelier."""

    def __init__(self, source: random.Random, gepa: GepaTable, front: Sequence[int]) -> None:
        self._source, self._archive, self._front = source, gepa.archive, front

    def select_candidate_idx(self, state: Any) -> int:
        from gepa.gepa_utils import select_program_candidate_from_pareto_front

        scores = _all_scores(state, self._front)
        archive = set(rank(scores)[: self._archive.size])
        archived_scores = [by_seed if number in archive else {} for number, by_seed in enumerate(scores)]
        best = best_by_seed(archived_scores, self._archive.pareto_eps)
        # a prompt that nothing is known of stands below all others, and not at 0
        means = [-math.inf if (value := mean(by_seed)) is None else value for by_seed in scores]
        return int(select_program_candidate_from_pareto_front(best, means, self._source))


class _Acceptance:
    """A change is kept if it is better on the seeds that both have a reward on."""

    def should_accept(self, proposal: Any, state: Any) -> bool:
        before, after = self._scores(proposal)
        return is_better(after, before)

    def reject_reason(self, proposal: Any, state: Any) -> str:
        before, after = self._scores(proposal)
        return f"not better on the {len(before.keys() & after.keys())} seeds of both"

    def _scores(self, proposal: Any) -> tuple[dict[int, float], dict[int, float]]:
        """Return the rewards of the minibatch before and after by place; those that are known."""
        before, after = (
            {place: score for place, score in enumerate(scores or ()) if not math.isnan(score)}
            for scores in (proposal.subsample_scores_before, proposal.subsample_scores_after)
        )
        return before, after


class _Judgment:
    """All seeds of the front for every prompt; of the first one those that have a reward."""

    def __init__(self, state: Search, front: Sequence[int]) -> None:
        self._state, self._front = state, front

    def get_seed_eval_batch(self, loader: Any) -> list[int]:
        initial = self._state.shape.initial
        finished = self._state.run([(initial, seed) for seed in self._front])
        places = [place for place, seed in enumerate(self._front) if (digest_of(initial), seed) in finished]
        if not places:
            raise HarborError(
                f"task app: the first prompt has no reward on any of the {len(self._front)} seeds of the front; try one"
                " of them by itself"
            )
        return places

    def get_eval_batch(self, loader: Any, state: Any, target_program_idx: int | None = None) -> list[int]:
        return list(loader.all_ids())

    def get_best_program(self, state: Any) -> int:
        return best_of(_all_scores(state, self._front))

    def get_valset_score(self, program_idx: int, state: Any) -> float:
        score = mean(_all_scores(state, self._front)[program_idx])
        return math.nan if score is None else score


class _Log:
    """The package's own log."""

    def log(self, message: str) -> None:
        logger.debug("%s", message)


def _all_scores(state: Any, front: Sequence[int]) -> list[dict[int, float]]:
    """Return the rewards of every prompt by seed, those that are known."""
    return [_by_seed(scores, front) for scores in state.prog_candidate_val_subscores]


def _by_seed(scores: Mapping[int, float], front: Sequence[int]) -> dict[int, float]:
    return {front[place]: score for place, score in scores.items() if not math.isnan(score)}
