"""Actions in words, quotations and numbers; and where in a text something stands."""

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, parse
from graftline.rollouts.teachers.wording import (
    count_noun,
    describe_action,
    find_capture,
    join_words,
    line_text,
    lines_with,
    name_lines,
    names_around,
    quote,
    shorten,
    telling_word,
    texts_of,
)

DESCRIBED = {
    "`f($A)`": PatternAction(pattern="f($A)", rewrite=""),
    "`k=$V` as `keyword_argument`": PatternAction(pattern="f(k=$V)", rewrite="", selector="keyword_argument"),
    "every identifier `a.b`": RuleAction(rule={"kind": "identifier", "regex": "^a\\.b$"}, fix=""),
    "every comment with `TODO` in it": RuleAction(rule={"kind": "comment", "regex": "TODO"}, fix=""),
    "every function_definition named `f`": RuleAction(
        rule={"pattern": "$A", "kind": "function_definition", "has": {"field": "name", "regex": "^f$"}}, fix=""
    ),
    "`f()` inside every class_definition": RuleAction(
        rule={"pattern": "f()", "inside": {"kind": "class_definition", "stopBy": "end"}}, fix=""
    ),
    "`f()` before anything": RuleAction(rule={"all": [{"pattern": "f()"}, {"precedes": {"pattern": "$N"}}]}, fix=""),
    "`f()` or `g()`": RuleAction(rule={"any": [{"pattern": "f()"}, {"pattern": "g()"}]}, fix=""),
    "`f($A)` but not `f(1)`": RuleAction(rule={"pattern": "f($A)", "not": {"pattern": "f(1)"}}, fix=""),
    "…": RuleAction(rule={"nthChild": 1}, fix=""),
}


@pytest.mark.parametrize("words", DESCRIBED)
def test_an_action_is_described_by_what_it_matches(words: str) -> None:
    assert describe_action(DESCRIBED[words]) == words


def test_a_description_is_short_whatever_the_pattern() -> None:
    assert len(describe_action(PatternAction(pattern="f(" + "x, " * 500 + ")", rewrite=""))) <= 160


def test_the_texts_of_an_action_leave_its_surroundings_out() -> None:
    assert texts_of(PatternAction(pattern="def f(x=$V): pass", rewrite="", selector="default_parameter")) == ["x=$V"]


def test_quotations_are_one_line_and_short() -> None:
    assert quote("a\n   b") == "`a b`"
    assert shorten("x" * 10, 5) == "xxxx…"


def test_numbers_agree_with_their_nouns() -> None:
    assert [count_noun(1, "match"), count_noun(2, "match"), count_noun(0, "place")] == [
        "1 match",
        "2 matches",
        "0 places",
    ]
    assert join_words(["a"]) == "a"
    assert name_lines([3]) == "line 3"
    assert name_lines([1, 2, 3, 4, 5, 6]) == "lines 1, 2, 3, 4 and 2 more"


NAMES: dict[Language, tuple[str, str]] = {
    "python": ("class A:\n    def f(self):\n        here\n", "A.f"),
    "javascript": ("class A {\n  f() {\n    here;\n  }\n}\n", "A.f"),
    "typescript": ("function f() { return here; }\n", "f"),
    "java": ("class A { void f() { here(); } }\n", "A.f"),
}


@pytest.mark.parametrize("language", NAMES)
def test_a_place_is_named_by_the_definitions_round_it(language: Language) -> None:
    text, names = NAMES[language]
    assert names_around(parse(text, language), text.index("here")) == names


def test_the_telling_word_is_the_rarest_name_and_not_prose_or_grammar() -> None:
    text = "read(a)\nread(b)\nload('read of it', a)\n"
    assert telling_word(text, ["return load('it', $A, read)"]) == "load"
    assert telling_word(text, ["return 'it'"]) == "it"
    assert telling_word(text, ["return $A"]) == ""


def test_whole_words_are_found_by_line() -> None:
    assert lines_with("ab\na b\nb.a\n", "a") == [2, 3]
    assert (line_text(" x\ny", 1), line_text("x", 2)) == ("x", "")


def test_what_a_variable_stands_for_is_read_from_the_text() -> None:
    tree = parse("f(1, 2)\n", "python")
    assert find_capture(tree, 0, "f($A, $B)", "$B") == "2"
    assert find_capture(tree, 0, "f($$$A)", "$$$A") == "1, 2"
    assert find_capture(tree, 2, "f($A, $B)", "$B") == ""
