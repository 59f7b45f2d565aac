"""What in a snippet looks like the places an action changes, and stays: the hard negatives of a task."""

from collections.abc import Sequence
from typing import Literal

from graftline.astgrep.binding import Node, Tree
from graftline.datasets.synthetic.names import parts_of
from graftline.sandbox.base import Match

LookAlike = Literal["same_name", "similar_name", "same_kind"]


def look_alike(tree: Tree, words: Sequence[tuple[int, str]], name: str, matches: Sequence[Match]) -> LookAlike | None:
    """Return the nearest look-alike in `tree` outside `matches`, None where there is none; `words` are all its identifiers.

    `same_name`: the name of the family stands elsewhere, as something else or in another shape. `similar_name`: a longer
    name holds all its words. `same_kind`: for a family without a name, a node of the kind that is changed.
    """
    if not name:
        return "same_kind" if _has_same_kind(tree, matches) else None
    outside = [word for at, word in words if not any(match.start <= at < match.end for match in matches)]
    if name in outside:
        return "same_name"
    parts = parts_of(name)
    if parts and any(word != name and _holds(parts_of(word), parts) for word in outside):
        return "similar_name"
    return None


def _holds(longer: Sequence[str], shorter: Sequence[str]) -> bool:
    return len(longer) > len(shorter) and {*shorter} <= {*longer}


def _has_same_kind(tree: Tree, matches: Sequence[Match]) -> bool:
    places = {(match.start, match.end) for match in matches}
    nodes = [node for node in tree.root.walk() if node.is_named]
    changed = {node.kind: node for node in nodes if (node.start, node.end) in places}
    return any(node.kind in changed and _is_outside(node, matches) for node in nodes)


def _is_outside(node: Node, matches: Sequence[Match]) -> bool:
    return all(node.end <= match.start or node.start >= match.end for match in matches)
