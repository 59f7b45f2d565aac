"""Patterns of nodes of real code: which parts of a node stay as they are, and which become metavariables.

Callees, names of methods and keywords stay; arguments, operands and the objects that methods are asked of become free, most
of them, or what is inside them does: the same node gives other patterns with other draws. What stands there twice is the same
metavariable.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from graftline.astgrep.binding import Node, Tree

CALLS = frozenset({"call", "call_expression", "method_invocation", "object_creation_expression", "new_expression"})
STATEMENTS = frozenset({
    "return_statement", "expression_statement", "raise_statement", "throw_statement", "assert_statement",
    "lexical_declaration", "variable_declaration", "local_variable_declaration",
})  # fmt: skip
ARGUMENTS = frozenset({"argument_list", "arguments"})
READS = frozenset({"attribute", "member_expression", "field_access"})
_COMPOUND = CALLS | READS | {
    "subscript", "subscript_expression", "array_access", "comparison_operator", "boolean_operator", "binary_operator",
    "not_operator", "binary_expression", "unary_expression", "parenthesized_expression",
}  # fmt: skip
_CONSTANTS = frozenset(
    {"integer", "number", "decimal_integer_literal", "none", "null", "null_literal", "true", "false"}
)
_ASSIGNMENTS = frozenset({"variable_declarator", "assignment", "assignment_expression"})
_NEVER_FREE = frozenset({
    "type_identifier", "comment", "line_comment", "block_comment", "operator", "property_identifier", "modifiers",
    "block", "statement_block",
})  # fmt: skip
_FREE, _OFTEN, _SELDOM = 0.85, 0.5, 0.35
"""How probable it is that an operand, an object or a constant, and a whole list of arguments become free."""
_MOST = 4
_NAMES = "ABCD"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern, and the metavariables in it, in their order."""

    text: str
    free: tuple[str, ...]

    @property
    def single(self) -> list[str]:
        """Those that stand for one node each."""
        return [name for name in self.free if not name.startswith("$$$")]


@dataclass(frozen=True, slots=True, order=True)
class _Hole:
    start: int
    end: int
    is_list: bool


def pattern_of(tree: Tree, node: Node, rng: random.Random) -> Pattern | None:
    """Return a pattern that matches `node`; None where what would be free overlaps, or is all of it."""
    holes = sorted(_holes(node, rng))[:_MOST]
    if any(hole.end > following.start for hole, following in pairwise(holes)):
        return None
    if holes and (holes[0].start, holes[0].end) == (node.start, node.end):
        return None
    parts, free, place = list[str](), dict[tuple[str, bool], str](), node.start
    for hole in holes:
        name = ("$$$" if hole.is_list else "$") + _NAMES[len(free)]
        variable = free.setdefault((tree.text[hole.start : hole.end], hole.is_list), name)
        parts += [tree.text[place : hole.start], variable]
        place = hole.end
    return Pattern("".join([*parts, tree.text[place : node.end]]), tuple(free.values()))


def _holes(node: Node, rng: random.Random) -> Iterator[_Hole]:
    for child in node.children:
        if not child.is_named or child.kind in _NEVER_FREE:
            continue
        if child.kind in ARGUMENTS:
            yield from _arguments(child, rng)
        elif child.kind in _ASSIGNMENTS:
            yield from _holes(child, rng)
        elif child.kind in READS and (node.kind in CALLS or rng.random() < _SELDOM):
            yield from _maybe_free(child.children[0], _OFTEN, rng)
        elif node.kind in CALLS:
            # the callee; in Java also what it is asked of, which stands before its name
            is_object = node.kind == "method_invocation" and child.index == 0 and len(_named_children(node)) > 2
            yield from _maybe_free(child, _OFTEN if is_object else 0, rng)
        elif not (node.kind in READS and child.index) and node.kind != "local_variable_declaration":
            yield from _maybe_free(child, _FREE, rng)


def _arguments(arguments: Node, rng: random.Random) -> Iterator[_Hole]:
    named = _named_children(arguments)
    if any("comment" in node.kind for node in named):
        return
    if named and rng.random() < _SELDOM:
        yield _Hole(named[0].start, named[-1].end, is_list=True)
        return
    for node in named:
        is_keyword = node.kind == "keyword_argument"
        yield from _maybe_free(node.children[-1] if is_keyword else node, _OFTEN if is_keyword else _FREE, rng)


def _maybe_free(node: Node, chance: float, rng: random.Random) -> Iterator[_Hole]:
    if chance and node.kind in _COMPOUND and rng.random() < _SELDOM:
        yield from _holes(node, rng)
    elif rng.random() < (min(chance, _OFTEN) if node.kind in _CONSTANTS else chance):
        yield _Hole(node.start, node.end, is_list=False)


def _named_children(node: Node) -> list[Node]:
    return [child for child in node.children if child.is_named]
