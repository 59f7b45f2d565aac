"""Several examples of one change: one list of rules that is right on all of them."""

from collections.abc import Callable

import pytest

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.codemod.equality import Level, normalize_blank_lines
from graftline.codemod.induce_many import SharedInduction, induce_many
from graftline.sandbox.actions.memory import MemorySandbox


def shared(pairs: list[tuple[str, str]], *negatives: str, language: Language = "python") -> SharedInduction:
    return induce_many(pairs, language, MemorySandbox(), negatives)


def actions(found: SharedInduction) -> list[object]:
    return [scored.action for scored in found.actions]


def pattern(old: str, new: str) -> PatternAction:
    return PatternAction(pattern=old, rewrite=new)


def test_one_rule_does_for_all_examples_of_one_change() -> None:
    found = shared([("x = f(a, 1)\n", "x = f(1, a)\n"), ("f(b(c), d)\n", "f(d, b(c))\n"), ("y\n", "y\n")])
    assert actions(found) == [pattern("f($A, $B)", "f($B, $A)")]
    [scored] = found.actions
    # two arguments go and come in each of two pairs
    assert (scored.pairs, scored.variables) == (2, 2)
    assert (found.levels, found.is_verified) == ((Level.EXACT,) * 3, True)


def test_a_second_example_keeps_a_rule_from_being_too_general() -> None:
    alone = shared([("f(1)\n", "g(1)\n")])
    both = shared([("f(1)\n", "g(1)\n"), ("f('a')\nf(2)\n", "f('a')\ng(2)\n")])
    assert actions(alone) == [pattern("f($A)", "g($A)")]
    assert pattern("f($A)", "g($A)") not in actions(both)
    assert both.is_verified


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_example_is_brought_on_by_the_rules_before(order: tuple[int, int]) -> None:
    pairs = [("f(a)\n", "g(a)\nh(a)\n"), ("f(b)\nk(b)\n", "g(b)\nh(b)\nm(b)\n")]
    found = shared([pairs[place] for place in order])
    assert (found.is_verified, found.results) == (True, tuple(pairs[place][1] for place in order))


def test_a_negative_is_left_as_it_is() -> None:
    pairs = [("f(a)\n", "g(a)\n"), ("f(b)\n", "g(b)\n")]
    assert actions(shared(pairs)) == [pattern("f($A)", "g($A)")]
    found = shared(pairs, "f(c, d)\nf(c)\n")
    assert found.is_verified
    for scored in found.actions:
        [result] = MemorySandbox().apply_many("f(c, d)\nf(c)\n", "python", [scored.action])
        assert result.matches == ()


UNSOLVED: dict[str, tuple[list[tuple[str, str]], tuple[str, ...]]] = {
    "the text before is a negative": ([("f(a)\n", "g(a)\n")], ("f(a)\n",)),
    "the text before of one stays in another": ([("f(a)\n", "g(a)\n"), ("f(a)\n", "f(a)\n")], ()),
    "two examples want different things": ([("f(a)\n", "g(a)\n"), ("f(a)\n", "h(a)\n")], ()),
    # this sandbox cannot tell what happens to a text with a comment that suppresses
    "nobody knows what becomes of a negative": ([("f(a)\n", "g(a)\n")], ("# ast-grep-ignore\nx\n",)),
    "nobody knows what becomes of another text": ([("f(a)\n", "g(a)\n"), ("# ast-grep-ignore\n", "x\n")], ()),
}


@pytest.mark.parametrize(("pairs", "negatives"), UNSOLVED.values(), ids=UNSOLVED)
def test_no_rule_is_given_that_is_not_right_everywhere(
    pairs: list[tuple[str, str]], negatives: tuple[str, ...]
) -> None:
    found = shared(pairs, *negatives)
    assert (found.actions, found.results) == ((), tuple(before for before, _ in pairs))
    assert not found.is_verified


BESIDE: dict[str, tuple[str, str]] = {
    "no program": ("x = (\n", "x = 2\n"),
    "half a surrogate pair": ("f('\ud800')\n", "g('\ud800')\n"),
    "too deep": ("-" * 500 + "f(a)\n", "-" * 500 + "g(a)\n"),
    "too large": ("f(1)\n" * 150_000, "g(1)\n" * 150_000),
    "from nothing": ("", "x = 1\n"),
}


@pytest.mark.parametrize("odd", BESIDE.values(), ids=BESIDE)
def test_an_example_that_cannot_be_solved_does_not_keep_others_from_it(odd: tuple[str, str]) -> None:
    found = shared([odd, ("f(a)\n", "g(a)\n")])
    assert found.levels == (Level.NONE, Level.EXACT)
    assert found.results == (odd[0], "g(a)\n")


@pytest.mark.parametrize("negative", [")))(((", "\ud800", "", "-" * 500 + "f(a)\n", "x" * 20_000])
def test_a_negative_that_no_rule_can_change_is_no_obstacle(negative: str) -> None:
    assert shared([("f(a)\n", "g(a)\n")], negative).is_verified


def test_without_examples_there_is_nothing_to_do() -> None:
    assert shared([]) == SharedInduction((), (), ())
    assert shared([("f(\n", "f(\n")]) == SharedInduction((), ("f(\n",), (Level.EXACT,))


def test_the_rules_lead_where_they_are_said_to_and_change_nothing_else(
    sample_pairs: Callable[[int, int], list[tuple[str, str, Language]]],
) -> None:
    drawn = [pair for pair in sample_pairs(40, 11) if pair[2] == "python"]
    sandbox = MemorySandbox()
    for one, other, kept in zip(drawn[::3], drawn[1::3], drawn[2::3], strict=False):
        pairs, negative = [one[:2], other[:2]], kept[1]
        found = induce_many(pairs, "python", sandbox, [negative])
        assert found == induce_many(pairs, "python", sandbox, [negative])
        texts = [before for before, _ in pairs]
        for scored in found.actions:
            assert sandbox.apply_many(negative, "python", [scored.action])[0].after in (None, negative)
            after = [
                normalize_blank_lines(text, *sandbox.apply_many(text, "python", [scored.action])) for text in texts
            ]
            assert scored.pairs == sum(new != old for new, old in zip(after, texts, strict=True))
            texts = after
        assert tuple(texts) == found.results
        exact = [text == wanted for text, (_, wanted) in zip(texts, pairs, strict=True)]
        assert exact == [level is Level.EXACT for level in found.levels]
