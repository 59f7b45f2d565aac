"""Progress, counted by hand, and which actions count as general."""

import pytest

from graftline.actions.action import PatternAction, RuleAction
from graftline.errors import DataError
from graftline.rules.equality import Level
from graftline.rules.grade import Grade, difference_cost, grade, is_general


@pytest.mark.parametrize(
    ("before", "after", "cost"),
    [
        ("f(a)\n", "f(a)\n", 0),
        # f goes, g comes
        ("f(a)\n", "g(a)\n", 2),
        # and a goes, b comes
        ("f(a)\n", "g(b)\n", 4),
        # a, ( and ) go
        ("a()\nb()\n", "b()\n", 3),
        # the comma and b come
        ("f(a)\n", "f(a, b)\n", 2),
        # white space is nothing
        ("f(a,b)\n", "f(a, b)\n", 0),
        # a string is one place: ' stays, two words go, two come
        ("x = 'a b'\n", "x = 'c d'\n", 4),
        # f(a) is one node that another wraps: f ( a ) go, g ( f ( a ) ) come
        ("f(a)\n", "g(f(a))\n", 11),
    ],
)
def test_the_cost_of_a_difference_is_the_tokens_that_go_and_come(before: str, after: str, cost: int) -> None:
    assert difference_cost(before, after, "python") == cost


@pytest.mark.parametrize(
    ("before", "text", "wanted", "expected"),
    [
        ("f(a)\n", "g(b)\n", "g(b)\n", Grade(Level.EXACT, 1.0)),
        ("f(a)\n", "g(b)  \n", "g(b)\n", Grade(Level.BLANKS, 1.0)),
        ("f(a)\n", "g( b,)\n", "g(b)\n", Grade(Level.TREE, 1.0)),
        # 2 of 4 tokens are left
        ("f(a)\n", "g(a)\n", "g(b)\n", Grade(Level.PARTIAL, 0.5)),
        # a, b, c to d, e, f costs 6; with one of them done 4 are left: 1 - 4/6
        ("f(a, b, c)\n", "f(d, b, c)\n", "f(d, e, f)\n", Grade(Level.PARTIAL, 0.333333)),
        ("f(a)\n", "f(a)\n", "g(b)\n", Grade(Level.NONE, 0.0)),
        # another wrong name is as far away
        ("f(a)\n", "h(a)\n", "g(b)\n", Grade(Level.NONE, 0.0)),
        # 2 were to do and 4 are now
        ("f(a)\n", "h(b)\n", "g(a)\n", Grade(Level.NONE, 0.0)),
        # one right and one wrong: 2 of 2 are left
        ("f(a)\n", "g(b)\n", "g(a)\n", Grade(Level.NONE, 0.0)),
        # nothing was to do
        ("f(a)\n", "g(a)\n", "f(a)\n", Grade(Level.NONE, 0.0)),
        # an empty text is far from everything
        ("f(a)\n", "", "g(a)\n", Grade(Level.NONE, 0.0)),
    ],
)
def test_a_text_is_graded_by_what_is_left_to_do(before: str, text: str, wanted: str, expected: Grade) -> None:
    found = grade(before, text, wanted, "python")
    assert found == expected
    assert found.is_verified is (found.progress == 1.0)


def test_a_dedented_statement_is_not_verified_however_near_it_is() -> None:
    wanted = "if a:\n    b(1)\n    c(1)\n"
    found = grade("if a:\n    b(0)\n    c(1)\n", "if a:\n    b(1)\nc(1)\n", wanted, "python")
    assert found.is_verified is False


def test_a_text_too_deep_to_be_read_is_an_error_of_the_data() -> None:
    with pytest.raises(DataError):
        grade("f(a)\n", "-" * 400 + "1\n", "g(a)\n", "python")


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (PatternAction(pattern="f($A)", rewrite="g($A)"), True),
        (PatternAction(pattern="f($$$ARGS)", rewrite="g($$$ARGS)"), True),
        (PatternAction(pattern="f($_)", rewrite="g()"), True),
        (PatternAction(pattern="f(a)", rewrite="g(a)"), False),
        # a variable in the rewrite alone frees nothing, and $a is none
        (PatternAction(pattern="f($a)", rewrite="g($A)"), False),
        (RuleAction(rule={"pattern": "f($A)"}, fix="g($A)"), True),
        (RuleAction(rule={"pattern": "f($B)"}, fix="g($B)"), True),
        (RuleAction(rule={"kind": "call", "has": {"pattern": "f($B)"}}, fix="g($B)"), True),
        (RuleAction(rule={"kind": "identifier", "regex": "^a$"}, fix="b"), False),
        # what captures the whole node to keep it frees nothing
        (RuleAction(rule={"pattern": "$A", "kind": "comment", "regex": "^# a"}, fix="$A\n# b"), False),
    ],
)
def test_an_action_is_general_where_its_matcher_leaves_something_free(
    action: PatternAction | RuleAction, expected: bool
) -> None:
    assert is_general(action) is expected
