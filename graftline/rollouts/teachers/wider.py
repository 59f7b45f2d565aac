"""What else a pattern might be: freer, with metavariables in the place of its operands and arguments, or a part of it."""

import re
from collections.abc import Iterator
from string import ascii_uppercase

from graftline.astgrep.binding import Language, Node, parse
from graftline.codemod.anti_unify import VARIABLE
from graftline.core.errors import DataError

WRAPPERS = ("module", "program", "expression_statement")
"""Kinds of nodes that stand round a pattern because it is parsed as a program."""
_LISTS = ("argument_list", "arguments")
_MAX_PARTS = 6
_ANY_NUMBER = re.compile(r"\$\$\$[A-Z_][A-Z0-9_]*")
_FREE = re.compile(r"[$µ]+[A-Z_][A-Z0-9_]*")


def wider(pattern: str, language: Language) -> list[str]:
    """Return patterns with one of the parts of `pattern` left free, all of them, any number; none where it is no code.

    f(x, 1)  ->  f($A, 1), f(x, $A), f($A, $B), f($$$ARGS)
    """
    text = readable(pattern, language)
    try:
        node = whole(parse(text, language).root)
        parts = [] if node.kind in WRAPPERS else list(_parts(node, text))[:_MAX_PARTS]
    except DataError:
        return []
    used = {name.lstrip("$") for name in VARIABLE.findall(pattern)}
    names = [f"${letter}" for letter in ascii_uppercase if letter not in used]
    each = [_freed(pattern, [part], names) for part in parts]
    every = [_freed(pattern, parts, names)] if len(parts) > 1 else []
    return list(dict.fromkeys([*each, *every, *_any_number(node, pattern)]))


def statements(pattern: str, language: Language) -> list[str]:
    """Return the statements of which `pattern` consists, the signs at their ends aside; none where it is no code."""
    text = readable(pattern, language)
    try:
        tree = parse(text, language)
    except DataError:
        return []
    found = [child for child in whole(tree.root).children if child.is_named] if tree.is_clean else []
    return [pattern[one.start : one.end].rstrip("; ") for one in found] if whole(tree.root).kind in WRAPPERS else []


def readable(pattern: str, language: Language) -> str:
    """Return `pattern` as code of the same length, which its language can parse."""
    # ast-grep, too, puts a letter for the sign that is none of Python's
    return pattern.replace("$", "µ") if language == "python" else pattern


def whole(node: Node) -> Node:
    """Return the node that a pattern is read as, of the root of its tree."""
    while node.kind in WRAPPERS and len(named := [child for child in node.children if child.is_named]) == 1:
        node = named[0]
    return node


def _any_number(node: Node, pattern: str) -> Iterator[str]:
    for child in node.children:
        inside = [one for one in child.children if one.is_named] if child.kind in _LISTS else []
        if inside and not _ANY_NUMBER.fullmatch(pattern[inside[0].start : inside[-1].end]):
            yield f"{pattern[: inside[0].start]}$$$ARGS{pattern[inside[-1].end :]}"


def _parts(node: Node, text: str) -> Iterator[tuple[int, int]]:
    """Yield where the operands of `node` are, or the arguments if it is a call; not what is free already."""
    children = [child for child in node.children if child.is_named]
    lists = [child for child in children if child.kind in _LISTS]
    operands = [child for child in lists[-1].children if child.is_named] if lists else children
    for operand in operands:
        if not _FREE.fullmatch(text[operand.start : operand.end]):
            yield operand.start, operand.end


def _freed(text: str, parts: list[tuple[int, int]], names: list[str]) -> str:
    pieces, place = [], 0
    for (start, end), name in zip(parts, names, strict=False):
        pieces += [text[place:start], name]
        place = end
    return "".join([*pieces, text[place:]])
