"""What training will take, before anything is sent or paid."""

from typing import Any

from graftline.training.dropped_rows import check_examples
from graftline.training.recipes.base import TrainingData
from graftline.training.schedule import batch_of, total_steps
from graftline.training.settings import TinkerTrainingConfig


def estimate_training(config: TinkerTrainingConfig, data: TrainingData) -> dict[str, Any]:
    """Return how many examples, tokens and steps a run over `data` has, and what it costs where the price is known.

    Raises:
        DataError: there is no example.
    """
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
