"""One prompt optimisation, from its configuration to its outcome: begun, gone on with, ended early; in the caller's thread.

Seeds are in three parts that share none: on some of the train seeds changes are found, on the others (the front) all prompts are
compared, and on the validation seeds the best of them are judged, with the first prompt, when the search is over. What is
journalled is not paid again, so that the same call goes on after whatever broke it off.
"""

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from graftline.errors import ConfigError, HarborError
from graftline.harbor.task_app_client import TaskAppClient
from graftline.optimization.candidates import PromptShape, digest_of
from graftline.optimization.comparison import best_by_seed, best_of, ranked
from graftline.optimization.gepa_search import load, search
from graftline.optimization.journal import Journal
from graftline.optimization.outcome import JudgedPrompt, Outcome
from graftline.optimization.proposals import Proposer
from graftline.optimization.rollouts import BudgetSpentError, Rollouts, StoppedError
from graftline.optimization.search_state import Search, Tell
from graftline.optimization.settings import GepaTable, PromptLearningConfig

logger = logging.getLogger(__name__)

_MOST_FRONT = 64
_JUDGED = 3
_TRIED_FIRST = 3


def optimise(
    config: PromptLearningConfig,
    task_app: TaskAppClient,
    proposer: Proposer,
    journal: Journal,
    run_id: str,
    stop: threading.Event | None = None,
    tell: Tell = lambda kind, data: None,
) -> Outcome:
    """Return what an optimisation came to; begun again with its journal, it goes on.

    Args:
        config: What is to be made better, on what.
        task_app: What runs rollouts.
        proposer: What proposes changes.
        journal: Of this optimisation alone.
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
    validation = config.gepa.evaluation.validation_seeds
    reserve = len(validation) * (1 + (config.gepa.evaluation.validation_top_k or _JUDGED))
    _check_budget(config, len(front), len(feedback), reserve)
    load()
    _check_same(journal, config, task_app.url, run_id)
    rollouts = Rollouts(task_app, config, journal, run_id, stop, lambda: _progress(rollouts, tell))
    try:
        tell("running", {"front": front, "feedback": feedback, "validation": validation, "proposer": proposer.name})
        found, ending = Search(), ""
        judged: Mapping[int, dict[int, float]] = {}
        try:
            _fly(rollouts, proposer, shape, feedback, config.seeds)
            found = search(shape, rollouts, proposer, journal, config.gepa, front, feedback, reserve, stop, tell)
            if not found.error:
                judged = _judged(found, rollouts, config, validation)
        except StoppedError:
            found.ending = "cancelled"
        except BudgetSpentError as spent:
            if not found.found:
                raise ConfigError(f"prompt_learning.gepa: {spent}; give it more") from None
            ending = str(spent)
        outcome = _outcome(found, judged, rollouts, proposer, config.gepa, ending)
    finally:
        rollouts.close()
    logger.info(
        "optimisation %s: %s, %d prompts, %d rollouts, %.1f s",
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
    """Keep what the optimisation is, and refuse to go on with another one."""
    of: dict[str, Any] = {"kind": "optimisation", "id": run_id, "config": config.body("")}
    kept = next((line for line in journal.lines() if line["kind"] == "optimisation"), None)
    if kept is None:
        journal.append({**of, "task_app": url})
    elif kept["config"] != of["config"]:
        changed = sorted(
            key for key in {*kept["config"], *of["config"]} if kept["config"].get(key) != of["config"].get(key)
        )
        raise ConfigError(
            f"optimisation {run_id!r}: was begun with another configuration ({', '.join(changed)} differ); begin a new one"
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


def _judged(
    found: Search, rollouts: Rollouts, config: PromptLearningConfig, validation: Sequence[int]
) -> Mapping[int, dict[int, float]]:
    """Return the rewards on the validation seeds of the first prompt, and of those that are to be judged."""
    if not validation or not found.found:
        return {}
    top = [number for number in ranked([one.scores for one in found.found]) if number]
    numbers = [0, *top[: config.gepa.evaluation.validation_top_k or _JUDGED]]
    texts = {number: found.found[number].texts for number in numbers}
    known = rollouts.ended([(text, seed) for text in texts.values() for seed in validation])
    judged: dict[int, dict[int, float]] = {}
    for number, text in texts.items():
        rewards = {seed: known.get((digest_of(text), seed)) for seed in validation}
        judged[number] = {
            seed: one.reward for seed, one in rewards.items() if one is not None and one.reward is not None
        }
    return judged


def _outcome(
    found: Search,
    judged: Mapping[int, dict[int, float]],
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
            validation=judged.get(number, {}),
            asked=one.asked,
        )
        for number, one in enumerate(found.found)
    ]
    best = 0
    if judged:
        numbers = list(judged)
        best = numbers[best_of([judged[number] for number in numbers])]
    elif prompts:
        best = best_of([one.scores for one in prompts])
    by_seed = best_by_seed([one.scores for one in prompts], gepa.archive.pareto_eps)
    return Outcome(
        proposer=proposer.name,
        ending=ending or found.ending,
        error=found.error,
        is_cancelled=found.ending == "cancelled",
        best=best,
        prompts=prompts,
        best_by_seed={seed: sorted(numbers) for seed, numbers in by_seed.items()},
        proposals=dict(found.counts),
        rollouts=rollouts.asked,
        usd=rollouts.usd,
        tokens=rollouts.tokens,
    )


def _progress(rollouts: Rollouts, tell: Tell) -> None:
    tell("progress", {"num_completed": rollouts.asked, "num_total": rollouts.budget or 0})


def check(config: PromptLearningConfig) -> dict[str, Any]:
    """Return how the seeds are divided, and see that the configuration is whole.

    Raises:
        ConfigError: it is not.
    """
    PromptShape.of(config.initial_prompt, config.gepa.token)
    front, feedback = parts_of(config.gepa)
    return {"front": front, "feedback": feedback, "validation": config.gepa.evaluation.validation_seeds}
