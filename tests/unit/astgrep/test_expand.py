"""What a fix writes: variables, lists, transformations and indentation."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.astgrep.expand import BeyondBindingError, InvalidActionError, Source, replacements


def replace(
    source: str, action: PatternAction | RuleAction, language: Language = "python"
) -> list[tuple[int, int, str]]:
    rule = rule_of(action)
    changes = replacements(Source.parse(source, language), rule)
    assert replace_all(source, [rule, *OTHER_RULES], language)[0] == changes
    return changes


OTHER_RULES: list[dict[str, Any]] = [
    {"rule": {"kind": "identifier", "regex": "^[a-z]$"}, "fix": "x"},
    {"rule": {"pattern": "nothing($A)"}, "fix": "$A"},
]


def replace_all(
    source: str, rules: Sequence[dict[str, Any]], language: Language = "python"
) -> list[list[tuple[int, int, str]]]:
    """Return what each rule replaces, after one look for the places of all of them."""
    parsed = Source.parse(source, language)
    parsed.look_for(rules)
    return [replacements(parsed, rule) for rule in rules]


def texts(source: str, pattern: str, rewrite: str, language: Language = "python") -> list[str]:
    changes = replace(source, PatternAction(pattern=pattern, rewrite=rewrite), language)
    return [text for _, _, text in changes]


def test_of_nested_matches_the_outermost_is_given() -> None:
    changes = replace("é(f(f(1)), f(2))\n", PatternAction(pattern="f($A)", rewrite="g($A)"))
    assert changes == [(2, 9, "g(f(1))"), (11, 15, "g(2)")]


@pytest.mark.parametrize(
    ("source", "pattern", "rewrite", "expected"),
    [
        ("f(1, 2)", "f($A, $B)", "f($B, $A)", "f(2, 1)"),
        ("f(1)", "f($A)", "$A$A", "11"),
        ("f(1)", "f($A)", "", ""),
        ("f(1)", "f($A)", "plain", "plain"),
        ("f(1,  2,3)", "f($$$ARGS)", "g($$$ARGS)", "g(1,  2,3)"),
        ("f()", "f($$$ARGS)", "g($$$ARGS)", "g()"),
        ("f(1, 2, 3)", "f($A, $$$REST)", "g($$$REST, $A)", "g(2, 3, 1)"),
        # a list variable is no single one, nor the other way round: both expand to nothing
        ("f(1, 2)", "f($$$A)", "g($A)", "g()"),
        ("f(1)", "f($A)", "g($$$A)", "g()"),
        # what is no variable stays
        ("f(1)", "f($A)", "$a $ $1 $$$ $$1 $A", "$a $ $1 $$$ $$1 1"),
        ("f(1)", "f($A)", "$Ab", "1b"),
        ("f(x + 1)", "f($A)", "($A)", "(x + 1)"),
        ("f('é', ü)", "f($A, $B)", "$B.$A", "ü.'é'"),
    ],
)
def test_variables_become_what_they_captured(source: str, pattern: str, rewrite: str, expected: str) -> None:
    assert texts(source + "\n", pattern, rewrite) == [expected]


NAMES, KINDS = ["f", "g", "x", "y", "print"], ["identifier", "call", "argument_list", "string", "expression_statement"]


class RuleGenerator:
    """Makes rules, good and bad, some of which share parts with those before."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def make_config(self, earlier: Sequence[dict[str, Any]]) -> dict[str, Any]:
        chance = self.random.random
        config = {**self.random.choice(earlier)} if earlier and chance() < 0.3 else {"rule": self.make_rule(2)}
        config |= {"constraints": {self.random.choice("AB"): self.make_rule(0)}} if chance() < 0.3 else {}
        config |= {"utils": {"own": self.make_rule(0)}} if chance() < 0.8 else {}
        replaced = {"replace": {"source": self.random.choice(["$A", "$$$A"]), "replace": "x", "by": "z"}}
        config |= {"transform": {"T": replaced}} if chance() < 0.3 else {}
        return {**config, "fix": self.random.choice(["new", "$A", "f($$$A)", "$T"])}

    def make_rule(self, depth: int) -> dict[str, Any]:
        chance, rule = self.random.random, self._make_part(depth)
        rule |= self._make_part(depth) if chance() < 0.3 else {}
        if depth and chance() < 0.4:
            relation = self.random.choice(["inside", "has", "not", "follows"])
            reach = {"stopBy": self.random.choice(["end", "neighbor"])} if relation != "not" else {}
            rule[relation] = {**self.make_rule(depth - 1), **reach}
        return rule

    def _make_part(self, depth: int) -> dict[str, Any]:
        name, kind = self.random.choice(NAMES), self.random.choice(KINDS)
        patterns = [name, f"{name}($A)", f"{name}($$$A)", "$F($A)", f"$A({name})", "$A"]
        parts: list[dict[str, Any]] = [{"pattern": pattern} for pattern in patterns]
        parts += [{"pattern": {"context": f"{name}($A)", "selector": kind}}, {"kind": kind}, {"regex": f"^{name}"}]
        parts += [{"kind": kind, "regex": f"^{name}"}, {"matches": "own"}]
        parts += [{key: [self.make_rule(depth - 1) for _ in range(2)]} for key in ("any", "all") if depth]
        return self.random.choice(parts)


def is_valid(rule: dict[str, Any]) -> bool:
    try:
        replacements(Source.parse("", "python"), rule)
    except (InvalidActionError, BeyondBindingError):
        return False
    return True


def replace_or_refuse(source: Source, rule: dict[str, Any]) -> list[tuple[int, int, str]] | str:
    try:
        return replacements(source, rule)
    except InvalidActionError:
        return "refused"


@pytest.mark.parametrize("seed", range(12))
def test_one_look_for_many_rules_changes_nothing_of_what_each_replaces(seed: int) -> None:
    generator, rules = RuleGenerator(seed), list[dict[str, Any]]()
    while len(rules) < 60:
        rules.append(generator.make_config(rules))
    valid = [rule for rule in rules if is_valid(rule)]
    assert 0 < len(valid) < len(rules)
    replaced = 0
    for count in (0, 1, 8):
        text = "# y\n" + f"'''{'y ' * 12_000}'''\n" + "print(f(g(x)), f(f(2)), 's')\nf('s', y)\n" * count
        alone, together = Source.parse(text, "python"), Source.parse(text, "python")
        for first in range(0, len(valid), 8):
            together.look_for(valid[first : first + 8])
        results = [replace_or_refuse(alone, rule) for rule in rules]
        assert [replace_or_refuse(together, rule) for rule in rules] == results
        replaced += sum(bool(result) and result != "refused" for result in results)
    assert replaced


def test_what_stands_beside_the_name_of_another_rule_is_looked_for_without_it() -> None:
    rule = {"rule": {"kind": "string", "any": [{"matches": "own"}], "regex": "s"}, "utils": {"own": {"kind": "string"}}}
    assert replace_all("y = 1\n" * 2_000 + "'s'\n", [{**rule, "fix": "new"}])[0] == [(12_000, 12_003, "new")]


@pytest.mark.parametrize(
    ("source", "pattern", "rewrite", "expected"),
    [
        # the lines of a rewrite stand under the line of the match
        ("if x:\n    f(1)\n", "f($A)", "g($A)\nh($A)", "g(1)\n    h(1)"),
        # of the line, not of the match itself
        ("if x:\n    y = f(1)\n", "f($A)", "g(\n    $A,\n)", "g(\n        1,\n    )"),
        # a captured block leaves its indentation, and takes that of its place in the rewrite
        ("if x:\n    f(a(\n        1))\n", "f($A)", "g(\n  $A)", "g(\n      a(\n          1))"),
        # lines that stand left of that of their block lose nothing, and are moved under the match all the same
        ("if x:\n    f('''a\n  b''')\n", "f($A)", "g($A)", "g('''a\n      b''')"),
        # an empty line of a rewrite is indented as well
        ("if x:\n  f(1)\n", "f($A)", "a\n\nb", "a\n  \n  b"),
        # tabs are no indentation
        ("if x:\n\tf(1)\n", "f($A)", "a\nb", "a\nb"),
    ],
)
def test_lines_are_indented_anew(source: str, pattern: str, rewrite: str, expected: str) -> None:
    assert texts(source, pattern, rewrite) == [expected]


def test_a_transformation_is_written_in_place_of_its_name() -> None:
    action = RuleAction(
        rule={"pattern": "$A.append($B)"},
        fix="$LOUD($INNER)",
        transform={
            "LOUD": {"convert": {"source": "$A", "toCase": "upperCase"}},
            "INNER": {"substring": {"source": "$B", "startChar": 1, "endChar": -1}},
        },
    )
    assert replace("été.append('x')\n", action) == [(0, 15, "ÉTÉ(x)")]


def test_a_transformation_may_read_another_one() -> None:
    action = RuleAction(
        rule={"pattern": "f($A)"},
        fix="$C",
        transform={
            "B": {"replace": {"source": "$A", "replace": "a", "by": "b"}},
            "C": {"replace": {"source": "$B", "replace": "b", "by": "c"}},
        },
    )
    assert replace("f(aab)\n", action) == [(0, 6, "ccc")]


@pytest.mark.parametrize(
    "action",
    [
        PatternAction(pattern="f($A)", rewrite="$B"),
        RuleAction(rule={"pattern": "f($A)"}, fix={"template": "", "expand": {"regex": ","}}),
    ],
    ids=["an undefined variable", "a fix with an unknown key"],
)
def test_what_cannot_be_expanded_exactly_is_refused_even_where_nothing_matches(
    action: PatternAction | RuleAction,
) -> None:
    with pytest.raises(InvalidActionError):
        replace("x\n", action)


@pytest.mark.parametrize(
    ("fix", "expected"),
    [
        ({"expandEnd": {"regex": ","}}, (2, 4)),
        ({"expandStart": {"regex": ","}}, (2, 3)),
        ({"expandStart": {"regex": "\\("}}, (1, 3)),
        ({"expandEnd": {"regex": "^c$", "stopBy": "end"}}, (2, 9)),
        ({"expandEnd": {"regex": "^c$", "stopBy": {"regex": "^b$"}}}, (2, 3)),
        ({"expandEnd": {"regex": "^b$", "stopBy": {"regex": "^b$"}}}, (2, 6)),
        ({"expandStart": {"regex": "\\("}, "expandEnd": {"regex": ","}}, (1, 4)),
    ],
)
def test_a_fix_may_take_what_stands_beside_the_match(fix: dict[str, Any], expected: tuple[int, int]) -> None:
    action = RuleAction(rule={"kind": "identifier", "regex": "^a$"}, fix={"template": "", **fix})
    # a is the first of three arguments
    assert [(start, end) for start, end, _ in replace("f(a, b, c)\n", action)] == [expected]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("f(1)  # ast-grep-ignore\n", {"fix": ""}),
        ("f(1)\n", {"fix": "$B", "transform": {"B": {"rewrite": {"source": "$A", "rewriters": ["r"]}}}}),
        ("f(1)\n", {"fix": {"template": "", "expandEnd": {"regex": ",", "field": "name"}}}),
    ],
)
def test_what_the_binding_would_answer_otherwise_is_told_apart(source: str, rule: dict[str, Any]) -> None:
    with pytest.raises(BeyondBindingError):
        replace(source, RuleAction(rule={"pattern": "f($A)"}, **rule))
