"""The parser and the matcher: their bounds, and that no rule makes the matcher raise."""

import json
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import (
    LANGUAGES,
    MAX_DEPTH,
    MAX_SOURCE_CHARACTERS,
    Language,
    find_all,
    matches,
    parse,
    rules_document,
)
from graftline.core.errors import DataError


def test_nodes_are_spans_of_characters() -> None:
    tree = parse("é = f('日本')\n", "python")
    texts = [(node.kind, tree.of(node)) for node in tree.root.walk() if node.is_named]
    assert texts == [
        ("module", "é = f('日本')\n"),
        ("expression_statement", "é = f('日本')"),
        ("assignment", "é = f('日本')"),
        ("identifier", "é"),
        ("call", "f('日本')"),
        ("identifier", "f"),
        ("argument_list", "('日本')"),
        ("string", "'日本'"),
        ("string_start", "'"),
        ("string_content", "日本"),
        ("string_end", "'"),
    ]


def test_children_know_their_parent_and_place() -> None:
    tree = parse("f(1, 2)\n", "python")
    places = [
        (node.parent.children[node.index] is node, node.parent.start <= node.start <= node.end <= node.parent.end)
        for node in tree.root.walk()
        if node.parent
    ]
    assert set(places) == {(True, True)}


@pytest.mark.parametrize("text", ["", "\n", "  \n  ", "\r\n", "\ufeffx = 1\n", "\x00"])
def test_the_root_spans_all_of_the_text(text: str) -> None:
    root = parse(text, "python").root
    assert (root.start, root.end, root.parent) == (0, len(text), None)


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("f(1)\n", "python", True),
        ("", "python", True),
        ("x = ''\ny = ()\nz = f''\n", "python", True),
        ("class A: ...\n", "python", True),
        ("const a = '', b = ``, c = {}, d = [], e = () => {};\n", "javascript", True),
        ("const a = <b></b>;\n", "tsx", True),
        ('class A { String a = ""; void f() {} }\n', "java", True),
        ("f(1\n", "python", False),
        ("x = = 1\n", "python", False),
        ("function f() { return 1;\n", "javascript", False),
        ("class A { int a }\n", "java", False),
        # a method of a class, read alone
        ("void f() { g(); }\n", "javascript", False),
    ],
)
def test_a_tree_is_clean_where_the_parser_understood_all(text: str, language: Language, expected: bool) -> None:
    assert parse(text, language).is_clean is expected


def test_the_longest_source_is_parsed_and_one_character_more_is_not() -> None:
    line = "#" + "é" * 1022 + "\n"
    longest = line * (MAX_SOURCE_CHARACTERS // len(line))
    assert parse(longest, "python").root.end == 524_288
    with pytest.raises(DataError) as caught:
        parse(longest + "#", "python")
    assert str(caught.value) == "source of 524289 characters; at most 524288 are parsed"


def test_the_deepest_source_is_parsed_and_one_level_more_is_not() -> None:
    # module, expression_statement, then one level a sign, then the number
    deepest = "-" * (MAX_DEPTH - 3) + "1"
    assert max(depth_of(node) for node in parse(deepest, "python").root.walk()) == MAX_DEPTH
    with pytest.raises(DataError) as caught:
        parse("-" + deepest, "python")
    assert str(caught.value) == "source is nested deeper than 300 levels"


def depth_of(node: Any) -> int:
    depth = 1
    while node.parent is not None:
        node, depth = node.parent, depth + 1
    return depth


@pytest.mark.parametrize("text", ["x = '\ud800'\n", "\udfff", "x" * 1000 + "\udc80"])
def test_a_lone_surrogate_is_refused(text: str) -> None:
    with pytest.raises(DataError) as caught:
        parse(text, "python")
    assert str(caught.value) == "source holds a lone surrogate; expected valid Unicode"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"pattern": "f($A)"}, True),
        ({"kind": "call"}, True),
        ({"kind": "call", "regex": "^f"}, True),
        ({"pattern": {"context": "x = f($A)", "selector": "call"}}, True),
        ({"pattern": "g($A)"}, False),
        ({"kind": "identifier"}, False),
        # a pattern of the whole statement is not this node
        ({"pattern": "x = f($A)"}, False),
    ],
)
def test_a_rule_matches_exactly_this_node(rule: dict[str, Any], expected: bool) -> None:
    tree = parse("x = f(1)\n", "python")
    [call] = [node for node in tree.root.walk() if node.kind == "call"]
    assert matches(call, rule) is expected


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"kind": "no_such_kind"},
        {"kind": 1},
        {"pattern": ""},
        {"pattern": "f(\ud800)"},
        {"pattern": "a\nb"},
        {"pattern": {"context": "f()"}},
        {"pattern": {"context": "f()", "selector": "no_such_kind"}},
        {"pattern": {"selector": "call"}},
        {"regex": "("},
        {"regex": "(?=a)"},
        {"no_such_key": 1},
        {"matches": "undefined"},
        {"nthChild": -1},
        {"nthChild": "nonsense"},
        {"has": {"stopBy": "nowhere", "kind": "call"}},
        {"all": "call"},
        {"not": {}},
        {"range": {"start": {"line": 9, "column": 9}, "end": {"line": 0, "column": 0}}},
        {"pattern": None},
    ],
)
def test_an_invalid_rule_matches_nothing_and_raises_nothing(rule: dict[str, Any]) -> None:
    tree = parse("x = f(1)\n", "python")
    assert {matches(node, rule) for node in tree.root.walk()} == {False}


def test_find_all_goes_through_the_text_in_order() -> None:
    tree = parse("f(f(1))\nf(2)\n", "python")
    assert [match.text() for match in find_all(tree.root, {"pattern": "f($A)"})] == ["f(f(1))", "f(1)", "f(2)"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_is_parsed(language: Language) -> None:
    assert parse("", language).root.end == 0


def test_actions_become_numbered_rules_in_one_document() -> None:
    actions = [PatternAction(pattern="f($A)", rewrite="---\nid: x"), RuleAction(rule={"kind": "call"}, fix="\u2028é")]
    first, second = rules_document(actions, "java").split("\n---\n")
    assert json.loads(first) == {"id": "a0", "language": "java", "rule": {"pattern": "f($A)"}, "fix": "---\nid: x"}
    assert second == '{"id": "a1", "language": "java", "rule": {"kind": "call"}, "fix": "\\u2028\\u00e9"}'


def test_a_line_that_is_too_long_is_not_parsed() -> None:
    # 10,000 characters are: the parser's time grows with the square
    assert parse("a" * 10_000 + "\n", "python").is_clean
    with pytest.raises(DataError, match="a line of 10001 characters; at most 10000 are parsed"):
        parse("x = 1\n" + "a" * 10_001, "python")
