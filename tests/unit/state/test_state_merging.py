"""What an agent carries from step to step: what an update replaces, what it adds to, and where both are cut."""

from typing import Any

import pytest
from pydantic import ValidationError

from graftline.rollouts.state.state import MAX_CHARACTERS, MAX_HISTORY, MAX_ITEMS, State, StateUpdate

LISTS = ("goals", "constraints", "decisions", "hypotheses", "history", "open_issues")
REPLACED = ("goals", "constraints", "hypotheses", "open_issues")


def test_an_empty_update_changes_nothing() -> None:
    state = State(goals=("a",), history=("b",), next_focus="c")

    assert state.apply(StateUpdate()) == state


@pytest.mark.parametrize("name", REPLACED)
def test_a_given_list_replaces_the_earlier_one(name: str) -> None:
    assert State(**{name: ("a", "b")}).apply(StateUpdate(**{name: ["c"]})) == State(**{name: ("c",)})


@pytest.mark.parametrize("name", REPLACED)
def test_an_empty_list_clears_the_earlier_one(name: str) -> None:
    assert State(**{name: ("a",)}).apply(StateUpdate(**{name: []})) == State()


@pytest.mark.parametrize("name", ["decisions", "history"])
def test_logs_grow(name: str) -> None:
    assert State(**{name: ("a",)}).apply(StateUpdate(**{name: ["b", "c"]})) == State(**{name: ("a", "b", "c")})


@pytest.mark.parametrize("name", ["decisions", "history"])
def test_an_empty_list_leaves_a_log_as_it_is(name: str) -> None:
    assert State(**{name: ("a",)}).apply(StateUpdate(**{name: []})) == State(**{name: ("a",)})


@pytest.mark.parametrize("name", LISTS)
def test_repeats_are_held_once(name: str) -> None:
    assert State(**{name: ("a",)}).apply(StateUpdate(**{name: ["a", "b", "a"]})) == State(**{name: ("a", "b")})


def test_the_oldest_of_the_history_falls_out() -> None:
    # 2 + 2 is one more than the 3 that are kept
    state = State(history=("1", "2")).apply(StateUpdate(history=["3", "4"]))

    assert (MAX_HISTORY, state.history) == (3, ("2", "3", "4"))


@pytest.mark.parametrize("name", ["goals", "constraints", "decisions", "hypotheses", "open_issues"])
def test_every_other_list_keeps_its_last_eight(name: str) -> None:
    state = State().apply(StateUpdate(**{name: [str(number) for number in range(10)]}))

    assert (MAX_ITEMS, getattr(state, name)) == (8, ("2", "3", "4", "5", "6", "7", "8", "9"))


def test_repeats_are_taken_out_before_the_cut() -> None:
    state = State(history=("1", "2")).apply(StateUpdate(history=["2", "2", "3"]))

    assert state.history == ("1", "2", "3")


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
