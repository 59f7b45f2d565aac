"""Operators that would bind otherwise where a rule puts operands beside them: brackets, as somebody would write them.

`both($A, $B)` -> `$A & $B` makes `both(k or m, n)` into `k or m & n`, and `~both(a, b)` into `~a & b`. ast-grep writes texts, not
trees. Whether brackets are needed is told by the tree of the new text: what is an operand has to be a node of it.
"""

import re
from collections.abc import Mapping

from graftline.astgrep.action import rule_of, template_of
from graftline.astgrep.binding import Language, captures_of, outline_once
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.migration.option import Rule
from graftline.core.errors import DataError
from graftline.sandbox.base import Match

_WORDS = "and|or|not|in|is|if|else|await|typeof|void|delete|instanceof|as|lambda|yield"
_SIGNS = r"=>|->|==|!=|:=|<=|>=|&&|\|\||[-+*/%&|^<>~?@!]"
_OPERATOR = re.compile(rf"\b(?:{_WORDS})\b|{_SIGNS}")
_LEFT = re.compile(rf"(\b(?:{_WORDS}|new)|[=!:<>]=|&&|\|\||(?<![-=])>|[-+*/%&|^<~?@!.])\s*\Z")
_RIGHT = re.compile(rf"\s*((?:{_WORDS})\b|{_SIGNS}|[.(\[])")
_ASSOCIATIVE = frozenset(("|", "&", "and", "or", "&&", "||"))
_STRING = re.compile(r"""(['"`])(?:\\.|(?!\1).)*\1""", re.DOTALL)
_BRACKETS = re.compile(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}")
_BLOCK = re.compile(r"(?:if|for|while|with|try|def|class)\b[^\n]*[:{]\s*\n")
_MAX_CHARACTERS = 2_000
"""Of a replacement: longer ones are statements, not operands."""
_NEAR = 16
"""Characters before an operand in which its operator stands."""


class Precedence:
    """What one rule writes over a text, in brackets where its operators would bind otherwise."""

    def __init__(self, text: str, action: Rule, language: Language) -> None:
        self._text, self._language, self._rule = text, language, rule_of(action)
        self._template = template_of(self._rule["fix"])
        self._operators = len(_list_operators(VARIABLE.sub("x", self._template)))
        self._captures: Mapping[int, Mapping[str, tuple[str, str]]] | None = None

    def keep(self, match: Match) -> Match | None:
        """Return a match whose replacement says what it is meant to; None where brackets do not help."""
        new = match.replacement
        if len(new) > _MAX_CHARACTERS or not _OPERATOR.search(new):
            return match
        operators = _list_operators(new)
        if not operators:
            return match
        if len(operators) > self._operators:
            new = self._bracket_captures(match)
        if _BLOCK.match(new) and _BLOCK.match(self._text, match.start):
            return Match(match.start, match.end, new)  # a statement is no operand
        whole = self._text[: match.start] + new + self._text[match.end :]
        if self._binds(whole, match.start, match.start + len(new)):
            return Match(match.start, match.end, new)
        if not _is_node(self._text, match.start, match.end, self._language):
            return Match(match.start, match.end, new)
        whole = f"{self._text[: match.start]}({new}){self._text[match.end :]}"
        helps = _is_node(whole, match.start, match.start + len(new) + 2, self._language)
        return Match(match.start, match.end, f"({new})") if helps else None

    def _bracket_captures(self, match: Match) -> str:
        """Return the replacement with brackets around captures that would be torn apart."""
        if self._captures is None:
            names = [name[1:] for name in dict.fromkeys(VARIABLE.findall(self._template)) if name[:2] != "$$"]
            tree = outline_once(self._text, self._language)
            self._captures = captures_of(tree.root, self._rule, names)
        captures = self._captures.get(match.start, {})
        pieces, spans, position, length = list[str](), list[tuple[int, int]](), 0, 0
        for variable in VARIABLE.finditer(self._template):
            if variable[0][1:] not in captures:
                return match.replacement
            _, capture = captures[variable[0][1:]]
            pieces += [self._template[position : variable.start()], capture]
            length += len(pieces[-2]) + len(capture)
            spans.append((length - len(capture), length))
            position = variable.end()
        new = "".join([*pieces, self._template[position:]])
        if new != match.replacement:  # captures of several lines are indented again
            return match.replacement
        for start, end in reversed(spans):
            whole = self._text[: match.start] + new + self._text[match.end :]
            if not self._binds(whole, match.start + start, match.start + end):
                new = f"{new[:start]}({new[start:end]}){new[end:]}"
        return new

    def _binds(self, text: str, start: int, end: int) -> bool:
        """Return whether characters `start` to `end` of a text are one operand."""
        operators = {*_list_operators(text[start:end])}
        left, right = _LEFT.search(text[max(0, start - _NEAR) : start]), _RIGHT.match(text, end)
        beside = {side[1] for side in (left, right) if side}
        if not operators or not beside or (beside == operators <= _ASSOCIATIVE and len(operators) == 1):
            return True
        return _is_node(text, start, end, self._language)


def _list_operators(text: str) -> list[str]:
    """Return the operators of a text that stand in no bracket and no string."""
    text = _STRING.sub("s", text)
    while (outer := _BRACKETS.sub(" b ", text)) != text:
        text = outer
    return _OPERATOR.findall(text)


def _is_node(text: str, start: int, end: int, language: Language) -> bool:
    """Return whether a node of the tree of `text` has just these characters."""
    try:
        node = outline_once(text, language).root
        while inner := next((n for n in node.children if n.start <= start and end <= n.end and n.start < n.end), None):
            if (inner.start, inner.end) == (start, end):
                return True
            node = inner
    except DataError:
        return False
    return False
