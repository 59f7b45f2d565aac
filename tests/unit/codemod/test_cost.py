"""Description lengths, by hand: words 1, variables 0.5, signs 0.3."""

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.cost import description_length

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
