"""Declarations that a rule changes, and whether code that uses them would fail: by their names alone.

One that becomes constant must not be assigned to later, and a parameter that goes must not be used.
"""

import re
from functools import lru_cache

from graftline.astgrep.binding import JAVASCRIPT, Language, Node, outline_once
from graftline.codemod.canonical import words_of
from graftline.core.errors import DataError
from graftline.sandbox.base import Match

_CONSTANT = {"java": "final", **dict.fromkeys(JAVASCRIPT, "const")}
_DECLARED = re.compile(r"([\w$]+)\s*(=[^=]|;|$)")
_BEFORE = re.compile(r"(?:([\w$]+)\s*\.\s*|(\+\+|--)\s*|(\b(?!return\b|else\b)[\w$]+[>\]?]*\s+))\Z")
_AFTER = re.compile(r"\s*(?:(?:[-+*/%&|^]|<<|>>>?|\*\*|\?\?|&&|\|\|)?=(?![=>])|\+\+|--)")
_PARAMETERS = re.compile(r"parameters$")
_WORD = re.compile(r"[^\W\d][\w$]*")
_NEAR = 40
"""Characters before a name that say whether it is declared there."""
_SCOPES = re.compile(r"_body$|block$|^program$")


def is_assigned_again(text: str, match: Match, language: Language) -> bool:
    """Return whether a rule makes something constant that is assigned to elsewhere in its scope, by its name alone.

    A field of Java without a value is to be assigned in constructors, and there alone.
    """
    word = _CONSTANT.get(language)
    if word is None or word not in match.replacement:
        return False
    if word not in words_of(match.replacement) - words_of(text[match.start : match.end]):
        return False
    declared = _DECLARED.search(text, match.start)
    return declared is not None and _is_assigned(text, declared.start(1), declared[1], declared[2][:1] == "=", language)


@lru_cache(maxsize=4_096)
def _is_assigned(text: str, position: int, name: str, has_value: bool, language: Language) -> bool:
    try:
        chain = _list_nodes_at(outline_once(text, language).root, position)
    except DataError:
        return True
    scope = next(node for node in reversed(chain) if _SCOPES.search(node.kind) or node.parent is None)
    constructors = total = 0
    for hit in re.finditer(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text[scope.start : scope.end]):
        start, end = scope.start + hit.start(), scope.start + hit.end()
        before = _BEFORE.search(text[max(0, start - _NEAR) : start])
        is_changed = before is not None and before[2] is not None
        is_new = before is not None and before[3] is not None
        if start != position and (is_changed or (_AFTER.match(text, end) and not is_new)):
            total += 1
            constructors += _is_in_constructor(_list_nodes_at(scope, start))
    return total > 0 if has_value or language != "java" else not total or constructors < total


def loses_parameter(text: str, match: Match, language: Language) -> bool:
    """Return whether a rule takes a parameter away that its function uses."""
    try:
        chain = _list_nodes_at(outline_once(text, language).root, match.start)
    except DataError:
        return False
    own = next((n for n in chain if (n.start, n.end) == (match.start, match.end) and _PARAMETERS.search(n.kind)), None)
    if own is None or own.parent is None:
        return False
    names = _list_parameters(text[own.start : own.end], language) - _list_parameters(match.replacement, language)
    return bool(names & words_of(text[own.end : own.parent.end]))


def _list_parameters(text: str, language: Language) -> set[str]:
    """Return the names of a list of parameters: of Java what stands last, of others what stands first."""
    words = [_WORD.findall(part) for part in text.split(",")]
    return {own[-1 if language == "java" else 0] for own in words if own}


def _list_nodes_at(node: Node, position: int) -> list[Node]:
    chain = [node]
    while inner := next((child for child in chain[-1].children if child.start <= position < child.end), None):
        chain.append(inner)
    return chain


def _is_in_constructor(chain: list[Node]) -> bool:
    for node in reversed(chain):
        if node.kind in ("method_declaration", "lambda_expression", "class_body"):
            return False
        if node.kind.endswith("constructor_declaration"):
            return True
    return False
