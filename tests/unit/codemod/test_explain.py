"""Rules in words."""

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.explain import explain, summarize


def test_a_pattern_is_explained_with_its_variables() -> None:
    action = PatternAction(pattern="old($A, $$$B, $_C)", rewrite="new($A)")
    assert explain(action) == [
        "Matches",
        "  code of the form `old($A, $$$B, $_C)`",
        "Variables",
        "  `$A`: any one node",
        "  `$$$B`: any number of nodes, none included, left out of what is written",
        "  `$_C`: any one node, not kept",
        "Writes `new($A)`",
    ]


def test_a_whole_rule_is_explained_part_by_part() -> None:
    action = RuleAction(
        rule={
            "pattern": {"context": "class C { f() {} }", "selector": "method_definition"},
            "inside": {"kind": "class_body", "stopBy": "end"},
            "any": [{"kind": "a"}, {"not": {"regex": "b"}}],
            "matches": "util",
        },
        fix={"template": "", "expandEnd": {"regex": ","}},
        constraints={"A": {"regex": "^x"}},
        transform={"N": {"replace": {"source": "$A", "replace": "a", "by": "b"}}},
        utils={"util": {"pattern": "f($A)"}},
    )
    assert explain(action) == [
        "Matches",
        "  the `method_definition` in code of the form `class C { f() {} }`",
        "  and inside (at any distance)",
        "    a node of kind `class_body`",
        "  and any of",
        "    - a node of kind `a`",
        "    - not",
        "        a text that the regular expression `b` finds something in",
        "  and what the utility `util` matches",
        "Utility `util` matches",
        "  code of the form `f($A)`",
        "Variables",
        "  `$A`: any one node",
        "    that is",
        "      a text that the regular expression `^x` finds something in",
        "  `$N`: the text of `$A` with `a` replaced by `b`",
        "Removes it",
        "Takes with it, after the match,",
        "  a text that the regular expression `,` finds something in",
    ]


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (PatternAction(pattern="a", rewrite="b"), "Replace `a` by `b`"),
        (PatternAction(pattern="a($A)", rewrite=""), "Remove `a($A)`"),
        (PatternAction(pattern="import a", rewrite="import a\nimport b"), "Insert `import b` after `import a`"),
        (PatternAction(pattern="import a", rewrite="import b\nimport a"), "Insert `import b` before `import a`"),
        (
            PatternAction(pattern="def f(a): pass", rewrite="(b)", selector="parameters"),
            "Replace the `parameters` of `def f(a): pass` by `(b)`",
        ),
        (
            RuleAction(
                rule={"pattern": "$A", "kind": "function_definition", "has": {"field": "name", "regex": "^f$"}},
                fix="$A\ng()",
            ),
            "Insert `g()` after `function_definition` whose name is `f`",
        ),
        (
            RuleAction(rule={"pattern": "a($A)", "inside": {"kind": "return_statement"}}, fix="b($A)"),
            "Replace `a($A)` inside a `return_statement` by `b($A)`",
        ),
        (
            RuleAction(
                rule={"pattern": "f($A, $B, $C)"},
                fix="g($A)",
                constraints={"A": {"regex": "^ctx$"}, "B": {"kind": "identifier"}, "C": {"regex": r"(^|\.)url$"}},
            ),
            "Replace `f($A, $B, $C)` by `g($A)`, where `$A` is `ctx` and `$B` is an `identifier` and `$C` ends in `url`",
        ),
        (
            RuleAction(
                rule={
                    "kind": "identifier",
                    "regex": "^get$",
                    "inside": {
                        "kind": "attribute",
                        "field": "attribute",
                        "has": {"field": "object", "regex": "^client$"},
                    },
                },
                fix="fetch",
            ),
            "Replace the name `get` inside the `attribute` of an `attribute` whose object is `client` by `fetch`",
        ),
        (
            RuleAction(
                rule={"all": [{"pattern": "f($A)"}, {"not": {"inside": {"kind": "call", "regex": r"^list\("}}}]},
                fix="list(f($A))",
            ),
            r"Replace `f($A)` not inside a `call` like `^list\(` by `list(f($A))`",
        ),
        (
            RuleAction(
                rule={"pattern": "$WHOLE", "kind": "comment", "regex": r"\ba\b"},
                fix="$T0",
                transform={"T0": {"replace": {"source": "$WHOLE", "replace": r"\ba\b", "by": "b"}}},
            ),
            r"Replace `\ba\b` by `b` in `comment` like `\ba\b`",
        ),
    ],
)
def test_a_rule_has_one_line_that_says_what_it_does(action: PatternAction | RuleAction, line: str) -> None:
    assert summarize(action) == line


@pytest.mark.parametrize(
    "rule", [{"inside": 3}, {"all": "x"}, {"pattern": {}}, {"not": {"has": []}}, {"nthChild": {"position": "2n"}}, {}]
)
def test_a_rule_that_ast_grep_would_refuse_is_still_explained(rule: dict[str, object]) -> None:
    assert explain(RuleAction(rule=rule, fix={}))[0] == "Matches"
    assert summarize(RuleAction(rule=rule, fix={}, constraints={"A": 1})).endswith(
        ", where `$A` has to meet a condition"
    )
