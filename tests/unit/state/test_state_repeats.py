"""What counts as the same text, which one is kept, and that an update that is merged twice changes nothing more."""

import random

import pytest

from graftline.rollouts.state import State, StateUpdate, merge
from graftline.rollouts.state.state import BUDGET_TOKENS, MAX_HISTORY, MAX_ITEMS, TARGET_TOKENS

LISTS = ("goals", "constraints", "decisions", "hypotheses", "history", "open_issues")
LOGS = ("decisions", "history")


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("keep `a`", "keep `A`", "code in backticks tells case apart"),
        ("keep a", "keep b", "they are different"),
        ("a b", "ab", "a blank is not none"),
    ],
)
def test_texts_that_differ_stay_apart(first: str, second: str, reason: str) -> None:
    assert merge(State(), StateUpdate(goals=[first, second])).goals == (first, second), reason


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("keep it", "Keep It"),
        ("keep  it", "keep it "),
        ("keep\nit", "keep it"),
        ("use `A b`", "Use  `A b`"),
        ("ß", "SS"),
    ],
)
def test_texts_that_differ_in_case_or_blanks_are_held_once(first: str, second: str) -> None:
    assert merge(State(), StateUpdate(goals=[first, second])).goals == (first,)


@pytest.mark.parametrize("name", LOGS)
def test_what_is_said_again_becomes_the_newest_as_it_is_said_then(name: str) -> None:
    state = State(**{name: ("first", "second", "third")})

    assert getattr(merge(state, StateUpdate(**{name: ["First", "x"]})), name)[-2:] == ("First", "x")


def test_what_is_said_again_does_not_push_out_what_is_newer() -> None:
    # of (1, 2, 3) and (1, 4), 2 is the oldest
    assert merge(State(history=("1", "2", "3")), StateUpdate(history=["1", "4"])).history == ("3", "1", "4")


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_blanks_says_nothing(name: str) -> None:
    state = State(**{name: ("a",)})

    assert merge(state, StateUpdate(**{name: [" ", "\t\n"]})) == state


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
