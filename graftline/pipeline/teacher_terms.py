"""On what terms the answers of teachers are: which may be trained on, by what `configs/vllm_actors.yaml` says today.

An attempt also holds the terms that its fleet named when it was made (`Generation.outputs`). Where either forbids training, no
row is made of it.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from graftline.llm.fleet import Fleet, load_fleets
from graftline.rollouts.task import FORBIDDEN_BY_TERMS
from graftline.rollouts.trajectory import Trajectory

logger = logging.getLogger(__name__)


def fleets_of_teachers(configs: Path) -> dict[str, Fleet]:
    """Return the fleets of the folder `configs`, by the name that trajectories give to the teacher who asks them."""
    if not (configs / "vllm_actors.yaml").is_file():
        return {}  # no model is asked from there
    return {f"openai/{fleet.called}": fleet for fleet in load_fleets(configs).values()}


def teachers_without_training(configs: Path) -> list[str]:
    """Return the teachers whose answers may not be trained on, in order."""
    if not (configs / "vllm_actors.yaml").is_file():
        return []
    # two fleets may serve one model: one that forbids is enough
    fleets = load_fleets(configs).values()
    return sorted({f"openai/{fleet.called}" for fleet in fleets if fleet.outputs and fleet.outputs.may_train is False})


def describe_teacher(name: str, fleets: dict[str, Fleet]) -> str:
    """Return on what terms the answers of the teacher `name` are, in a sentence."""
    if name in ("induction", "memory"):
        return "rules of Graftline, without a language model"
    if name in fleets:
        return describe_terms(fleets[name])[1]
    return "a served language model whose terms no file of configs/ names"


def select_trainable(
    attempts: Iterable[Trajectory], teachers: Iterable[str], left_out: Counter[str]
) -> list[Trajectory]:
    """Return the attempts that may be trained on: none of `teachers`, and none whose own terms forbid it.

    The others are counted in `left_out`, and a warning says whose they are.
    """
    names, refused, chosen = frozenset(teachers), Counter[str](), list[Trajectory]()
    for attempt in attempts:
        if attempt.teacher in names or attempt.forbids_training:
            refused[attempt.teacher] += 1
        else:
            chosen.append(attempt)
    for teacher, count in sorted(refused.items()):
        logger.warning("%s: left out of training rows, by the terms of its answers: %d of its attempts", teacher, count)
    if refused:
        left_out[FORBIDDEN_BY_TERMS] += refused.total()
    return chosen


def describe_terms(fleet: Fleet) -> tuple[str, str]:
    """Return the license that answers of `fleet` count as under, empty where it is not known, and its terms."""
    outputs = fleet.outputs
    if outputs is None:
        return fleet.license, f"{fleet.model}; its fleet names no terms of its answers"
    verdict = {
        True: "may be trained on",
        False: "may NOT be trained on",
        None: "NOT VERIFIED whether they may be trained on",
    }
    place = f" ({outputs.source})" if outputs.source else ""
    license = fleet.license if outputs.may_train else ""
    return license, f"{fleet.model}: answers {verdict[outputs.may_train]}: {outputs.terms}{place}"
