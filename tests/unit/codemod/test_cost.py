"""Description lengths, by hand (words 1, variables 0.5, signs 0.3), and what an action leaves free."""

from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.cost import count_free_parts, description_length, is_general, patterns_of

LENGTHS: dict[str, tuple[PatternAction | RuleAction, float]] = {
    # old ( $A ) -> new ( $A ): twice 1 + 0.3 + 0.5 + 0.3
    "a variable": (PatternAction(pattern="old($A)", rewrite="new($A)"), 4.2),
    # twice 1 + 0.3 + 1 + 0.3, and 14 for what memorises
    "no variable": (PatternAction(pattern="old(a)", rewrite="new(a)"), 5.2 + 14),
    # $A = $B -> $A = $B: twice 0.5 + 0.3 + 0.5; the selector 4
    "a selector": (PatternAction(pattern="$A = $B", rewrite="$A = $B", selector="assignment"), 2.6 + 4),
    # $A newline b -> b: 0.5 + 1 + 1, and 4 for the second line
    "a second line": (PatternAction(pattern="$A\nb", rewrite="b"), 2.5 + 4),
    # nothing is written: f ( $A ) alone
    "a deletion": (PatternAction(pattern="f($A)", rewrite=""), 2.1),
    # {" pattern ":" f ( $A ) "}: 2 words, a variable and 9 signs
    "a rule": (RuleAction(rule={"pattern": "f($A)"}, fix=""), 5.2),
}


@pytest.mark.parametrize(("action", "length"), LENGTHS.values(), ids=LENGTHS)
def test_a_length_is_what_the_words_and_signs_come_to(action: PatternAction | RuleAction, length: float) -> None:
    assert round(description_length(action), 6) == length


def test_constraints_cost_more_than_what_they_say() -> None:
    free = RuleAction(rule={"pattern": "f($A)"}, fix="g($A)")
    bound = RuleAction(rule={"pattern": "f($A)"}, fix="g($A)", constraints={"A": {"kind": "integer"}})
    # 6, and { " A " : { " kind " : " integer " } } with 3 words and 12 signs
    assert round(description_length(bound) - description_length(free), 6) == 12.6


def test_the_order_of_keys_does_not_matter() -> None:
    one = RuleAction(rule={"kind": "comment", "regex": "^a$"}, fix="b")
    other = RuleAction(rule={"regex": "^a$", "kind": "comment"}, fix="b")
    assert description_length(one) == description_length(other)


def test_a_long_regular_expression_costs_more() -> None:
    short, long = ({"kind": "comment", "regex": "a" * length} for length in (40, 41))
    assert description_length(RuleAction(rule=long, fix="")) - description_length(RuleAction(rule=short, fix="")) == 3


PATTERNS = {"f(a)": 0, "f($A)": 1, "f($A, $A)": 1, "f($A, $$$B)": 2, "$A": 1, "f('cost: 3$')": 0, "f($a)": 0}


@pytest.mark.parametrize(("pattern", "number"), PATTERNS.items(), ids=PATTERNS)
def test_a_pattern_leaves_its_variables_free(pattern: str, number: int) -> None:
    action = PatternAction(pattern=pattern, rewrite="x")
    assert (count_free_parts(action), is_general(action)) == (number, number > 0)


RULES: dict[str, tuple[dict[str, Any], int]] = {
    "the text of a leaf": ({"kind": "comment", "regex": "^# a$"}, 0),
    "a fragment of a text": ({"kind": "comment", "regex": "a"}, 1),
    "how a text begins": ({"kind": "comment", "regex": "^# a"}, 1),
    # the last sign is one of the text
    "how a text begins, with a dollar": ({"kind": "comment", "regex": "^# a\\$"}, 1),
    "a name": ({"kind": "function_definition", "has": {"field": "name", "regex": "^f$"}}, 1),
    "a capture of all of it": ({"pattern": "$A", "kind": "comment", "regex": "^# a$"}, 0),
    "a capture of all of a named thing": ({"pattern": "$A", "kind": "call", "has": {"regex": "^f$"}}, 1),
    "variables in a context": ({"pattern": {"context": "f(a=$A)", "selector": "keyword_argument"}}, 1),
    "a literal in a context": ({"pattern": {"context": "f(a=1)", "selector": "keyword_argument"}}, 0),
    "a variable of a neighbor": ({"all": [{"pattern": "import os"}, {"precedes": {"pattern": "$N"}}]}, 0),
    "variables of several parts": ({"all": [{"pattern": "f($A)"}, {"any": [{"pattern": "$B.g($C)"}]}]}, 3),
    "a variable of what is around": ({"pattern": "f(a)", "inside": {"pattern": "g($A)"}}, 0),
}


@pytest.mark.parametrize(("rule", "number"), RULES.values(), ids=RULES)
def test_a_rule_leaves_free_what_it_asks_of_the_match_itself(rule: dict[str, Any], number: int) -> None:
    assert count_free_parts(RuleAction(rule=rule, fix="")) == number


MALFORMED: dict[str, tuple[Any, list[str]]] = {
    "a number for a list": ({"all": 5}, []),
    "a text for a list": ({"any": "x"}, []),
    "a mapping for a list": ({"any": {"pattern": "f($A)"}}, []),
    "a list of other things": ({"all": [5, None, "f($A)", [{"pattern": "f($A)"}], {"pattern": "g"}]}, ["g"]),
    "a pattern that is no text": ({"pattern": ["f($A)"]}, []),
    "a context that is no text": ({"pattern": {"context": {"pattern": "f($A)"}}}, []),
    "nonsense below nonsense": ({"all": [{"any": [{"all": {"any": [7]}}, {"pattern": None}]}]}, []),
    "a regular expression that is none": ({"kind": "call", "regex": {"not": []}}, []),
}


@pytest.mark.parametrize(("rule", "patterns"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_rule_has_the_patterns_that_can_be_read(rule: dict[str, Any], patterns: list[str]) -> None:
    assert list(patterns_of(rule)) == patterns
    # what cannot be read says nothing of the match, so that it is left free; the pattern `g` has no variable
    assert count_free_parts(RuleAction(rule=rule, fix="")) == (0 if patterns else 1)


@pytest.mark.parametrize("rule", [None, 5, "f($A)", [{"pattern": "f($A)"}]])
def test_what_is_no_rule_has_no_patterns(rule: Any) -> None:
    assert list(patterns_of(rule)) == []
