"""Rows that nothing is learned from: what is said of them before a run begins, and the error where no other is left."""

from collections.abc import Mapping
from statistics import median_low

from graftline.core.errors import DataError
from graftline.training.recipes.base import TrainingData
from graftline.training.settings import TinkerTrainingConfig

_LARGE_SHARE = 0.1
_CAUSES: Mapping[str, str] = {
    "bad_chat": "without a list of messages, each with a known role and a text",
    "no_target": "without an answer to learn",
    "not_comparable": "with an action too long to be compared",
    "refused": "that the renderer does not take, as thoughts are not by one that is told not to think",
}


def check_examples(config: TinkerTrainingConfig, data: TrainingData) -> None:
    """Refuse data of which nothing is left.

    Raises:
        DataError: there is no example; it says why, and what to change.
    """
    if not data.train:
        causes = describe_dropped(config, data) or "the file is empty; write it again, or name another one"
        raise DataError(f"{config.dataset}: no example is left to train on: {causes}")


def notice_of_dropped(config: TinkerTrainingConfig, data: TrainingData) -> str:
    """Return what is to be said before training where a tenth of the examples or more is left out; else nothing."""
    dropped = data.dropped.total()
    total = dropped + len(data.train)
    if dropped < _LARGE_SHARE * total:
        return ""
    share = f"{dropped:,} of {total:,} examples ({dropped / total:.0%}) are not trained on"
    return f"{config.dataset}: {share}: {describe_dropped(config, data)}"


def describe_dropped(config: TinkerTrainingConfig, data: TrainingData) -> str:
    """Return why examples were left out, how many for each reason, and the remedy; empty where none was."""
    causes = [
        f"{count:,} {_CAUSES.get(reason, reason)}" if reason != "too_long" else _too_long(config, data, count)
        for reason, count in sorted(data.dropped.items())
    ]
    return "; ".join(causes)


def _too_long(config: TinkerTrainingConfig, data: TrainingData, count: int) -> str:
    least, half, most = min(data.too_long), median_low(data.too_long), max(data.too_long)
    spread = f"{least:,} to {most:,} tokens, half of them at most {half:,}" if least < most else f"{most:,} tokens each"
    return (
        f"{count:,} longer than max_tokens, which is {config.max_tokens:,}: {spread}. Take them in with --set"
        f" max_tokens={most}{f' (or {half}: half of them)' if half < most else ''}, which takes more time and memory, or ask in"
        " fewer words: `graftline trajectories export` with --prompt brief, in the lineage `prompt` below data"
    )
