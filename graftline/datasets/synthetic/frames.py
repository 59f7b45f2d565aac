"""Frames: statements of real code without one of their expressions, in whose place another one can stand."""

from collections.abc import Iterator
from textwrap import dedent
from typing import NamedTuple

from graftline.astgrep.binding import Node, Tree
from graftline.datasets.synthetic.holes import ARGUMENTS
from graftline.datasets.synthetic.pieces import STATEMENTS

_LONGEST = 60
_ANY_CHILD = frozenset({*ARGUMENTS, "return_statement", "parenthesized_expression", "expression_statement"})
_LAST_CHILD = frozenset({"assignment", "assignment_expression", "variable_declarator"})
_FIRST_CHILD = frozenset({"if_statement", "while_statement"})
_NO_EXPRESSIONS = frozenset({
    "keyword_argument", "spread_element", "list_splat", "dictionary_splat", "parenthesized_expression", "assignment",
    "assignment_expression", "augmented_assignment", "comment", "line_comment", "block_comment", "string",
})  # fmt: skip
_GAP = "\0"
"""No text of an edit has it."""


class Frame(NamedTuple):
    """What stands before the expression, and after it."""

    before: str
    after: str

    def around(self, expression: str) -> str:
        """Return the statement with `expression` in it."""
        return f"{self.before}{expression}{self.after}"


BARE = Frame("", "")


def frames_in(tree: Tree) -> Iterator[Frame]:
    """Yield the frames of all short statements of some code, those that stand there several times as often."""
    for statement in tree.root.walk():
        if not statement.is_named or statement.parent is None or statement.parent.kind not in STATEMENTS:
            continue
        for node in statement.walk() if statement.end - statement.start <= _LONGEST else ():
            if _is_place(node):
                yield _frame(tree, statement, node)


def _is_place(node: Node) -> bool:
    parent = node.parent
    if parent is None or not node.is_named or node.kind in _NO_EXPRESSIONS:
        return False
    named = [child.index for child in parent.children if child.is_named]
    return (
        parent.kind in _ANY_CHILD
        or (parent.kind in _LAST_CHILD and len(named) > 1 and node.index == named[-1])
        or (parent.kind in _FIRST_CHILD and node.index == named[0])
    )


def _frame(tree: Tree, statement: Node, node: Node) -> Frame:
    start = tree.text.rfind("\n", 0, statement.start) + 1
    if tree.text[start : statement.start].strip():
        start = statement.start
    text = dedent(f"{tree.text[start : node.start]}{_GAP}{tree.text[node.end : statement.end]}")
    before, _, after = text.partition(_GAP)
    return Frame(before, after)
