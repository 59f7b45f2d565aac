"""The two forms of an action: what parses as which, what is refused, and the rule each of them means."""

from typing import Any

import pytest
from pydantic import ValidationError

from graftline.astgrep.action import ACTION, MAX_TEXT, PatternAction, RuleAction, rule_of

PATTERN = {"pattern": "f($A)", "rewrite": "g($A)"}
RULE = {"rule": {"pattern": "f($A)"}, "fix": "g($A)"}


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (PATTERN, PatternAction(pattern="f($A)", rewrite="g($A)")),
        (
            {**PATTERN, "selector": "call", "strictness": "ast"},
            PatternAction(pattern="f($A)", rewrite="g($A)", selector="call", strictness="ast"),
        ),
        ({"pattern": "f()", "rewrite": ""}, PatternAction(pattern="f()", rewrite="")),
        (RULE, RuleAction(rule={"pattern": "f($A)"}, fix="g($A)")),
        (
            {**RULE, "fix": {"template": "g($A)", "expandEnd": {"regex": ","}}},
            RuleAction(rule={"pattern": "f($A)"}, fix={"template": "g($A)", "expandEnd": {"regex": ","}}),
        ),
    ],
)
def test_the_keys_tell_the_form(action: dict[str, Any], expected: PatternAction | RuleAction) -> None:
    assert ACTION.validate_python(action) == expected


@pytest.mark.parametrize("action", [PATTERN, RULE, {**RULE, "utils": {"u": {"kind": "call"}}}])
def test_an_action_survives_the_way_through_json(action: dict[str, Any]) -> None:
    action = ACTION.validate_python(action)
    assert ACTION.validate_json(ACTION.dump_json(action)) == action


def test_an_action_object_is_accepted_as_it_is() -> None:
    action = RuleAction(rule={"kind": "call"}, fix="x")
    assert ACTION.validate_python(action) is action


@pytest.mark.parametrize(
    ("action", "faults"),
    [
        ({**PATTERN, "lang": "python"}, [("pattern", "lang")]),
        ({**RULE, "severity": "error"}, [("rule", "severity")]),
        ({**RULE, "rewriters": []}, [("rule", "rewriters")]),
        # with both keys it is a rule, and a rule has no pattern beside it
        ({**RULE, "pattern": "f($A)"}, [("rule", "pattern")]),
        ({"pattern": "f($A)"}, [("pattern", "rewrite")]),
        ({"rule": {"kind": "call"}}, [("rule", "fix", "str"), ("rule", "fix", "dict[str,any]")]),
        ({"pattern": "", "rewrite": "x"}, [("pattern", "pattern")]),
        ({"pattern": "x" * (MAX_TEXT + 1), "rewrite": "x"}, [("pattern", "pattern")]),
        ({"pattern": "x", "rewrite": "x" * (MAX_TEXT + 1)}, [("pattern", "rewrite")]),
        ({"pattern": "x\ud800", "rewrite": "x"}, [("pattern", "pattern")]),
        ({**PATTERN, "strictness": "lenient"}, [("pattern", "strictness")]),
        ({"pattern": 1, "rewrite": "x"}, [("pattern", "pattern")]),
        ({**RULE, "rule": "f($A)"}, [("rule", "rule")]),
        ({}, [("pattern", "pattern"), ("pattern", "rewrite")]),
        ([], [("pattern",)]),
        ("f($A)", [("pattern",)]),
    ],
)
def test_what_is_no_action_is_refused_where_it_is_wrong(action: Any, faults: list[tuple[str, ...]]) -> None:
    with pytest.raises(ValidationError) as caught:
        ACTION.validate_python(action)
    places = [fault["loc"] for fault in caught.value.errors()]
    # a missing fix is one fault, a wrong one is one per form that it may have
    assert places == faults or places == [faults[0][:2]]


def test_texts_of_the_greatest_length_are_accepted() -> None:
    action = PatternAction(pattern="x" * MAX_TEXT, rewrite="y" * MAX_TEXT)
    assert (len(action.pattern), len(action.rewrite)) == (16_384, 16_384)


@pytest.mark.parametrize(
    ("action", "rule"),
    [
        (PatternAction(pattern="f($A)", rewrite="g($A)"), {"rule": {"pattern": "f($A)"}, "fix": "g($A)"}),
        (
            PatternAction(pattern="f(k=$A)", rewrite="l=$A", selector="keyword_argument"),
            {"rule": {"pattern": {"context": "f(k=$A)", "selector": "keyword_argument"}}, "fix": "l=$A"},
        ),
        (
            PatternAction(pattern="f($A)", rewrite="", strictness="cst"),
            {"rule": {"pattern": {"context": "f($A)", "strictness": "cst"}}, "fix": ""},
        ),
        (RuleAction(rule={"kind": "call"}, fix="x"), {"rule": {"kind": "call"}, "fix": "x"}),
        (
            RuleAction(
                rule={"matches": "u"},
                fix={"template": "$B"},
                constraints={"A": {"regex": "a"}},
                transform={"B": {"substring": {"source": "$A"}}},
                utils={"u": {"pattern": "f($A)"}},
            ),
            {
                "rule": {"matches": "u"},
                "fix": {"template": "$B"},
                "constraints": {"A": {"regex": "a"}},
                "transform": {"B": {"substring": {"source": "$A"}}},
                "utils": {"u": {"pattern": "f($A)"}},
            },
        ),
    ],
)
def test_an_action_means_a_rule(action: PatternAction | RuleAction, rule: dict[str, Any]) -> None:
    assert rule_of(action) == rule


@pytest.mark.parametrize(
    "action",
    [
        {"rule": {"kind": "call", "regex": "a" * 70_000}, "fix": ""},
        {"rule": {"kind": "call"}, "fix": "a" * 70_000},
        {"rule": {"kind": "call"}, "fix": "", "utils": {"u": {"regex": "a" * 70_000}}},
    ],
)
def test_a_rule_that_is_too_long_is_refused_as_a_whole(action: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="at most 65536 are accepted"):
        RuleAction(**action)


def test_a_rule_that_is_nested_too_deep_is_refused() -> None:
    rule: dict[str, Any] = {"kind": "call"}
    for _ in range(2_000):
        rule = {"not": rule}
    with pytest.raises(ValidationError, match=r"nested too deep|recursion"):
        RuleAction(rule=rule, fix="")
