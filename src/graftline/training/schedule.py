"""Which examples a step is made of, and its learning rate: by its number alone, so that a run can go on anywhere."""

import math
import random
from collections.abc import Sequence
from functools import lru_cache

from graftline.training.settings import TinkerTrainingConfig

_SORTED_BATCHES = 50
"""Of an epoch, sorted by length together."""


def steps_per_epoch(config: TinkerTrainingConfig, examples: int) -> int:
    """Return how many batches the examples make; the last one may be smaller."""
    return math.ceil(examples / config.batch_size)


def total_steps(config: TinkerTrainingConfig, examples: int) -> int:
    """Return how many steps a run over so many examples has."""
    steps = config.epochs * steps_per_epoch(config, examples)
    return min(steps, config.max_steps or steps)


def batch_of(config: TinkerTrainingConfig, lengths: Sequence[int], step: int) -> list[int]:
    """Return the numbers of the examples of a step; `lengths` are those of all examples, in tokens."""
    epoch, number = divmod(step, steps_per_epoch(config, len(lengths)))
    size = config.batch_size
    if config.group_by_length:
        return _grouped(config.order_seed, epoch, size, tuple(lengths))[number]
    return _order(config.order_seed, epoch, len(lengths))[number * size :][:size]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, examples: int) -> list[int]:
    order = list(range(examples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


@lru_cache(maxsize=2)
def _grouped(seed: int, epoch: int, size: int, lengths: tuple[int, ...]) -> list[list[int]]:
    """Return the batches of an epoch, each of examples of about the same length, in an order that is not that of lengths.

    As `group_by_length` of transformers: what is sorted together is drawn anew in every epoch, and so are the batches.
    """
    order, reach = _order(seed, epoch, len(lengths)), size * _SORTED_BATCHES
    pieces = (sorted(order[at : at + reach], key=lengths.__getitem__) for at in range(0, len(order), reach))
    batches = [piece[at : at + size] for piece in pieces for at in range(0, len(piece), size)]
    random.Random(f"{seed}/{epoch}/batches").shuffle(batches)
    return batches


def learning_rate(config: TinkerTrainingConfig, step: int, total: int) -> float:
    """Return the learning rate of a step."""
    from tinker_cookbook.utils.lr_scheduling import compute_schedule_lr_multiplier

    return float(config.learning_rate * compute_schedule_lr_multiplier(config.lr_schedule, step, total))
