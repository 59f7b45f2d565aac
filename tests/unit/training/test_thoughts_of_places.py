"""What is said before an action, of the places that it changes."""

from graftline.sandbox.base import Match
from graftline.training.rows import thought

TEXT = "a = load(x)\nb = load(y)\nc = load(x)\nd = load(z)\n"


def match(old: str, new: str, after: int = 0) -> Match:
    start = TEXT.index(old, after)
    return Match(start, start + len(old), new)


def test_two_places_are_told_of() -> None:
    places = [match("load(x)", "read(x)"), match("load(y)", "read(y)"), match("load(z)", "read(z)")]
    assert thought(TEXT, places) == "load(x) => read(x) ; load(y) => read(y)"


def test_the_second_of_two_places_that_are_alike_says_nothing() -> None:
    places = [match("load(x)", "read(x)"), match("load(x)", "read(x)", after=20), match("load(z)", "read(z)")]
    assert thought(TEXT, places) == "load(x) => read(x) ; load(z) => read(z)"


def test_a_place_alone_stands_on_one_line() -> None:
    assert thought("if a:\n    b()\n", [Match(0, 13, "b()")]) == "if a: b() => b()"
