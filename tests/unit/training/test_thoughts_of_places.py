"""What is said before an action, of the places that it changes."""

import pytest

from graftline.sandbox.base import Match
from graftline.training.rows import thought

TEXT = "a = load(x)\nb = load(y)\nc = load(x)\nd = load(z)\n"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        # the first two places
        ("xyz", "load(x) => read(x) ; load(y) => read(y)"),
        # a place that is like the one before says nothing
        ("xxz", "load(x) => read(x) ; load(z) => read(z)"),
    ],
)
def test_two_places_that_differ_are_told_of(names: str, said: str) -> None:
    places, end = [], 0
    for name in names:
        start = TEXT.index(f"load({name})", end)
        end = start + len("load(x)")
        places.append(Match(start, end, f"read({name})"))
    assert thought(TEXT, places) == said


def test_a_place_alone_stands_on_one_line() -> None:
    assert thought("if a:\n    b()\n", [Match(0, 13, "b()")]) == "if a: b() => b()"
