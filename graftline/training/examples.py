"""Examples that a run trains on: how their files are read, which rows are left out, and how much training on them takes."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

from graftline.core.errors import DataError
from graftline.rollouts.task import check_trainable
from graftline.training.settings import TinkerTrainingConfig, batch_of, total_steps

if TYPE_CHECKING:
    from tinker import types

_NOTICED_SHARE = 0.1
_CAUSES: Mapping[str, str] = {
    "bad_chat": "without a list of messages, each with a known role and a text",
    "no_target": "without an answer to learn",
    "no_contrast": "of tasks whose rollouts are all worth the same",
    "no_tokens": "without token ids and logprobs, which the server that was asked did not give",
    "not_comparable": "with an action too long to be compared",
    "refused": "that the renderer does not take, as thoughts are not by one that is told not to think",
}


@dataclass(frozen=True, slots=True)
class Example:
    """What a step is counted in: the datums that belong together."""

    datums: "tuple[types.Datum, ...]"
    """Of a question whose answers are sampled while training goes on: the question."""
    tokens: int
    """That go through the model; at most, where answers are yet to be sampled."""
    trained_tokens: int
    """Targets with a weight above 0."""
    item: Any = None
    """What a recipe needs beside: the task of a question, say."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Examples, and what they were made of."""

    train: list[Example]
    held_out: list[Example]
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files, by what they are."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows that no example was made of, by reason."""
    too_long: Sequence[int] = ()
    """Tokens of those that were dropped for their length."""


def read_rows(path: Path, field: str, format: str) -> list[dict[str, Any]]:
    """Return the objects of a file with one on every line, each with a list in `field`; `format` is that of the export."""
    rows = read_objects(path)
    for number, row in enumerate(rows, 1):
        if not isinstance(row.get(field), list):
            raise DataError(
                f"{path}, line {number}: has no {field}; `graftline data export {format}` writes such files"
            )
    return rows


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file with one on every line; DataError where it is no such file."""
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise DataError(f"{path}, line {number}: is no object; one on every line was expected")
                tags = row.get("tags")
                check_trainable(tags if isinstance(tags, list) else (), f"{path}, line {number}")
                rows.append(row)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); name a file in the recipe, or make it: `graftline run`, or"
            " `graftline data export`"
        ) from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}, line {len(rows) + 1}: is no JSON; one object on every line was expected") from None
    return rows


def check_examples(config: TinkerTrainingConfig, data: TrainingData) -> None:
    """Raise DataError, with why and what to change, where there is no example."""
    if not data.train:
        causes = describe_dropped(config, data) or "the file is empty; write it again, or name another one"
        raise DataError(f"{config.dataset}: no example is left to train on: {causes}")


def notice_of_dropped(config: TinkerTrainingConfig, data: TrainingData) -> str:
    """Return what a person should know where a tenth of the examples or more is left out; else nothing."""
    dropped = data.dropped.total()
    total = dropped + len(data.train)
    if dropped < _NOTICED_SHARE * total:
        return ""
    share = f"{dropped:,} of {total:,} examples ({dropped / total:.0%}) are not trained on"
    return f"{config.dataset}: {share}: {describe_dropped(config, data)}"


def describe_dropped(config: TinkerTrainingConfig, data: TrainingData) -> str:
    """Return why examples were left out, how many for each reason, and the remedy; empty where none was."""
    causes = [
        f"{count:,} {_CAUSES.get(reason, reason)}" if reason != "too_long" else _describe_too_long(config, data, count)
        for reason, count in sorted(data.dropped.items())
    ]
    return "; ".join(causes)


def _describe_too_long(config: TinkerTrainingConfig, data: TrainingData, count: int) -> str:
    least, half, most = min(data.too_long), median_low(data.too_long), max(data.too_long)
    spread = f"{least:,} to {most:,} tokens, half of them at most {half:,}" if least < most else f"{most:,} tokens each"
    return (
        f"{count:,} longer than max_tokens, which is {config.max_tokens:,}: {spread}. Take them in with --set"
        f" max_tokens={most}{f' (or {half}: half of them)' if half < most else ''}, which takes more time and memory, or ask in"
        " fewer words: `graftline data export` with --prompt brief, in the lineage `prompt` below data"
    )


def estimate_training(config: TinkerTrainingConfig, data: TrainingData) -> dict[str, Any]:
    """Return how many examples, tokens and steps a run has, and what it costs where the price is known."""
    check_examples(config, data)
    count = len(data.train)
    steps = total_steps(config, count)
    tokens = sum(data.train[number].tokens for step in range(steps) for number in batch_of(config, count, step))
    price = config.usd_per_million_tokens
    return {
        "dataset": config.dataset,
        "examples": count,
        "dropped": dict(data.dropped),
        "tokens": sum(example.tokens for example in data.train),
        "trained_tokens": sum(example.trained_tokens for example in data.train),
        "held_out_examples": len(data.held_out),
        "steps": steps,
        "tokens_of_all_steps": tokens,
        "usd": None if price is None else round(price * tokens / 1e6, 4),
    }
