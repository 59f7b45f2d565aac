"""One prompt optimization, from its configuration to its outcome: begun, resumed, ended early; in the caller's thread.

Seeds are in three parts that share none: on some of the train seeds changes are found, on the others (the front) all prompts are
compared and the best one is chosen, and on the validation seeds it is judged, with the first prompt, when the search is over.
With a test pool that judges, and the validation seeds choose among the best. Seeds that choose never judge: the best of several
is too good on those. What is journaled is not paid again, so that the same call goes on after whatever broke it off.
"""

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.task_app_client import TaskAppClient
from graftline.prompts.candidates import PromptShape, best_by_seed, best_of, rank
from graftline.prompts.gepa_search import Notify, Search, SearchResult, load
from graftline.prompts.journal import Journal
from graftline.prompts.outcome import Outcome
from graftline.prompts.proposers import Proposer
from graftline.prompts.rollouts import BudgetSpentError, Rollouts, StoppedError
from graftline.prompts.settings import GepaTable, PromptLearningConfig

logger = logging.getLogger(__name__)

_MOST_FRONT = 64
_MOST_CHOICES = 3
"""Prompts that validation seeds choose among, where a test pool judges."""
_PREFLIGHT_SEEDS = 3


def optimize(
    config: PromptLearningConfig,
    task_app: TaskAppClient,
    proposer: Proposer,
    journal: Journal,
    run_id: str,
    stop: threading.Event | None = None,
    notify: Notify = lambda kind, data: None,
) -> Outcome:
    """Return what an optimization came to; begun again with its journal, it goes on.

    Args:
        config: What is to be made better, on what.
        task_app: What runs rollouts.
        proposer: What proposes changes.
        journal: Of this optimization alone.
        run_id: Names it in requests to the task app, the same when it goes on.
        stop: Set by another thread, it ends soon, and the prompts that were found stay.
        notify: Gets events as they happen: a kind, and its data.

    Raises:
        ConfigError: the configuration is not whole.
        HarborError, ActorError: task app or proposer are not there, before anything was found.
    """
    began, stop, gepa = time.monotonic(), stop or threading.Event(), config.gepa
    shape, parts = PromptShape.of(config.initial_prompt, gepa.token), check(config)
    front, feedback = parts["front"], parts["feedback"]
    reserve = len(parts["validation"]) * (1 + _most_validated(gepa)) + 2 * len(parts["test"])
    _check_budget(config, len(front), len(feedback), reserve)
    load()
    _check_same(journal, config, task_app.url, run_id)

    def report_progress() -> None:
        notify("progress", {"num_completed": rollouts.count, "num_total": rollouts.budget or 0})

    rollouts = Rollouts(task_app, config, journal, run_id, stop, report_progress)
    try:
        notify("running", {**parts, "proposer": proposer.name})
        spent = ""
        gepa_search = Search(shape, rollouts, proposer, journal, gepa, front, feedback, reserve, stop, notify)
        result = gepa_search.result
        try:
            _preflight(rollouts, proposer, shape, feedback, config.seeds)
            gepa_search.search()
            if not result.error and result.termination_reason != "cancelled":
                _judge(result, rollouts, gepa)
        except StoppedError:
            result.termination_reason = "cancelled"
        except HarborError as error:
            if not result.prompts:
                raise
            result.termination_reason, result.error = "failed", str(error)
        except BudgetSpentError as error:
            if not result.prompts:
                raise ConfigError(f"prompt_learning.gepa: {error}; give it more") from None
            spent = str(error)
        outcome = _outcome(result, rollouts, proposer, gepa, spent)
    finally:
        rollouts.close()
    n_prompts, seconds = len(outcome.prompts), time.monotonic() - began
    logger.info(
        "optimization %s: %s, %d prompts, %d rollouts, %.1f s",
        run_id,
        outcome.ending,
        n_prompts,
        outcome.rollouts,
        seconds,
    )
    return outcome


def check(config: PromptLearningConfig) -> Mapping[str, list[int]]:
    """Return how the seeds are divided: `front`, `feedback`, `validation` and `test`.

    Raises:
        ConfigError: the configuration is not whole.
    """
    PromptShape.of(config.initial_prompt, config.gepa.token)
    gepa = config.gepa
    seeds = list(gepa.evaluation.train_seeds)
    if len(seeds) < 2:
        raise ConfigError(
            f"prompt_learning.gepa.evaluation: names {len(seeds) or 'no'} train_seeds; expected two or more, for prompts"
            " are compared on others than changes are found on"
        )
    random.Random(gepa.rng_seed or 0).shuffle(seeds)
    size = gepa.archive.pareto_set_size or min(_MOST_FRONT, len(seeds) // 2)
    return {
        "front": sorted(seeds[:size]),
        "feedback": sorted(seeds[size:]),
        "validation": gepa.evaluation.validation_seeds,
        "test": gepa.evaluation.test_pool or [],
    }


def _check_budget(config: PromptLearningConfig, n_front: int, n_feedback: int, reserve: int) -> None:
    budget, size = config.gepa.rollout.budget, min(config.gepa.rollout.minibatch_size, n_feedback)
    least = n_front + 2 * size + reserve
    if budget is not None and budget < least:
        raise ConfigError(
            f"prompt_learning.gepa.rollout.budget: is {budget}, and one change takes {least}: {n_front} for the first"
            f" prompt, 2 x {size} for a change, {reserve} for the validation; give it more, or fewer seeds"
        )


def _check_same(journal: Journal, config: PromptLearningConfig, url: str, run_id: str) -> None:
    """Keep what the optimization is, and refuse to go on with another one."""
    header: dict[str, Any] = {"kind": "optimisation", "id": run_id, "config": config.body("")}
    earlier = next((line for line in journal.lines() if line["kind"] == "optimisation"), None)
    if earlier is None:
        journal.append({**header, "task_app": url})
    elif earlier["config"] != header["config"]:
        keys = sorted({*earlier["config"], *header["config"]})
        changed = [key for key in keys if earlier["config"].get(key) != header["config"].get(key)]
        raise ConfigError(
            f"optimization {run_id!r}: was begun with another configuration ({', '.join(changed)} differ); begin a new one"
        )


def _preflight(
    rollouts: Rollouts, proposer: Proposer, shape: PromptShape, feedback: Sequence[int], seeds: Sequence[int]
) -> None:
    """See that everybody answers before the budget is used: the task app, the proposer, a rollout of the first prompt."""
    rollouts.prepare(list(seeds))
    proposer.check()
    if not any(rollouts.run([(shape.initial, seed)]) for seed in feedback[:_PREFLIGHT_SEEDS]):
        raise HarborError(
            f"task app: the first prompt has no reward on the seeds {', '.join(map(str, feedback[:_PREFLIGHT_SEEDS]))}; try"
            " one of them by itself, see to it, and resume"
        )


def _most_validated(gepa: GepaTable) -> int:
    """Return how many prompts the validation seeds are asked about, beside the first one."""
    return gepa.evaluation.validation_top_k or (_MOST_CHOICES if gepa.evaluation.test_pool else 1)


def _judge(result: SearchResult, rollouts: Rollouts, gepa: GepaTable) -> None:
    """Choose the best prompt, and add its rewards and those of the first one on seeds that had no part in the choice.

    What is known when something ends it early stays in `result`.
    """
    scores, evaluation = [prompt.scores for prompt in result.prompts], gepa.evaluation
    if not scores:
        return
    result.best = best_of(scores)
    if evaluation.validation_seeds:
        numbers = [*dict.fromkeys((0, result.best, *rank(scores)))][: 1 + _most_validated(gepa)]
        _add_rewards("validation", numbers, result, rollouts, evaluation.validation_seeds)
        validation = [result.prompts[number].validation for number in numbers]
        if evaluation.test_pool and any(validation):
            result.best, result.chosen_on = numbers[best_of(validation)], "validation"
    if evaluation.test_pool:
        _add_rewards("test", [*dict.fromkeys((0, result.best))], result, rollouts, evaluation.test_pool)


def _add_rewards(
    key: Literal["validation", "test"],
    numbers: Sequence[int],
    result: SearchResult,
    rollouts: Rollouts,
    seeds: Sequence[int],
) -> None:
    finished = rollouts.run([(result.prompts[number].texts, seed) for number in numbers for seed in seeds])
    for number in numbers:
        prompt = result.prompts[number]
        by_seed = {seed: finished.get((prompt.digest, seed)) for seed in seeds}
        rewards = {seed: rollout.reward for seed, rollout in by_seed.items() if rollout and rollout.reward is not None}
        result.prompts[number] = prompt.model_copy(update={key: rewards})


def _outcome(result: SearchResult, rollouts: Rollouts, proposer: Proposer, gepa: GepaTable, spent: str) -> Outcome:
    prompts, best = result.prompts, result.best
    scores = [prompt.scores for prompt in prompts]
    if best is None:
        # something ended it before it was judged
        best = best_of(scores) if scores else 0
    is_canceled = result.termination_reason == "cancelled"
    outcome = Outcome(
        proposer=proposer.name,
        ending=spent or result.termination_reason,
        error=result.error,
        is_cancelled=is_canceled,
        best=best,
        chosen_on=result.chosen_on,
        prompts=prompts,
        best_by_seed={seed: sorted(numbers) for seed, numbers in best_by_seed(scores, gepa.archive.pareto_eps).items()},
        proposals=dict(result.counts),
        rollouts=rollouts.count,
        usd=rollouts.usd,
        tokens=rollouts.tokens,
    )
    if outcome.is_held_out or not (gepa.evaluation.validation_seeds or gepa.evaluation.test_pool):
        return outcome
    why = outcome.error or (outcome.ending if spent or is_canceled else "no rollout there has a reward")
    return outcome.model_copy(update={"not_judged": why})
