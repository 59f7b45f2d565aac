"""How equal two texts are: in bytes, but for blanks, or as trees; and the text after an action, its blank lines normalized.

ast-grep indents every line of a rewrite but the first, empty ones too, and where it removes a whole line it leaves the
blanks that the line started with, and at the two ends of a text empty lines. A formatter would take them off again, and
so would who wrote the example; a rule cannot.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any

from graftline.astgrep.binding import Language, Node, Tree, parse
from graftline.sandbox.base import SandboxResult

_TRAILING_BLANKS = re.compile(r"(?<![\\ \t])[ \t]+(?=\n|$)")  # after a backslash they break the line that it joins
_EMPTY_LINES = re.compile(r"\n\s*\n+")
_BLANK_LINE = re.compile(r"^[ \t]+(?=\r?$)", re.MULTILINE)
_OPENING, _CLOSING = {"(", "[", "{", "<"}, {")", "]", "}", ">"}


class Level(StrEnum):
    """How near a text came to its target, nearest first."""

    EXACT = "exact"
    """The same bytes."""
    BLANKS = "ws"
    """The same but for blanks at line ends, empty lines and the two ends of the text; none of it inside a string."""
    TREE = "ast"
    """The same tree and tokens, comments and strings included; white space, trailing separators and the order of
    neighboring imports aside."""
    TESTS = "tests"
    """Another text, with which the tests of the task pass."""
    PARTIAL = "partial"
    """Nearer than the text before was."""
    NONE = "none"

    @property
    def is_verified(self) -> bool:
        """Whether the text counts as the target."""
        return self in (Level.EXACT, Level.BLANKS, Level.TREE, Level.TESTS)


def normalize_whitespace(text: str) -> str:
    """Return `text` without blanks at line ends, empty lines and outer white space."""
    # the blanks that the first line starts with are its indentation
    return _EMPTY_LINES.sub("\n", _TRAILING_BLANKS.sub("", text)).strip("\n")


def compare_texts(text: str, target: str, language: Language) -> Level:
    """Return how equal `text` is to `target`: exact, blanks, tree or none.

    DataError if one of the two cannot be parsed at all (see `parse`).
    """
    if text == target:
        return Level.EXACT
    tree, target_tree = parse(text, language), parse(target, language)
    if target_tree.is_clean != tree.is_clean:
        return Level.NONE
    if normalize_whitespace(text) == normalize_whitespace(target) and _strings(tree) == _strings(target_tree):
        return Level.BLANKS
    return Level.TREE if _shape(tree) == _shape(target_tree) else Level.NONE


def differ_in_words_alone(text: str, other: str, language: Language) -> bool:
    """Return whether two texts are the same code with other comments or docstrings.

    DataError if one of the two cannot be parsed at all (see `parse`).
    """
    tree, other_tree = parse(text, language), parse(other, language)
    return tree.is_clean == other_tree.is_clean and _shape(tree, _is_words) == _shape(other_tree, _is_words)


def _is_words(node: Node) -> bool:
    """Return whether a node is a comment, or a string that is a statement of its own, as a docstring is."""
    is_string = node.kind == "expression_statement" and [child.kind for child in node.children] == ["string"]
    return is_string or "comment" in node.kind


def _strings(tree: Tree) -> list[str]:
    """Return the outermost string literals: a blank inside one is part of a value."""
    return [
        tree.of(node)
        for node in tree.root.walk()
        if "string" in node.kind and not (node.parent and "string" in node.parent.kind)
    ]


def _shape(tree: Tree, is_left_out: Callable[[Node], bool] = lambda node: False) -> Any:
    def shape(node: Node) -> Any:
        if is_left_out(node):
            return None
        if "comment" in node.kind or "string" in node.kind or not node.children:
            return None if _is_spare(node) else (node.kind, tree.of(node))
        parts = tuple(_with_imports_sorted(node.children, shape))
        # the indentation of Python is its syntax, but its parser lets a statement stand at any column
        return (node.kind, parts, tree.language == "python" and _is_ragged(tree, node))

    return shape(tree.root)


def _with_imports_sorted(children: Sequence[Node], shape: Callable[[Node], Any]) -> Iterator[Any]:
    """Yield the shapes of `children`; neighboring imports of names are a set, for their order says nothing."""
    for is_import, group in groupby(children, _is_import_of_names):
        shapes = [part for child in group if (part := shape(child)) is not None]
        yield from sorted(shapes, key=repr) if is_import else shapes


def _is_import_of_names(node: Node) -> bool:
    # one that binds nothing is there for what it does, when it does it
    if node.kind == "import_statement":
        return any(child.kind in ("import_clause", "dotted_name", "aliased_import") for child in node.children)
    return node.kind in ("import_from_statement", "import_declaration")


def _is_spare(node: Node) -> bool:
    """Return whether `node` is a semicolon that ends something, or a comma after the last of several things."""
    if node.parent is None or node.kind not in (",", ";"):
        return False
    if node.kind == ";":
        return node.parent.kind != "for_statement"
    # a hole of a JavaScript array counts, and one comma makes a tuple of a Python subscript
    if node.parent.kind == "tuple_pattern" and len(node.parent.children) == 4:  # ( a , ) in Python
        return False
    is_after_thing = _kind_beside(node, -1) not in {"", ",", *_OPENING} and node.parent.kind != "subscript"
    return is_after_thing and _kind_beside(node, 1) in _CLOSING


def _kind_beside(node: Node, step: int) -> str:
    siblings = node.parent.children if node.parent else []
    place = node.index + step
    while 0 <= place < len(siblings):
        if "comment" not in siblings[place].kind:
            return siblings[place].kind
        place += step
    return ""


def _is_ragged(tree: Tree, node: Node) -> bool:
    """Return whether the statements of a Python block stand at different columns."""
    if node.kind not in ("module", "block"):
        return False
    indents, position = set[str](), 0
    for child in node.children:
        line = tree.text.rfind("\n", position, child.start)
        indent = tree.text[line + 1 : child.start]
        is_first = line >= 0 or position == 0
        if is_first and not indent.strip() and "comment" not in child.kind:
            indents.add(indent)
        position = child.end
    return len(indents) > 1


def normalize_blank_lines(before: str, result: SandboxResult) -> str:
    """Return the text after `result`; lines of blanks that an edit made are empty, unless what it replaced had one.

    A text that the sandbox did not change comes back as it was.
    """
    if result.after is None:
        return before
    edits, shift = [], 0
    for match in result.matches:
        start = match.start + shift
        before_counts = Counter(_BLANK_LINE.findall(before[match.start : match.end]))
        after_counts = Counter(_BLANK_LINE.findall(match.replacement))
        allowed = {line for line, count in before_counts.items() if after_counts[line] <= count}
        edits.append((start, start + len(match.replacement), allowed))
        shift += len(match.replacement) - (match.end - match.start)
    pieces, position, number = [], 0, 0
    for line in _BLANK_LINE.finditer(result.after):
        while number < len(edits) and edits[number][1] < line.start():
            number += 1
        if number < len(edits) and edits[number][0] <= line.end() and line[0] not in edits[number][2]:
            pieces.append(result.after[position : line.start()])
            position = line.end()
    text = "".join(pieces) + result.after[position:]
    if not result.matches:
        return text
    first, last = result.matches[0], result.matches[-1]
    if not first.replacement.strip() and not before[: first.start].strip() and not before.startswith(("\n", "\r\n")):
        text = text.lstrip("\r\n")
    if not last.replacement.strip() and not before[last.end :].strip() and (content := text.rstrip("\r\n")):
        text = content + before[len(before.rstrip("\r\n")) :]
    return text
