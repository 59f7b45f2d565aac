"""Where a node of a syntax tree stands, as conditions of ast-grep rules that tell places apart."""

import re
from collections.abc import Iterator
from typing import Any

from graftline.astgrep.binding import Node, Tree
from graftline.codemod.candidates import rust_regex
from graftline.codemod.diff import Site

MAX_NEIGHBOR = 48
"""Characters of a text that a condition quotes."""
_MAX_NEIGHBORS = 4
_BODIES = re.compile(r"block|body|suite|module|program")
_FIELDS = (
    "function", "object", "attribute", "property", "name", "arguments", "argument", "value", "key", "left",
    "right", "type", "body", "source", "module_name", "superclasses", "superclass", "return_type",
    "operator", "condition", "parameters", "receiver", "field", "operand", "constructor", "declarator",
    "parameter", "alias", "index", "subscript", "consequence", "alternative",
)  # fmt: skip


def list_contexts(tree: Tree, node: Node) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what can be said of the place of `node`: nothing, its role, its neighbors, the role of its parent."""
    yield "any", {}
    parent = node.parent
    if parent is None or parent.parent is None:
        return
    role = {"kind": parent.kind, **_field(node)}
    yield "role", {"inside": role}
    for neighbor in _neighbors(tree, node):
        yield "neighbor", {"inside": {**role, "has": neighbor}}
    second = {"kind": parent.parent.kind, **_field(parent)}
    if parent.parent.parent is None:
        return
    yield "second", {"inside": {**role, "inside": second}}
    for neighbor in _neighbors(tree, parent):
        yield "aunt", {"inside": {**role, "inside": {**second, "has": neighbor}}}


def _neighbors(tree: Tree, node: Node) -> Iterator[dict[str, Any]]:
    siblings = [child for child in node.parent.children if child.is_named] if node.parent else []
    count = 0
    for sibling in siblings:
        text = tree.of(sibling)
        is_short = len(text) <= MAX_NEIGHBOR and "\n" not in text
        if sibling is node or not is_short or _BODIES.search(sibling.kind) or "comment" in sibling.kind:
            continue
        field = _field(sibling) or {"kind": sibling.kind}
        last = re.search(r"\.([\w$]+)$", text)
        if last:
            yield {**field, "regex": f"(^|\\.){rust_regex(last[1])}$"}
        yield {**field, "regex": f"^{rust_regex(text)}$"}
        count += 1
        if count == _MAX_NEIGHBORS:
            return


def _field(node: Node) -> dict[str, str]:
    """Return the field of its parent that `node` is, as a part of a rule; nothing where it is none."""
    if node.parent is not None:
        for name in _FIELDS:
            child = node.parent.handle.field(name)
            if child is not None and child.kind() == node.kind:
                span = child.range()
                if (span.start.index, span.end.index) == (node.start, node.end):
                    return {"field": name}
    return {}


def find_covering_chain(tree: Tree, site: Site) -> list[Node]:
    """Return the nodes that cover a site, the smallest last; of an insertion, those that it stands within."""
    node, chain = tree.root, [tree.root]
    while True:
        inner = next(
            (
                child
                for child in node.children
                if child.start <= site.start
                and site.end <= child.end
                and child.start < child.end
                and (site.start < site.end or child.start < site.start < child.end)
            ),
            None,
        )
        if inner is None:
            return chain
        node = inner
        chain.append(node)
