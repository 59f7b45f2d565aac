"""A change of a file as several small ones: a function or a few statements each, as texts that parse alone."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from graftline.astgrep.binding import Language, Node, Tree, parse
from graftline.codemod.equality import normalize_whitespace
from graftline.core.errors import DataError

MAX_CHANGED_LINES = 20
MAX_LINES = 60
_MAX_COMPARED_LINES = 3_000
_MAX_ROUNDS = 8
_FUNCTIONS = re.compile(
    r"^(decorated_definition|(function|generator_function|method|constructor)_(definition|declaration))$"
)
_BODIES = frozenset(("module", "program", "block", "statement_block", "class_body", "constructor_body"))

Unit = Literal["statement", "function"]


@dataclass(frozen=True, slots=True)
class Hunk:
    """A part of a text before and what became of it; both moved to the left margin."""

    before: str
    after: str
    line: int
    """Its first line in the text before, from 1."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Lines `start` to `end` before, and those that they became."""

    start: int
    end: int
    new_start: int
    new_end: int


def split_into_hunks(
    before: str, after: str, language: Language, units: Sequence[Unit] = ("function", "statement")
) -> list[Hunk]:
    """Return the changes between two texts that are small enough, each in the first of `units` that makes a small text.

    A change of more than `MAX_CHANGED_LINES` lines, or one that has no unit of at most `MAX_LINES` that parses, is left out.
    """
    if max(before.count("\n"), after.count("\n")) > 20 * _MAX_COMPARED_LINES:
        return []
    try:
        old, new = _Lines(parse(before, language)), _Lines(parse(after, language))
    except DataError:
        return []
    changes = _changes(old.lines, new.lines)
    found: dict[tuple[int, int], Hunk] = {}
    for change in changes:
        for unit in units:
            area = _whole(change, changes, old, new, unit)
            hunk = _hunk(area, changes, old, new) if area else None
            if area and hunk:
                found[area.start, area.end] = hunk
                break
    # a place counts once, in the larger one of two units that share it
    return [
        found[start, end]
        for start, end in sorted(found)
        if not any((a < end and start < b) and (b - a, -a) > (end - start, -start) for a, b in found)
    ]


def find_statement(text: str, language: Language, line: int) -> str | None:
    """Return the statement that has line `line` (from 1), moved to the left margin; None where it does not parse alone.

    Raises:
        DataError: `text` cannot be parsed.
    """
    whole = _Lines(parse(text, language))
    start, end = whole.around(line - 1, line, "statement")
    if end - start > MAX_LINES or line > len(whole.lines):
        return None
    found, _ = _dedented(whole.lines[start:end], [])
    if language != "python" and whole.is_in_class(start, end):
        found = _in_class(found)
    return found if found.strip() and parse(found, language).is_clean else None


class _Lines:
    """A tree with its lines."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.lines = tree.text.split("\n")
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def of(self, node: Node) -> tuple[int, int]:
        """Return the first line of `node` and the one after its last, without line ends that it closes with."""
        end = node.end
        while end > node.start and self.tree.text[end - 1].isspace():
            end -= 1
        return bisect_right(self._starts, node.start) - 1, bisect_right(self._starts, max(end - 1, node.start))

    def around(self, start: int, end: int, unit: Unit) -> tuple[int, int]:
        """Return the lines of the smallest unit that has lines `start` to `end`, or those lines if there is none."""
        node, functions = self.tree.root, list[Node]()
        bodies = [node]
        while (inner := self._inner(node, start, end)) is not None:
            node = inner
            if _FUNCTIONS.match(node.kind):
                functions.append(node)
            if node.kind in _BODIES:
                bodies.append(node)
        if unit == "function":
            # a decorated function is one with its decorators
            return self.of(_with_decorators(functions[-1])) if functions else (start, end)
        return self._run(bodies[-1], start, end)

    def _inner(self, node: Node, start: int, end: int) -> Node | None:
        for child in node.children:
            if not child.children or child.start == child.end:
                continue
            first, last = self.of(child)
            if first <= start and end <= last and (start < end or first < start):
                return child
        return None

    def _run(self, body: Node, start: int, end: int) -> tuple[int, int]:
        spans = [self.of(child) for child in body.children if child.is_named and child.end > child.start]
        touched = [(first, last) for first, last in spans if first < max(end, start + 1) and start < last]
        if start == end:  # an insertion: the statement before it, else the one after
            touched = [span for span in spans if span[1] <= start][-1:] or spans[:1]
        if not touched:
            return start, end
        return min(start, *(span[0] for span in touched)), max(end, *(span[1] for span in touched))

    def is_in_class(self, start: int, end: int) -> bool:
        """Return whether the lines are members of a class, which do not parse alone."""
        node: Node | None = self.tree.root
        last = self.tree.root
        while node is not None:
            last, node = (node if node.kind in _BODIES else last), self._inner(node, start, end)
            if node is not None and self.of(node) == (start, end) and node.kind not in _BODIES:
                break
        return last.kind == "class_body"


def _with_decorators(node: Node) -> Node:
    parent = node.parent
    return parent if parent is not None and parent.kind == "decorated_definition" else node


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_Range]:
    front = _common(old, new)
    rest_old, rest_new = old[front:], new[front:]
    back = _common(rest_old[::-1], rest_new[::-1])
    rest_old, rest_new = rest_old[: len(rest_old) - back], rest_new[: len(rest_new) - back]
    if max(len(rest_old), len(rest_new)) > _MAX_COMPARED_LINES:
        return []
    matcher = SequenceMatcher(None, rest_old, rest_new, autojunk=False)
    return [
        _Range(front + i1, front + i2, front + j1, front + j2)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how long a beginning two sequences have in common."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _whole(change: _Range, changes: Sequence[_Range], old: _Lines, new: _Lines, unit: Unit) -> _Range | None:
    """Return the lines round `change` that are whole units on both sides; None if they grow beyond bounds."""
    area = change
    for _ in range(_MAX_ROUNDS):
        start, end = old.around(area.start, area.end, unit)
        grown = _grown(area, start, end, changes)
        new_start, new_end = new.around(grown.new_start, grown.new_end, unit)
        grown = _grown_after(grown, new_start, new_end, changes)
        if max(grown.end - grown.start, grown.new_end - grown.new_start) > MAX_LINES:
            return None
        if grown == area:
            return area if unit == "statement" or (area.start, area.end) != (change.start, change.end) else None
        area = grown
    return None


def _grown(area: _Range, start: int, end: int, changes: Sequence[_Range]) -> _Range:
    """Return `area` with lines `start` to `end` before, and the lines after that they belong to."""
    start, end = min(start, area.start), max(end, area.end)
    inside = [change for change in changes if (change.start < end and start < change.end) or _is_at(change, start, end)]
    inside = [change for change in inside if change.end >= start and change.start <= end]
    start = min(start, *(change.start for change in inside), area.start)
    end = max(end, *(change.end for change in inside), area.end)
    first, last = min((*inside, area), key=_place), max((*inside, area), key=_place)
    return _Range(start, end, first.new_start - (first.start - start), last.new_end + (end - last.end))


def _grown_after(area: _Range, start: int, end: int, changes: Sequence[_Range]) -> _Range:
    mirrored = [_mirrored(change) for change in changes]
    return _mirrored(_grown(_mirrored(area), start, end, mirrored))


def _mirrored(area: _Range) -> _Range:
    return _Range(area.new_start, area.new_end, area.start, area.end)


def _is_at(change: _Range, start: int, end: int) -> bool:
    return change.start == change.end and start < change.start < end


def _place(area: _Range) -> tuple[int, int]:
    return area.start, area.end


def _hunk(area: _Range, changes: Sequence[_Range], old: _Lines, new: _Lines) -> Hunk | None:
    changed = sum(
        change.end - change.start + change.new_end - change.new_start
        for change in changes
        if area.start <= change.start and change.end <= area.end
    )
    if changed > 2 * MAX_CHANGED_LINES:
        return None
    before, after = _dedented(old.lines[area.start : area.end], new.lines[area.new_start : area.new_end])
    if not before.strip() or not after.strip() or normalize_whitespace(before) == normalize_whitespace(after):
        return None
    language = old.tree.language
    if language != "python" and old.is_in_class(area.start, area.end):
        before, after = _in_class(before), _in_class(after)
    try:
        is_clean = parse(before, language).is_clean and parse(after, language).is_clean
    except DataError:
        return None
    return Hunk(before, after, area.start + 1) if is_clean else None


def _in_class(members: str) -> str:
    return f"class Example {{\n{members}}}\n"


def _dedented(old: Sequence[str], new: Sequence[str]) -> tuple[str, str]:
    filled = [line for line in (*old, *new) if line.strip()]
    first, last = min(filled, default=""), max(filled, default="")
    # what the first and the last in order have in common, all have
    margin = first[: _common(first[: len(first) - len(first.lstrip())], last)]
    return _joined(old, margin), _joined(new, margin)


def _joined(lines: Sequence[str], margin: str) -> str:
    return "".join(_stripped(lines, margin))


def _stripped(lines: Sequence[str], margin: str) -> Iterator[str]:
    for line in lines:
        yield f"{line.removeprefix(margin) if line.strip() else line.lstrip(' ')}\n"
