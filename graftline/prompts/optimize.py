"""One prompt optimization, from its configuration to its outcome: begun, gone on with, ended early; in the caller's thread.

Seeds are in three parts that share none: on some of the train seeds changes are found, on the others (the front) all prompts are
compared and the best one is chosen, and on the validation seeds it is judged, with the first prompt, when the search is over.
With a test pool that judges, and the validation seeds choose among the best. Seeds that choose never judge: the best of several
is too good on those. What is journalled is not paid again, so that the same call goes on after whatever broke it off.
"""

import logging
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.task_app_client import TaskAppClient
from graftline.prompts.candidates import PromptShape, digest_of
from graftline.prompts.comparison import best_by_seed, best_of, ranked
from graftline.prompts.gepa_search import load, search
from graftline.prompts.journal import Journal
from graftline.prompts.outcome import JudgedPrompt, Outcome
from graftline.prompts.proposals import Proposer
from graftline.prompts.rollouts import BudgetSpentError, Rollouts, StoppedError
from graftline.prompts.search_state import Search, Tell
from graftline.prompts.settings import GepaTable, PromptLearningConfig

logger = logging.getLogger(__name__)

_MOST_FRONT = 64
_CHOSEN_AMONG = 3
"""Prompts that validation seeds choose among, where others judge."""
_TRIED_FIRST = 3
_Rewards = dict[int, dict[int, float]]
"""By prompt, then by seed."""


@dataclass(slots=True)
class _Judgment:
    """Which prompt is the best one, and what is known of it on seeds that are kept to judge."""

    best: int = 0
    chosen_on: Literal["front", "validation"] = "front"
    validation: _Rewards = field(default_factory=dict)
    test: _Rewards = field(default_factory=dict)


def optimize(
    config: PromptLearningConfig,
    task_app: TaskAppClient,
    proposer: Proposer,
    journal: Journal,
    run_id: str,
    stop: threading.Event | None = None,
    tell: Tell = lambda kind, data: None,
) -> Outcome:
    """Return what an optimization came to; begun again with its journal, it goes on.

    Args:
        config: What is to be made better, on what.
        task_app: What runs rollouts.
        proposer: What proposes changes.
        journal: Of this optimization alone.
        run_id: Names it in what the task app is asked for, the same when it goes on.
        stop: Set by another thread, it ends soon, and what was found stays.
        tell: Gets events as they happen: a kind, and what there is to say.

    Raises:
        ConfigError: the configuration is not whole.
        HarborError, ActorError: task app or proposer are not there, before anything was found.
    """
    began, stop = time.monotonic(), stop or threading.Event()
    shape = PromptShape.of(config.initial_prompt, config.gepa.token)
    front, feedback = parts_of(config.gepa)
    validation, test = config.gepa.evaluation.validation_seeds, config.gepa.evaluation.test_pool or []
    reserve = len(validation) * (1 + _most_validated(config.gepa)) + 2 * len(test)
    _check_budget(config, len(front), len(feedback), reserve)
    load()
    _check_same(journal, config, task_app.url, run_id)
    rollouts = Rollouts(task_app, config, journal, run_id, stop, lambda: _progress(rollouts, tell))
    try:
        parts = {"front": front, "feedback": feedback, "validation": validation, "test": test}
        tell("running", {**parts, "proposer": proposer.name})
        found, ending, judged = Search(), "", _Judgment()
        try:
            _fly(rollouts, proposer, shape, feedback, config.seeds)
            found = search(shape, rollouts, proposer, journal, config.gepa, front, feedback, reserve, stop, tell)
            if not found.error and found.ending != "cancelled":
                _judge(judged, found, rollouts, config.gepa)
        except StoppedError:
            found.ending = "cancelled"
        except HarborError as error:
            if not found.found:
                raise
            found.ending, found.error = "failed", str(error)
        except BudgetSpentError as spent:
            if not found.found:
                raise ConfigError(f"prompt_learning.gepa: {spent}; give it more") from None
            ending = str(spent)
        outcome = _outcome(found, judged, rollouts, proposer, config.gepa, ending)
    finally:
        rollouts.close()
    logger.info(
        "optimization %s: %s, %d prompts, %d rollouts, %.1f s",
        run_id,
        outcome.ending,
        len(outcome.prompts),
        outcome.rollouts,
        time.monotonic() - began,
    )
    return outcome


def parts_of(gepa: GepaTable) -> tuple[list[int], list[int]]:
    """Return the train seeds that prompts are compared on, and those that changes are found on.

    Raises:
        ConfigError: there are fewer than two.
    """
    seeds = list(gepa.evaluation.train_seeds)
    if len(seeds) < 2:
        raise ConfigError(
            f"prompt_learning.gepa.evaluation: names {len(seeds) or 'no'} train_seeds; expected two or more, for prompts"
            " are compared on others than changes are found on"
        )
    random.Random(gepa.rng_seed or 0).shuffle(seeds)
    size = gepa.archive.pareto_set_size or min(_MOST_FRONT, len(seeds) // 2)
    return sorted(seeds[:size]), sorted(seeds[size:])


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
    of: dict[str, Any] = {"kind": "optimisation", "id": run_id, "config": config.body("")}
    kept = next((line for line in journal.lines() if line["kind"] == "optimisation"), None)
    if kept is None:
        journal.append({**of, "task_app": url})
    elif kept["config"] != of["config"]:
        changed = sorted(
            key for key in {*kept["config"], *of["config"]} if kept["config"].get(key) != of["config"].get(key)
        )
        raise ConfigError(
            f"optimization {run_id!r}: was begun with another configuration ({', '.join(changed)} differ); begin a new one"
        )


def _fly(
    rollouts: Rollouts, proposer: Proposer, shape: PromptShape, feedback: Sequence[int], seeds: Sequence[int]
) -> None:
    """See that everybody answers before the budget is used: tasks are told, the proposer, a rollout of the first prompt."""
    rollouts.prepare(list(seeds))
    proposer.check()
    for seed in feedback[:_TRIED_FIRST]:
        if rollouts.ended([(shape.initial, seed)]):
            return
    raise HarborError(
        f"task app: the first prompt has no reward on the seeds {', '.join(map(str, feedback[:_TRIED_FIRST]))}; try one of"
        " them by itself, see to it, and resume"
    )


def _most_validated(gepa: GepaTable) -> int:
    """Return how many prompts the validation seeds are asked about, beside the first one."""
    return gepa.evaluation.validation_top_k or (_CHOSEN_AMONG if gepa.evaluation.test_pool else 1)


def _judge(judged: _Judgment, found: Search, rollouts: Rollouts, gepa: GepaTable) -> None:
    """Note the best prompt, and what it and the first one come to on seeds that had no part in the choice.

    What is known when something ends it early stays noted.
    """
    scores = [one.scores for one in found.found]
    if not scores:
        return
    judged.best = best_of(scores)
    evaluation = gepa.evaluation
    if evaluation.validation_seeds:
        numbers = [*dict.fromkeys((0, judged.best, *ranked(scores)))][: 1 + _most_validated(gepa)]
        judged.validation = _rewards(numbers, found, rollouts, evaluation.validation_seeds)
        if evaluation.test_pool and any(judged.validation.values()):
            judged.best = numbers[best_of([judged.validation[number] for number in numbers])]
            judged.chosen_on = "validation"
    if evaluation.test_pool:
        judged.test = _rewards([*dict.fromkeys((0, judged.best))], found, rollouts, evaluation.test_pool)


def _rewards(numbers: Sequence[int], found: Search, rollouts: Rollouts, seeds: Sequence[int]) -> _Rewards:
    texts = {number: found.found[number].texts for number in numbers}
    known = rollouts.ended([(text, seed) for text in texts.values() for seed in seeds])
    rewards: _Rewards = {}
    for number, text in texts.items():
        ended = {seed: known.get((digest_of(text), seed)) for seed in seeds}
        rewards[number] = {
            seed: one.reward for seed, one in ended.items() if one is not None and one.reward is not None
        }
    return rewards


def _outcome(
    found: Search,
    judged: _Judgment,
    rollouts: Rollouts,
    proposer: Proposer,
    gepa: GepaTable,
    ending: str,
) -> Outcome:
    prompts = [
        JudgedPrompt(
            number=number,
            digest=digest_of(one.texts),
            texts=one.texts,
            parents=one.parents,
            changed=one.changed,
            how=one.how,
            scores=one.scores,
            validation=judged.validation.get(number, {}),
            test=judged.test.get(number, {}),
            asked=one.asked,
        )
        for number, one in enumerate(found.found)
    ]
    # it may have ended before anything was noted
    best = judged.best if judged.chosen_on == "validation" or not prompts else best_of([one.scores for one in prompts])
    by_seed = best_by_seed([one.scores for one in prompts], gepa.archive.pareto_eps)
    outcome = Outcome(
        proposer=proposer.name,
        ending=ending or found.ending,
        error=found.error,
        is_cancelled=found.ending == "cancelled",
        best=best,
        chosen_on=judged.chosen_on,
        prompts=prompts,
        best_by_seed={seed: sorted(numbers) for seed, numbers in by_seed.items()},
        proposals=dict(found.counts),
        rollouts=rollouts.asked,
        usd=rollouts.usd,
        tokens=rollouts.tokens,
    )
    if outcome.is_held_out or not (gepa.evaluation.validation_seeds or gepa.evaluation.test_pool):
        return outcome
    why = outcome.error or (outcome.ending if ending or outcome.is_cancelled else "no rollout there has a reward")
    return outcome.model_copy(update={"not_judged": why})


def _progress(rollouts: Rollouts, tell: Tell) -> None:
    tell("progress", {"num_completed": rollouts.asked, "num_total": rollouts.budget or 0})


def check(config: PromptLearningConfig) -> dict[str, Any]:
    """Return how the seeds are divided, and see that the configuration is whole.

    Raises:
        ConfigError: it is not.
    """
    PromptShape.of(config.initial_prompt, config.gepa.token)
    front, feedback = parts_of(config.gepa)
    evaluation = config.gepa.evaluation
    return {
        "front": front,
        "feedback": feedback,
        "validation": evaluation.validation_seeds,
        "test": evaluation.test_pool or [],
    }
