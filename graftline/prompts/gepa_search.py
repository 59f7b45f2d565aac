"""The door to `gepa` (https://arxiv.org/abs/2507.19457): prompts that change by reflection, and a front of them by seed.

Where ours differs from the package's own defaults:

1. A generation is several changes at once, so that all their rollouts are asked for together and no server waits.
2. A rollout without a reward is `nan` to the package, and none of its comparisons sees one: selection, acceptance and judgment
   are ours (`comparison`), over the seeds that both prompts have a reward on.
3. The package's run folder is not used: its pickle forgets the random choices. A run with the same journal goes the same way.
4. A proposal that lost what is filled in is counted, and never judged.
"""

import logging
import math
import random
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from graftline.core.errors import ConfigError, HarborError, install_command
from graftline.prompts.candidates import PromptShape, changed_parts, digest_of
from graftline.prompts.comparison import best_by_seed, best_of, is_better, mean, ranked
from graftline.prompts.journal import Journal
from graftline.prompts.proposals import Proposer, Reflection
from graftline.prompts.rollouts import BudgetSpentError, Rollouts, StoppedError
from graftline.prompts.search_state import Found, Search, SearchState, Tell
from graftline.prompts.settings import GepaTable

logger = logging.getLogger(__name__)

_NOTHING = math.nan


def search(
    shape: PromptShape,
    rollouts: Rollouts,
    proposer: Proposer,
    journal: Journal,
    gepa: GepaTable,
    front: Sequence[int],
    feedback: Sequence[int],
    reserve: int,
    stop: threading.Event,
    tell: Tell,
) -> Search:
    """Return the prompts that were found, the first one first.

    Args:
        front: Seeds that all of them are compared on.
        feedback: Seeds that changes are found on.
        reserve: Rollouts that have to be left of the budget.

    Raises:
        ConfigError: `gepa` is not installed.
        BudgetSpentError: the budget does not reach for the first prompt.
        HarborError: nothing can be told of it.
    """
    load()
    from gepa.api import optimize
    from gepa.strategies.proposal_sampling import IndependentSampling

    population = gepa.population
    state = SearchState(shape, rollouts, proposer, journal, gepa, reserve, stop, tell)
    size = min(gepa.rollout.minibatch_size, len(feedback))

    class Sampling(IndependentSampling):
        """As many changes at once as the budget reaches for."""

        def sample_tasks(self, *arguments: Any) -> Any:
            self.n = state.affordable(population.children_per_generation, size, len(front))
            return super().sample_tasks(*arguments)

    # not of the package's own types: what it hands through is ours
    adapter: Any = _Adapter(state)
    listener: Any = _Listener(state, front)
    try:
        optimize(
            seed_candidate=dict(shape.initial),
            trainset=list(feedback),
            valset=list(front),
            adapter=adapter,
            candidate_selection_strategy=_Selector(random.Random(gepa.rng_seed or 0), gepa, front),
            reflection_minibatch_size=size,
            sampling_strategy=Sampling(population.children_per_generation),
            stop_callbacks=[lambda gepa_state: state.is_over(gepa_state.i + 1)],
            callbacks=[listener],
            logger=_Log(),
            track_best_outputs=False,
            seed=gepa.rng_seed or 0,
            val_evaluation_policy=_Judgment(state, front),
            acceptance_criterion=_Acceptance(),
        )
    except BudgetSpentError as spent:
        if not state.search.found:
            raise
        state.search.ending = str(spent)
    except StoppedError:
        state.search.ending = "cancelled"
    except HarborError as error:
        if not state.search.found:
            raise
        state.search.ending, state.search.error = "failed", str(error)
    return state.search


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


def reflection_prompt(metaprompt: str | None, text: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the question that a model is asked for another text."""
    from gepa.strategies.instruction_proposal import InstructionProposalSignature

    rendered = InstructionProposalSignature.prompt_renderer(
        {"current_instruction_doc": text, "dataset_with_feedback": list(records), "prompt_template": metaprompt}
    )
    return str(rendered)


def extracted(answer: str) -> str:
    """Return the text that an answer proposes."""
    from gepa.strategies.instruction_proposal import InstructionProposalSignature

    return InstructionProposalSignature.output_extractor(answer)["new_instruction"].strip()


class _Adapter:
    """What `gepa` asks for rollouts and for texts."""

    def __init__(self, state: SearchState) -> None:
        self._state = state

    def evaluate(self, batch: list[int], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        return self.batch_evaluate([(candidate, batch)])[0]

    def batch_evaluate(self, items: list[tuple[dict[str, str], list[int]]]) -> list[Any]:
        from gepa.core.adapter import EvaluationBatch

        known = self._state.ended([(candidate, seed) for candidate, seeds in items for seed in seeds])
        batches = []
        for candidate, seeds in items:
            rollouts = [known.get((digest_of(candidate), seed)) for seed in seeds]
            scores = [_NOTHING if one is None or one.reward is None else one.reward for one in rollouts]
            batches.append(EvaluationBatch(outputs=[None] * len(seeds), scores=scores, trajectories=rollouts))
        return batches

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        by_seed = {one.seed: one for one in eval_batch.trajectories if one is not None}
        rows = [{"seed": one.seed, "reward": one.reward, "said": one.said} for _, one in sorted(by_seed.items())]
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
                texts |= self._state.proposed({**candidate, **texts}, part, reflections)
        return texts


class _Selector:
    """Which prompt is changed next: one that is the best somewhere, the more often the likelier."""

    def __init__(self, source: random.Random, gepa: GepaTable, front: Sequence[int]) -> None:
        self._source, self._archive, self._front = source, gepa.archive, front

    def select_candidate_idx(self, state: Any) -> int:
        from gepa.gepa_utils import select_program_candidate_from_pareto_front

        scores = scores_of(state, self._front)
        kept = set(ranked(scores)[: self._archive.size])
        best = best_by_seed(
            [one if number in kept else {} for number, one in enumerate(scores)], self._archive.pareto_eps
        )
        # one that nothing is known of stands below all others, and not at 0
        means = [-math.inf if (found := mean(one)) is None else found for one in scores]
        return int(select_program_candidate_from_pareto_front(best, means, self._source))


class _Acceptance:
    """A change is kept if it is better on the seeds that both have a reward on."""

    def should_accept(self, proposal: Any, state: Any) -> bool:
        return is_better(*(_on(proposal, scores) for scores in ("subsample_scores_after", "subsample_scores_before")))

    def reject_reason(self, proposal: Any, state: Any) -> str:
        before, after = (_on(proposal, name) for name in ("subsample_scores_before", "subsample_scores_after"))
        return f"not better on the {len(before.keys() & after.keys())} seeds of both"


class _Judgment:
    """All seeds of the front for every prompt; of the first one those that can be told."""

    def __init__(self, state: SearchState, front: Sequence[int]) -> None:
        self._state, self._front = state, front

    def get_seed_eval_batch(self, loader: Any) -> list[int]:
        initial = self._state.shape.initial
        known = self._state.ended([(initial, seed) for seed in self._front])
        places = [place for place, seed in enumerate(self._front) if (digest_of(initial), seed) in known]
        if not places:
            raise HarborError(
                f"task app: the first prompt has no reward on any of the {len(self._front)} seeds of the front; try one"
                " of them by itself"
            )
        return places

    def get_eval_batch(self, loader: Any, state: Any, target_program_idx: int | None = None) -> list[int]:
        return list(loader.all_ids())

    def get_best_program(self, state: Any) -> int:
        return best_of(scores_of(state, self._front))

    def get_valset_score(self, program_idx: int, state: Any) -> float:
        found = mean(scores_of(state, self._front)[program_idx])
        return _NOTHING if found is None else found


class _Listener:
    """Keeps what is found as it is found, and tells of it."""

    def __init__(self, state: SearchState, front: Sequence[int]) -> None:
        self._state, self._front = state, front
        self._best = 0

    def on_iteration_start(self, event: Any) -> None:
        self._state.tell("generation.started", {"generation": event["iteration"]})

    def on_valset_evaluated(self, event: Any) -> None:
        shared = self._state
        parents = [number for number in event["parent_ids"] if number is not None]
        texts = dict(event["candidate"])
        scores = _told(event["scores_by_val_id"], self._front)
        shared.search.found.append(
            Found(
                texts,
                parents,
                changed_parts(shared.search.found[parents[0]].texts, texts) if parents else [],
                shared.how.get(digest_of(texts), "the first"),
                scores,
                len(shared.asked),
            )
        )
        number = len(shared.search.found) - 1
        shared.tell("candidate.evaluated", {"candidate": number, "parents": parents, "score": mean(scores)})

    def on_pareto_front_updated(self, event: Any) -> None:
        self._state.tell("frontier.updated", {"archived": len(self._state.search.found) + 1})

    def on_candidate_rejected(self, event: Any) -> None:
        self._state.search.counts["not better"] += 1

    def on_iteration_end(self, event: Any) -> None:
        found = self._state.search.found
        best = best_of([one.scores for one in found])
        self._state.end_of_generation(best != self._best)
        self._best = best
        data = {"generation": event["iteration"], "best": best, "score": mean(found[best].scores)}
        self._state.tell("generation.completed", data)


class _Log:
    """The package's own words, for whoever looks for them."""

    def log(self, message: str) -> None:
        logger.debug("%s", message)


def scores_of(state: Any, front: Sequence[int]) -> list[dict[int, float]]:
    """Return the rewards of every prompt by seed, those that are known."""
    return [_told(scores, front) for scores in state.prog_candidate_val_subscores]


def _told(scores: Mapping[int, float], front: Sequence[int]) -> dict[int, float]:
    return {front[place]: score for place, score in scores.items() if not math.isnan(score)}


def _on(proposal: Any, name: str) -> dict[int, float]:
    """Return the rewards of a minibatch by its place; those that are known."""
    return {place: score for place, score in enumerate(getattr(proposal, name) or ()) if not math.isnan(score)}
