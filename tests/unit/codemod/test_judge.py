"""What a candidate did, held against what was wanted."""

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.change import Change
from graftline.codemod.judge import Judgment, judge
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import Match, SandboxResult, Verdict


def judgment(
    before: str, after: str, action: PatternAction | RuleAction, language: Language = "python"
) -> tuple[list[str], list[str], Judgment]:
    """Return the texts of the right and of the wrong matches of `action`, and all that is judged of it."""
    [result] = MemorySandbox().apply_many(before, language, [action])
    found = judge(Change.between(before, after, language), result)
    right, wrong = ([before[match.start : match.end] for match in matches] for matches in (found.right, found.wrong))
    return right, wrong, found


def test_a_match_is_right_if_all_that_it_changes_is_wanted() -> None:
    before, after = "f(1)\nf(2)\nf(g)\n", "g(1)\nf(2)\ng(g)\n"
    right, wrong, found = judgment(before, after, PatternAction(pattern="f($A)", rewrite="g($A)"))
    assert (right, wrong) == (["f(1)", "f(g)"], ["f(2)"])
    assert (found.fixed, found.real, found.holds) == (frozenset({0, 1}), 2, False)


def test_a_match_that_leaves_its_text_as_it_was_is_neither_right_nor_wrong() -> None:
    right, wrong, found = judgment("f(1)\nf(2)\n", "f(1)\nf(3)\n", PatternAction(pattern="f($A)", rewrite="f($A)"))
    assert (right, wrong, found.holds) == ([], [], False)


def test_of_several_changes_within_a_match_some_are_enough() -> None:
    action = PatternAction(pattern="f($A, $B)", rewrite="g($A, $B)")
    assert judgment("f(1, 2)\n", "g(1, 3)\n", action)[2] == Judgment(
        frozenset({0}), 1, (Match(0, 7, "g(1, 2)"),), (), 0
    )


def test_a_change_that_is_wanted_together_with_one_that_is_not_is_wrong() -> None:
    action = PatternAction(pattern="f($A, 2)", rewrite="g($A, 4)")
    assert judgment("f(1, 2)\n", "g(1, 3)\n", action)[:2] == ([], ["f(1, 2)"])


SECOND = {"kind": "expression_statement", "regex": "^b"}
DELETIONS = {
    # the line break that goes is the one before the thing, in the example it is the one after it: the texts are equal
    "with the line before it": RuleAction(
        rule={"all": [SECOND, {"follows": {"pattern": "$P"}}]}, fix={"template": "$P", "expandStart": {"pattern": "$P"}}
    ),
    "with the line after it": RuleAction(
        rule={"all": [SECOND, {"precedes": {"pattern": "$N"}}]}, fix={"template": "$N", "expandEnd": {"pattern": "$N"}}
    ),
}


@pytest.mark.parametrize("action", DELETIONS.values(), ids=DELETIONS)
def test_a_line_may_go_with_the_break_before_it_or_after_it(action: RuleAction) -> None:
    before, after = "def f():\n    a(1)\n    b(2)\n    c(3)\n", "def f():\n    a(1)\n    c(3)\n"
    _, wrong, found = judgment(before, after, action)
    assert (wrong, found.holds, found.real, found.untidy) == ([], True, 1, 0)


def test_the_last_line_of_a_block_may_go_with_the_break_before_it() -> None:
    before, after = "class A {\n  a() {}\n  b() {}\n}\n", "class A {\n  a() {}\n}\n"
    action = RuleAction(
        rule={
            "all": [{"kind": "method_definition", "has": {"field": "name", "regex": "^b$"}}, {"follows": {"pattern": "$P"}}]
        },
        fix={"template": "$P", "expandStart": {"pattern": "$P"}},
    )  # fmt: skip
    _, wrong, found = judgment(before, after, action, "javascript")
    assert (wrong, found.holds, found.untidy) == ([], True, 0)


def test_a_deletion_that_leaves_its_line_is_right_and_untidy() -> None:
    before, after = "a(1)\nb(2)\nc(3)\n", "a(1)\nc(3)\n"
    found = judgment(before, after, PatternAction(pattern="b(2)", rewrite=""))[2]
    assert (found.holds, found.real, found.untidy) == (True, 1, 1)


def test_blanks_that_a_rewrite_leaves_at_the_end_of_a_line_are_not_held_against_it() -> None:
    before, after = "if x:\n    a()\n    c()\n", "if x:\n    a()\n\n    b()\n\n    c()\n"
    # ast-grep writes four blanks on the last line of the insertion
    found = judgment(before, after, PatternAction(pattern="a()", rewrite="a()\n\nb()\n"))[2]
    assert (found.holds, found.wrong) == (True, ())


def test_the_indentation_that_follows_a_change_is_more_than_blanks() -> None:
    # one more blank before it and the statement is part of the block
    before, after = "if x:\n    a()\nb()\n", "if x:\n    c()\nb()\n"
    action = RuleAction(
        rule={"kind": "if_statement"}, fix={"template": "if x:\n    c()\n    b()", "expandEnd": {"pattern": "b()"}}
    )
    found = judgment(before, after, action)[2]
    assert (found.holds, len(found.wrong)) == (False, 1)


@pytest.mark.parametrize("verdict", [one for one in Verdict if one is not Verdict.OK])
def test_what_was_not_applied_is_neither_right_nor_wrong(verdict: Verdict) -> None:
    result = SandboxResult(verdict, None, MemorySandbox().isolation, matches=(Match(0, 1, "b"),))
    found = judge(Change.between("a\n", "b\n", "python"), result)
    assert found == Judgment(frozenset(), 0, (), (), 0)
