"""Which examples a step is made of, and its learning rate: by its number alone, so that a run can go on anywhere."""

import math
import random
from functools import lru_cache

from graftline.training.settings import TinkerTrainingConfig


def steps_per_epoch(config: TinkerTrainingConfig, examples: int) -> int:
    """Return how many batches the examples make; the last one may be smaller."""
    return math.ceil(examples / config.batch_size)


def total_steps(config: TinkerTrainingConfig, examples: int) -> int:
    """Return how many steps a run over so many examples has."""
    steps = config.epochs * steps_per_epoch(config, examples)
    return min(steps, config.max_steps or steps)


def batch_of(config: TinkerTrainingConfig, examples: int, step: int) -> list[int]:
    """Return the numbers of the examples of a step."""
    epoch, number = divmod(step, steps_per_epoch(config, examples))
    return _order(config.order_seed, epoch, examples)[number * config.batch_size :][: config.batch_size]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, examples: int) -> list[int]:
    order = list(range(examples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def learning_rate(config: TinkerTrainingConfig, step: int, total: int) -> float:
    """Return the learning rate of a step."""
    from tinker_cookbook.utils.lr_scheduling import compute_schedule_lr_multiplier

    return float(config.learning_rate * compute_schedule_lr_multiplier(config.lr_schedule, step, total))
