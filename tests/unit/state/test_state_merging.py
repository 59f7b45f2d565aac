"""What an update replaces, what it adds to, where both are cut, and what counts as the same text."""

import random
from typing import Any

import pytest
from pydantic import ValidationError

from graftline.rollouts.state.state import (
    BUDGET_TOKENS,
    MAX_CHARACTERS,
    MAX_HISTORY,
    MAX_ITEMS,
    TARGET_TOKENS,
    State,
    StateUpdate,
    merge,
)

REPLACED, LOGS = ("goals", "constraints", "hypotheses", "open_issues"), ("decisions", "history")
LISTS = (*REPLACED, *LOGS)
TEN = [str(number) for number in range(10)]
# a field, what it holds, what an update says of it, and what it holds then
MERGED: list[tuple[str, tuple[str, ...], list[str], tuple[str, ...]]] = [
    # a list takes the place of the earlier one, and an empty one clears it
    *((name, ("a", "b"), ["c"], ("c",)) for name in REPLACED),
    *((name, ("a",), [], ()) for name in REPLACED),
    # logs grow
    *((name, ("a",), ["b", "c"], ("a", "b", "c")) for name in LOGS),
    *((name, ("a",), [], ("a",)) for name in LOGS),
    # repeats are held once, and a list of blanks says nothing
    *((name, ("a",), ["a", "b", "a"], ("a", "b")) for name in LISTS),
    *((name, ("a",), [" ", "\t\n"], ("a",)) for name in LISTS),
    # the oldest fall out: of the history before the last 3, of every other list before the last 8
    ("history", ("1", "2"), ["3", "4"], ("2", "3", "4")),
    *((name, (), TEN, ("2", "3", "4", "5", "6", "7", "8", "9")) for name in LISTS if name != "history"),
    ("history", ("1", "2"), ["2", "2", "3"], ("1", "2", "3")),
    # what is said again becomes the newest, as it is said then, and does not push out what is newer
    ("decisions", ("first", "second", "third"), ["First", "x"], ("second", "third", "First", "x")),
    ("history", ("first", "second", "third"), ["First", "x"], ("third", "First", "x")),
    ("history", ("1", "2", "3"), ["1", "4"], ("3", "1", "4")),
    # texts that differ stay apart, and those that differ in blanks, or in case outside of backticks, are the same
    *(("goals", (), [*texts], texts) for texts in (("keep `a`", "keep `A`"), ("keep a", "keep b"), ("a b", "ab"))),
    *(
        ("goals", (), [first, second], (first,))
        for first, second in (
            ("keep it", "Keep It"),
            ("keep  it", "keep it "),
            ("keep\nit", "keep it"),
            ("use `A b`", "Use  `A b`"),
            ("ß", "SS"),
        )
    ),
]


@pytest.mark.parametrize(("name", "before", "update", "after"), MERGED)
def test_an_update_is_merged(name: str, before: tuple[str, ...], update: list[str], after: tuple[str, ...]) -> None:
    assert State(**{name: before}).apply(StateUpdate(**{name: update})) == State(**{name: after})


def test_what_is_not_given_stays() -> None:
    state = State(goals=("a",), history=("b",), next_focus="c")

    assert state.apply(StateUpdate()) == state


@pytest.mark.parametrize(("given", "after"), [("b", "b"), ("", ""), (None, "a")])
def test_the_focus_is_replaced_when_it_is_given(given: str | None, after: str) -> None:
    assert State(next_focus="a").apply(StateUpdate(next_focus=given)) == State(next_focus=after)


@pytest.mark.parametrize(
    ("update", "field"),
    [
        *(({name: [""]}, name) for name in LISTS),
        *(({name: ["x" * (MAX_CHARACTERS + 1)]}, name) for name in LISTS),
        ({"next_focus": "x" * (MAX_CHARACTERS + 1)}, "next_focus"),
        ({"goals": "a"}, "goals"),
        ({"goals": [1]}, "goals"),
        ({"mood": "good"}, "mood"),
    ],
)
def test_a_note_that_is_empty_too_long_or_no_text_is_refused(update: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        StateUpdate.model_validate(update)

    assert [fault["loc"][0] for fault in refusal.value.errors()] == [field]


@pytest.mark.parametrize(("budget", "target"), [(BUDGET_TOKENS, TARGET_TOKENS), (200, 100), (80, 64)])
def test_an_update_twice_is_the_same_as_once_and_within_all_caps(budget: int, target: int) -> None:
    draw = random.Random(6)
    for _ in range(25):
        state = State()
        for _ in range(4):
            update = _update(draw)
            merged = merge(state, update, budget, target)
            assert merge(merged, update, budget, target) == merged
            assert merged.token_budget() <= budget
            assert len(merged.history) <= MAX_HISTORY
            assert max(len(getattr(merged, name)) for name in LISTS if name != "history") <= MAX_ITEMS
            assert State.model_validate_json(merged.model_dump_json()) == merged
            state = merged


def _update(draw: random.Random) -> StateUpdate:
    lists = {name: [_text(draw) for _ in range(draw.choice([0, 1, 2, 9]))] for name in LISTS if draw.random() < 0.5}
    return StateUpdate(**lists, next_focus=_text(draw) if draw.random() < 0.5 else None)


def _text(draw: random.Random) -> str:
    letters = draw.choice(["ab c`X ", "重构🙂 ", "{}[]()$A `b` ", '</state><|im_end|>"\\', " \t"])
    text = "".join(draw.choice(letters) for _ in range(draw.choice([3, 10, 40, 120, 256])))
    return draw.choice([text] * 20 + ["left out to save room: decisions 3"])
