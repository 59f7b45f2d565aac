"""What is added to a rule that changes too much."""

from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.candidates import Candidate, generate_candidates
from graftline.codemod.change import Change
from graftline.codemod.judge import Judgment, judge
from graftline.codemod.repair import repair
from graftline.sandbox.actions.memory import MemorySandbox


def repairs(before: str, after: str, action: PatternAction, language: Language = "python") -> list[tuple[Any, bool]]:
    """Return the actions that `action`, a candidate for the first site, is repaired to, and whether each holds."""
    change = Change.between(before, after, language)
    candidate = next(one for one in generate_candidates(change, change.code_sites[0]) if one.action == action)
    found = repair(change, candidate, judgment_of(change, action))
    return [(one.action, judgment_of(change, one.action).holds) for one in found]


def judgment_of(change: Change, action: PatternAction | RuleAction) -> Judgment:
    return judge(change, *MemorySandbox().apply_many(change.before.text, change.language, [action]))


FREE = PatternAction(pattern="f($A)", rewrite="g($A)")


def test_a_variable_is_bound_to_the_kind_that_tells_right_from_wrong() -> None:
    found = repairs("f(1)\nf('a')\nf(2)\n", "g(1)\nf('a')\ng(2)\n", FREE)
    action = RuleAction(rule={"pattern": "f($A)"}, fix="g($A)", constraints={"A": {"kind": "integer"}})
    assert found[0] == (action, True)


def test_a_variable_is_bound_to_the_texts_that_tell_right_from_wrong() -> None:
    found = repairs("f(a.b)\nf(c)\nf(d)\n", "g(a.b)\nf(c)\ng(d)\n", FREE)
    action = RuleAction(rule={"pattern": "f($A)"}, fix="g($A)", constraints={"A": {"regex": "^(a\\.b|d)$"}})
    assert (action, True) in found


def test_a_definition_that_holds_the_right_matches_is_named() -> None:
    before = "def one():\n    f(1)\ndef two():\n    f(1)\n"
    found = repairs(before, before.replace("f(1)", "g(1)", 1), FREE)
    inside = {"kind": "function_definition", "has": {"field": "name", "regex": "^one$"}, "stopBy": "end"}
    action = RuleAction(rule={"all": [{"pattern": "f($A)"}, {"inside": inside}]}, fix="g($A)")
    assert found[0] == (action, True)


def test_the_statement_beside_it_tells_a_match_from_its_likes() -> None:
    found = repairs("a()\nf(1)\nb()\nf(1)\n", "a()\ng(1)\nb()\nf(1)\n", FREE)
    assert [holds for action, holds in found if "follows" in str(action)] == [True]
    assert [holds for action, holds in found if "precedes" in str(action)] == [True]


def test_a_match_among_its_likes_is_known_by_its_number() -> None:
    found = repairs("f(1)\n" * 4, "f(1)\nf(1)\ng(1)\nf(1)\n", FREE)
    [(action, holds)] = [(action, holds) for action, holds in found if "nthChild" in str(action)]
    assert (action.rule["all"][1]["inside"]["nthChild"]["position"], holds) == (3, True)


def test_of_very_many_likes_none_is_known_by_its_number() -> None:
    # 501 matches among 501 statements are more than are counted
    found = repairs("f(1)\n" * 501, "g(1)\n" + "f(1)\n" * 500, FREE)
    assert not any("nthChild" in str(action) for action, _ in found)


def test_signs_of_regular_expressions_in_what_is_quoted_stand_for_themselves() -> None:
    found = repairs("f('.*')\nf('ab')\nf(1)\n", "g('.*')\nf('ab')\ng(1)\n", FREE)
    action = RuleAction(rule={"pattern": "f($A)"}, fix="g($A)", constraints={"A": {"regex": "^('\\.\\*'|1)$"}})
    assert (action, True) in found


def test_a_candidate_without_a_right_match_is_not_repaired() -> None:
    change = Change.between("f(1)\n", "g(1)\n", "python")
    candidate: Candidate = next(generate_candidates(change, change.code_sites[0]))
    assert list(repair(change, candidate, Judgment(frozenset(), 0, (), (), 0))) == []
