"""Types of Python in which rules put a string beside `|`, which fails when it is run: quoted whole, or not changed."""

import re
from collections.abc import Iterator

from graftline.astgrep.binding import SgNode, find_all, outline_once, span_of
from graftline.codemod.line_changes import list_changed_lines
from graftline.core.errors import DataError

_NEAR_STRING = re.compile(r"""["']\s*\||\|\s*["']""")
_NAME = re.compile(r"""(["'])([^"'\\\n]*)\1""")
_VALUES = re.compile(r"\b(Literal|Annotated)\b|[\"'\n\\]")
_OF_TYPES = frozenset(("type", "type_parameter", "generic_type", "binary_operator"))

Edits = dict[tuple[int, int], str]


def quote_annotations(before: str, after: str) -> tuple[str, int]:
    """Return `after`, which rules made of `before`, with new annotations such as `"A" | None` as `"A | None"`.

    Where that cannot be, for it is no annotation or holds values, the lines are as before; the second value counts them.
    """
    if not _NEAR_STRING.search(after):
        return after, 0
    try:
        former = {node.text() for node in _list_unions(before)}
        unions = {span_of(node): node for node in _list_unions(after)}
    except DataError:
        return after, 0
    edits = {span: _quote(node) for span, node in unions.items() if node.text() not in former}
    restored = {
        span: text
        for span, text in _list_hunks(before, after)
        if any(not quoted and span[0] <= start < span[1] for (start, _), quoted in edits.items())
    }
    edits = {
        span: text
        for span, text in edits.items()
        if text and not any(start <= span[0] < end for start, end in restored)
    }
    for (start, end), text in sorted({**edits, **restored}.items(), reverse=True):
        after = after[:start] + text + after[end:]
    return after, len(restored)


def _list_unions(text: str) -> Iterator[SgNode]:
    """Yield what has a string beside `|`: the whole annotation, or else the union."""
    for node in find_all(outline_once(text, "python").root, {"kind": "binary_operator", "has": {"kind": "string"}}):
        if any(child.kind() == "|" for child in node.children()):
            outer: SgNode | None = node
            chosen = node
            while outer is not None and outer.kind() in _OF_TYPES:
                chosen = outer if outer.kind() == "type" else chosen
                outer = outer.parent()
            yield chosen


def _quote(node: SgNode) -> str:
    """Return an annotation as one string; empty where that would say something else."""
    text = node.text()
    bare, quote = _NAME.sub(r"\2", text), re.search("[\"']", text)
    return f"{quote[0]}{bare}{quote[0]}" if quote and node.kind() == "type" and not _VALUES.search(bare) else ""


def _list_hunks(before: str, after: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield where lines of `after` differ, with those of `before`."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in new:
        starts.append(starts[-1] + len(line))
    for start, end, new_start, new_end in list_changed_lines(old, new):
        yield (starts[new_start], starts[new_end]), "".join(old[start:end])
