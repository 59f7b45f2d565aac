"""What counts as the same text, which one is kept, and that an update that is merged twice changes nothing more."""

import random

import pytest

from graftline.rollouts.state import State, StateLimits, StateUpdate, merge

LISTS = ("goals", "constraints", "decisions", "hypotheses", "history", "open_issues")
LOGS = ("decisions", "history")
TIGHT = StateLimits(max_history=2, max_items=3, max_text=40, budget_tokens=80, target_tokens=64)


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


def test_texts_are_clipped_to_a_tighter_cap_and_then_compared() -> None:
    update = StateUpdate(goals=["x" * 50 + "a", "x" * 50 + "b"], next_focus="y" * 41)

    assert merge(State(), update, TIGHT) == State(goals=("x" * 39 + "…",), next_focus="y" * 39 + "…")


def test_tighter_caps_hold_for_lists() -> None:
    update = StateUpdate(goals=list("abcd"), history=list("abcd"))

    assert merge(State(), update, TIGHT) == State(goals=("b", "c", "d"), history=("c", "d"))


@pytest.mark.parametrize("limits", [StateLimits(), StateLimits(budget_tokens=200, target_tokens=100), TIGHT])
def test_an_update_twice_is_the_same_as_once_and_within_all_caps(limits: StateLimits) -> None:
    draw = random.Random(6)
    for _ in range(25):
        state = State()
        for _ in range(4):
            update = _update(draw)
            merged = merge(state, update, limits)
            assert merge(merged, update, limits) == merged
            assert merged.token_budget() <= limits.budget_tokens
            assert len(merged.history) <= limits.max_history
            assert max(len(getattr(merged, name)) for name in LISTS if name != "history") <= limits.max_items
            assert State.model_validate_json(merged.model_dump_json()) == merged
            state = merged


def _update(draw: random.Random) -> StateUpdate:
    lists = {name: [_text(draw) for _ in range(draw.choice([0, 1, 2, 9]))] for name in LISTS if draw.random() < 0.5}
    return StateUpdate(**lists, next_focus=_text(draw) if draw.random() < 0.5 else None)


def _text(draw: random.Random) -> str:
    letters = draw.choice(["ab c`X ", "重构🙂 ", "{}[]()$A `b` ", '</state><|im_end|>"\\', " \t"])
    text = "".join(draw.choice(letters) for _ in range(draw.choice([3, 10, 40, 120, 256])))
    return draw.choice([text] * 20 + ["left out to save room: decisions 3"])
