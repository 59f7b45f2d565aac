"""What every embedder does, whichever implementation it is."""

import math
import subprocess
import sys
from operator import mul

import pytest

from graftline.rollouts.retrieval import HashedEmbedderConfig, open_embedder
from graftline.rollouts.retrieval.base import Embedder, Vector

CONFIGS = {"hashed": HashedEmbedderConfig(), "hashed, small": HashedEmbedderConfig(dimensions=64)}
TEXTS = ("Rename `old` to `new`.\nx = old(1)\n", "return await getUserName(id)", "für 空 🎉", "\ud800 x", "x" * 100_000)


@pytest.fixture(params=CONFIGS)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return open_embedder(CONFIGS[request.param])


def nearness(one: Vector, other: Vector) -> float:
    return sum(map(mul, one, other))


def test_there_is_one_vector_of_length_one_for_every_text(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert [(len(vector), vector.typecode) for vector in vectors] == [(embedder.dimensions, "f")] * len(TEXTS)
    assert [round(math.dist(vector, [0.0] * len(vector)), 5) for vector in vectors] == [1.0] * len(TEXTS)


def test_a_text_that_says_nothing_gets_zeros(embedder: Embedder) -> None:
    assert [any(vector) for vector in embedder.embed(["", " \n\t "])] == [False, False]


def test_nothing_has_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]) == []


def test_the_same_text_has_the_same_vector_whatever_stands_beside_it(embedder: Embedder) -> None:
    assert embedder.embed(TEXTS)[1] == embedder.embed([TEXTS[1]])[0]


def test_the_same_text_has_the_same_vector_in_another_process(embedder: Embedder) -> None:
    program = (
        "from graftline.rollouts.retrieval import HashedEmbedderConfig, open_embedder\n"
        f"found = open_embedder(HashedEmbedderConfig(dimensions={embedder.dimensions}))\n"
        f"print(found.name, found.embed([{TEXTS[1]!r}])[0].tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [embedder.name, embedder.embed([TEXTS[1]])[0].tobytes().hex()]


def test_what_is_alike_is_nearer_than_what_is_not(embedder: Embedder) -> None:
    asked, alike, other = embedder.embed(
        [
            "Use `assertEqual` instead of the deprecated `assertEquals`.",
            "Use `assertRegex` instead of the deprecated `assertRegexpMatches`.",
            "Declare variables with `let`.",
        ]
    )
    assert nearness(asked, alike) > nearness(asked, other)
