"""What a model says of the state: what of it is taken, what is clipped, what is refused and with what words."""

import json
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.rollouts.state import StateUpdate, state_update_of

FIELDS = "goals, constraints, decisions, hypotheses, history, open_issues, next_focus"


THOUSAND = [str(number) for number in range(1000)]
READ: dict[str, tuple[Any, StateUpdate]] = {
    "as it stands": (
        {"goals": ["a"], "decisions": ["b", "c"], "open_issues": [], "next_focus": "d"},
        StateUpdate(goals=["a"], decisions=["b", "c"], open_issues=[], next_focus="d"),
    ),
    "null is the same as not given": ({"goals": None, "next_focus": None}, StateUpdate()),
    "long texts are clipped and say so": (
        {"goals": ["x" * 257, "y" * 256], "next_focus": "z" * 1000},
        StateUpdate(goals=["x" * 255 + "…", "y" * 256], next_focus="z" * 255 + "…"),
    ),
    "long lists keep their last texts": (
        {"goals": THOUSAND, "history": THOUSAND},
        StateUpdate(goals=THOUSAND[-8:], history=THOUSAND[-3:]),
    ),
    "blank texts and repeats are left out": (
        {"goals": ["a", "", "  ", " A "], "constraints": [""]},
        StateUpdate(goals=["a"]),
    ),
    "half a character becomes a question mark": (json.loads('{"goals": ["\\ud83d!"]}'), StateUpdate(goals=["?!"])),
}


@pytest.mark.parametrize("name", READ)
def test_an_update_is_read(name: str) -> None:
    tree, update = READ[name]
    assert state_update_of(tree) == update


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        *(
            (tree, f"expected an object with some of {FIELDS}, got {kind}")
            for tree, kind in (([], "a list"), (None, "null"), (1.5, "a number"), (True, "true or false"))
        ),
        ({"goals": "a"}, "goals: expected a list of texts, got a text"),
        ({"history": {"a": 1}}, "history: expected a list of texts, got an object"),
        ({"goals": ["a", 1]}, "goals: expected a list of texts, got a number in place 2"),
        ({"goals": [None, "a", ["b"], False]}, "goals: expected a list of texts, got null in place 1 and 2 more"),
        ({"next_focus": ["a"]}, "next_focus: expected a text, got a list"),
        ({"mood": "good"}, f"'mood': is not known; expected some of {FIELDS}"),
        ({"m" * 99: "good"}, f"'{'m' * 39}…': is not known; expected some of {FIELDS}"),
    ],
)
def test_what_is_wrong_is_named(tree: Any, fault: str) -> None:
    with pytest.raises(DataError) as refusal:
        state_update_of(tree)

    assert str(refusal.value) == f"state update: {fault}"


def test_all_faults_come_in_one_message() -> None:
    with pytest.raises(DataError) as refusal:
        state_update_of({"goals": "a", "decisions": ["b"], "history": 3, "next_focus": 4})

    assert str(refusal.value) == (
        "state update: goals: expected a list of texts, got a text; history: expected a list of texts, got a number;"
        " next_focus: expected a text, got a number"
    )
