"""The `hashed` embedder: words, pairs of words and letters of words, hashed into a vector; no weights, no corpus.

Feature hashing with signs (Weinberger et al. 2009, https://arxiv.org/abs/0902.2206), on what code and what is said of it
have in common: the parts of identifiers. For choosing examples of code such lexical likeness is as good as embeddings of
a language model (https://arxiv.org/abs/2410.09662).

What is near by meaning alone, `remove` and `drop`, it does not see.
"""

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from zlib import crc32

from graftline.rollouts.retrieval.base import Vector

_VERSION = 1
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+|[^\w\s]+")
"""Part of an identifier, number, or signs that stand together."""
_MAX_CHARACTERS = 20_000
_PAIR, _LETTERS = 0.5, 0.3
_SIGN = 1 << 31


class HashedEmbedder:
    """Hashes what texts are made of."""

    def __init__(self, dimensions: int = 512) -> None:
        self._dimensions = dimensions

    @property
    def name(self) -> str:
        return f"hashed-{self._dimensions}-{_VERSION}"

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._vector(text[:_MAX_CHARACTERS]) for text in texts]

    def _vector(self, text: str) -> Vector:
        vector = array("f", bytes(4 * self._dimensions))
        for feature, weight in _features(text).items():
            hashed = crc32(feature.encode("utf-8", "surrogatepass"))
            # what stands there often says little more than what stands there twice
            value = 1 + math.log(weight) if weight > 1 else weight
            vector[hashed % self._dimensions] += value if hashed & _SIGN else -value
        length = math.sqrt(sum(value * value for value in vector))
        return array("f", (value / length for value in vector)) if length else vector


def _features(text: str) -> dict[str, float]:
    features = defaultdict[str, float](float)
    for feature, weight in _weigh([piece.lower() for piece in _PIECE.findall(text)]):
        features[feature] += weight
    return features


def _weigh(words: Sequence[str]) -> Iterator[tuple[str, float]]:
    for word in words:
        yield f"w{word}", 1.0
        edged = f"<{word}>"
        for start in range(len(edged) - 2):
            yield f"l{edged[start : start + 3]}", _LETTERS
    for first, second in pairwise(words):
        yield f"p{first} {second}", _PAIR
