"""Real changes to try the rules on."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.astgrep.binding import Language
from tests.snippets import parsable

CHECKOUT = Path(__file__).resolve().parents[3]

Pair = tuple[str, str, Language]
Pairs = Callable[[int, int], list[Pair]]


@pytest.fixture(scope="session")
def sample_pairs() -> Pairs:
    """A function of a number of pairs and a seed: texts before and after, and their language, drawn from the sample."""
    with gzip.open(CHECKOUT / "data" / "samples" / "release_pairs.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [row for row in map(json.loads, stream) if len(row["pre"]) < 1500]

    def drawn(number: int, seed: int) -> list[Pair]:
        pairs: list[Pair] = []
        for row in random.Random(seed).sample(rows, len(rows)):
            sides = parsable(row["pre"], row["post"], row["language"])
            if sides is not None:
                pairs.append((sides[0], sides[1], row["language"]))
            if len(pairs) == number:
                break
        return pairs

    return drawn
