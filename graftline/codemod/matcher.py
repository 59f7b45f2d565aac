"""The shortest rule that matches one node: its pattern alone, in a context, or its kind and text."""

import re
from collections.abc import Iterator
from typing import Any

from graftline.astgrep.binding import Node, Tree, matches
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.contexts import context_of

_LEAVES = re.compile(r"identifier|comment|string_(content|fragment)")
_MAX_LITERAL = 160
_FIRST_LINE = 80


def matcher_of(tree: Tree, node: Node, pattern: str) -> dict[str, Any] | None:
    """Return the rule by which `pattern` matches `node`; None where no form does.

    Some patterns are no program alone: they are put where they can stand, and the kind of the node selected there.
    """
    is_literal = not VARIABLE.search(pattern)
    if is_literal and not node.children and _LEAVES.search(node.kind):
        return by_text(node.kind, tree.of(node))
    nodes = list(same_span(node))
    rule: dict[str, Any] = {"pattern": pattern}
    if any(matches(one, rule) for one in nodes):
        return rule
    surroundings = context_of(node.kind, tree.language)
    if surroundings is not None:
        rule = {"pattern": {"context": surroundings.replace("@", pattern), "selector": node.kind}}
        if any(matches(one, rule) for one in nodes):
            return rule
    if is_literal and node.is_named and len(pattern) < _MAX_LITERAL and "\n" not in pattern:
        return by_text(node.kind, tree.of(node))
    return None


def by_text(kind: str, text: str) -> dict[str, str]:
    """Return the rule that matches nodes of `kind` whose text is `text`."""
    return {"kind": kind, "regex": f"^{rust_regex(text)}$"}


def by_name(tree: Tree, node: Node) -> dict[str, Any]:
    """Return a rule for `node` that does not quote it: its kind and name, else its kind and first line."""
    name = node.handle.field("name")
    if name is not None:
        return {"kind": node.kind, "has": {"field": "name", "regex": f"^{rust_regex(name.text())}$"}}
    line = tree.of(node).partition("\n")[0]
    end = "$" if line == tree.of(node) and len(line) <= _FIRST_LINE else ""
    return {"kind": node.kind, "regex": f"^{rust_regex(line[:_FIRST_LINE])}{end}"}


def rust_regex(text: str) -> str:
    """Return a regular expression of Rust's `regex` for `text` itself."""
    # Python also escapes blanks, which the regex crate refuses
    escaped = re.escape(text).replace("\\ ", " ")
    return escaped.replace("\\\n", "\\n").replace("\\\t", "\\t").replace("\\\r", "\\r")


def same_span(node: Node) -> Iterator[Node]:
    """Yield `node` and the nodes below it that hold the same text: a pattern may match any of them."""
    yield node
    while len(node.children) == 1 and (node.children[0].start, node.children[0].end) == (node.start, node.end):
        node = node.children[0]
        yield node
