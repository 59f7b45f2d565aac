"""The other half of an edit of conditions: what says that `a` becomes `b` says that `not a` becomes `not b`.

$A.length() > 0  ->  !$A.isEmpty()        shown
$A.length() == 0  ->  $A.isEmpty()        follows, and so do `!= 0` and `< 1`, for no length is below 0
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from graftline.astgrep.action import RuleAction, rule_of
from graftline.astgrep.binding import JAVASCRIPT, Language, Node, parse
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.migration.option import Option, common_words
from graftline.core.errors import DataError

_OPPOSITES = {"==": "!=", "===": "!==", "<": ">=", ">": "<=", "is": "is not", "in": "not in"}
_OPPOSITES |= {new: old for old, new in _OPPOSITES.items()}
_LENGTH = re.compile(r"\b(?:length|size|count|len)\b(?:\([^()]*\))?$")
_IS_EMPTY, _HAS_SOME = ("== 0", "=== 0", "< 1"), ("> 0", "!= 0", "!== 0", ">= 1")
_NOT = ("!", "not ")
_ROOTS = {"expression_statement", "parenthesized_expression", "program", "module"}
_COMPARISONS = {"binary_expression", "comparison_operator"}
_NEGATIONS = {"unary_expression", "not_operator"}
_OPERANDS = {
    *("call", "call_expression", "method_invocation", "identifier", "attribute", "member_expression"),
    *("field_access", "subscript", "subscript_expression", "array_access"),
}


def add_negation(option: Option, language: Language) -> Option | None:
    """Return `option` with the rules for what its condition is the opposite of; None if it is about no condition."""
    [action, *further] = option.actions
    rule = rule_of(action)
    pattern, fix = rule["rule"].get("pattern"), rule["fix"]
    if further or rule["rule"].keys() != {"pattern"} or not (isinstance(pattern, str) and isinstance(fix, str)):
        return None
    pairs = dict(_list_forms(pattern, fix, language))
    if not pairs:
        return None
    actions = [
        action,
        *(RuleAction.model_validate({**rule, "rule": {"pattern": p}, "fix": f}) for p, f in pairs.items()),
    ]
    # of `!a`, the rule for `a` would write the inner part
    actions.sort(key=lambda action: not str(rule_of(action)["rule"]["pattern"]).startswith(_NOT))
    return replace(option, actions=tuple(actions), kind="condition", words=common_words(actions, language))


def _list_forms(pattern: str, fix: str, language: Language) -> Iterator[tuple[str, str]]:
    """Yield patterns for the opposite of `pattern`, or for the same condition, and what is to be written for them."""
    conditions = [_Condition.read(text, language) for text in (pattern, fix)]
    if None in conditions or not any(condition and condition.is_evident for condition in conditions):
        return
    opposites = [condition.opposite for condition in conditions if condition]
    if opposites[0] == opposites[1] or any(VARIABLE.fullmatch(opposite) for opposite in opposites):
        return  # a value alone is neither true nor false
    yield opposites[0], opposites[1]
    left, _, right = pattern.rpartition(" ")
    left, _, operator = left.rpartition(" ")
    if _LENGTH.search(left):
        own, other = (_IS_EMPTY, _HAS_SOME) if f"{operator} {right}" in _IS_EMPTY else (_HAS_SOME, _IS_EMPTY)
        is_script = language in JAVASCRIPT
        if f"{operator} {right}" in own:
            for forms, new in ((own, fix), (other, opposites[1])):
                usable = [form for form in forms if is_script or form[2] != "="]
                yield from ((f"{left} {form}", new) for form in usable if form != f"{operator} {right}")


class _Condition(NamedTuple):
    """An expression that is true or false."""

    opposite: str
    is_evident: bool
    """Whether it can be nothing else; a call or a name may have any value."""

    @classmethod
    def read(cls, text: str, language: Language) -> "_Condition | None":
        """Return the condition that a pattern is; None if it is none, or of several parts."""
        code = text.replace("$", "\u00b5") + (";" if language == "java" else "")
        try:
            tree = parse(code, language)
        except DataError:
            return None
        node: Node = tree.root
        while node.kind in _ROOTS and (named := [child for child in node.children if child.is_named]):
            if len(named) != 1:
                return None
            node = named[0]
        if not tree.is_clean or tree.of(node).replace("\u00b5", "$") != text:
            return None
        sign = "not " if language == "python" else "!"
        if node.kind in _NEGATIONS and node.children[0].kind == sign.strip():
            inner = node.children[1]
            while inner.kind == "parenthesized_expression":
                inner = inner.children[1]
            return cls(tree.of(inner).replace("\u00b5", "$"), True)
        if node.kind in _COMPARISONS and len(node.children) == 3:
            old = " ".join(tree.of(node.children[1]).split())
            sides = [tree.of(side).replace("\u00b5", "$") for side in (node.children[0], node.children[2])]
            return cls(f" {_OPPOSITES[old]} ".join(sides), True) if old in _OPPOSITES else None
        return cls(sign + text, False) if node.kind in _OPERANDS else None
