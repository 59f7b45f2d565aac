"""How equal two texts are: in bytes, but for blanks, or as trees."""

import re
from enum import StrEnum
from typing import Any

from graftline.actions.astgrep import Language, Node, Tree, parse

_TRAILING_BLANKS = re.compile(r"[ \t]+(?=\n|$)")
_EMPTY_LINES = re.compile(r"\n\s*\n+")
_SEPARATORS = {",", ";"}


class Level(StrEnum):
    """How near a text came to the wanted one, nearest first."""

    EXACT = "exact"
    """The same bytes."""
    BLANKS = "ws"
    """The same but for blanks at line ends, empty lines and the two ends of the text."""
    TREE = "ast"
    """The same tree and tokens; white space and trailing separators aside, comments and strings included."""
    PARTIAL = "partial"
    """Nearer than the text before was."""
    NONE = "none"

    @property
    def is_verified(self) -> bool:
        """Whether the text counts as the wanted one."""
        return self in (Level.EXACT, Level.BLANKS, Level.TREE)


def without_blanks(text: str) -> str:
    """Return `text` without blanks at line ends, empty lines and outer white space."""
    return _EMPTY_LINES.sub("\n", _TRAILING_BLANKS.sub("", text)).strip()


def equality(text: str, wanted: str, language: Language) -> Level:
    """Return how equal `text` is to `wanted`: exact, blanks, tree or none.

    Raises:
        DataError: one of the two cannot be parsed at all (see `parse`).
    """
    if text == wanted:
        return Level.EXACT
    if without_blanks(text) == without_blanks(wanted):
        # the indentation of Python is its syntax: equal tokens on other columns are another program
        return Level.BLANKS
    return Level.TREE if _shape(parse(text, language)) == _shape(parse(wanted, language)) else Level.NONE


def _shape(tree: Tree) -> Any:
    def shape(node: Node) -> Any:
        if "comment" in node.kind or "string" in node.kind or not node.children:
            return None if node.kind in _SEPARATORS else (node.kind, tree.of(node))
        return (node.kind, tuple(part for child in node.children if (part := shape(child)) is not None))

    return shape(tree.root)
