"""A change of a file as several small ones: a function or a few statements each, as texts that parse alone."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Literal, NamedTuple

from graftline.astgrep.binding import Language, Node, Tree, outline_once, parse
from graftline.codemod.diff import common_ends, common_length
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

UnitKind = Literal["statement", "function"]


@dataclass(frozen=True, slots=True)
class Hunk:
    """A part of a text before and what became of it; both moved to the left margin."""

    before: str
    after: str
    line: int
    """Its first line in the text before, from 1."""


class _Range(NamedTuple):
    """Lines `start` to `end` before, and those that they became."""

    start: int
    end: int
    new_start: int
    new_end: int

    def mirror(self) -> "_Range":
        return _Range(self.new_start, self.new_end, self.start, self.end)


def split_into_hunks(
    before: str, after: str, language: Language, units: Sequence[UnitKind] = ("function", "statement")
) -> list[Hunk]:
    """Return the changes between two texts that are small enough, each in the first of `units` that makes a small text.

    A change of more than `MAX_CHANGED_LINES` lines, or one that has no unit of at most `MAX_LINES` that parses, is left out.
    """
    if max(before.count("\n"), after.count("\n")) > 20 * _MAX_COMPARED_LINES:
        return []
    hunks: dict[tuple[int, int], Hunk] = {}
    try:
        # of a large file only what is around its changes is visited
        old, new = _Lines(outline_once(before, language)), _Lines(outline_once(after, language))
        changes = _compare_lines(old.lines, new.lines)
        for change in changes:
            for unit in units:
                area = _grow_to_units(change, changes, old, new, unit)
                hunk = _make_hunk(area, changes, old, new) if area else None
                if area and hunk:
                    hunks[area.start, area.end] = hunk
                    break
    except DataError:
        return []
    # a place counts once, in the larger one of two units that share it
    return [
        hunks[start, end]
        for start, end in sorted(hunks)
        if not any((a < end and start < b) and (b - a, -a) > (end - start, -start) for a, b in hunks)
    ]


def statement_lines(text: str, language: Language, line: int) -> tuple[int, int]:
    """Return the lines of the statement that has line `line`, all from 0, and the one after its last.

    DataError if `text` cannot be parsed.
    """
    return _Lines(outline_once(text, language)).around(line, line + 1, "statement")


def find_statement(text: str, language: Language, line: int) -> str | None:
    """Return the statement that has line `line` (from 1), moved to the left margin; None where it does not parse alone.

    DataError if `text` cannot be parsed.
    """
    whole = _Lines(outline_once(text, language))
    start, end = whole.around(line - 1, line, "statement")
    if end - start > MAX_LINES or line > len(whole.lines):
        return None
    statement, _ = _dedent(whole.lines[start:end], [])
    if language != "python" and whole.is_in_class(start, end):
        statement = _wrap_in_class(statement)
    return statement if statement.strip() and parse(statement, language).is_clean else None


class _Lines:
    """A tree with its lines."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.lines = tree.text.split("\n")
        self._starts = [*accumulate(map((1).__add__, map(len, self.lines)), initial=0)]

    def of(self, node: Node) -> tuple[int, int]:
        """Return the first line of `node` and the one after its last, without line ends that it closes with."""
        end = node.end
        while end > node.start and self.tree.text[end - 1].isspace():
            end -= 1
        return bisect_right(self._starts, node.start) - 1, bisect_right(self._starts, max(end - 1, node.start))

    def around(self, start: int, end: int, unit: UnitKind) -> tuple[int, int]:
        """Return the lines of the smallest unit that has lines `start` to `end`, or those lines if there is none."""
        node, functions = self.tree.root, list[Node]()
        body = node
        while (inner := self._child_with(node, start, end)) is not None:
            node = inner
            if _FUNCTIONS.match(node.kind):
                functions.append(node)
            if node.kind in _BODIES:
                body = node
        if unit == "statement":
            return self._statements_around(body, start, end)
        if not functions:
            return start, end
        parent = functions[-1].parent
        # a decorated function is one with its decorators
        is_decorated = parent is not None and parent.kind == "decorated_definition"
        return self.of(parent if is_decorated and parent else functions[-1])

    def is_in_class(self, start: int, end: int) -> bool:
        """Return whether the lines are members of a class, which do not parse alone."""
        node: Node | None = self.tree.root
        body = self.tree.root
        while node is not None:
            body, node = (node if node.kind in _BODIES else body), self._child_with(node, start, end)
            if node is not None and self.of(node) == (start, end) and node.kind not in _BODIES:
                break
        return body.kind == "class_body"

    def _child_with(self, node: Node, start: int, end: int) -> Node | None:
        for child in node.children:
            first, last = self.of(child)
            is_around = first <= start and end <= last and (start < end or first < start)
            if is_around and child.start < child.end and child.children:
                return child
        return None

    def _statements_around(self, body: Node, start: int, end: int) -> tuple[int, int]:
        spans = [self.of(child) for child in body.children if child.is_named and child.end > child.start]
        touched = [(first, last) for first, last in spans if first < max(end, start + 1) and start < last]
        if start == end:  # an insertion: the statement before it, else the one after
            touched = [span for span in spans if span[1] <= start][-1:] or spans[:1]
        return min([start, *(span[0] for span in touched)]), max([end, *(span[1] for span in touched)])


def _compare_lines(old: Sequence[str], new: Sequence[str]) -> list[_Range]:
    front, back = common_ends(old, new)
    old_rest, new_rest = old[front : len(old) - back], new[front : len(new) - back]
    if max(len(old_rest), len(new_rest)) > _MAX_COMPARED_LINES:
        return []
    opcodes = SequenceMatcher(None, old_rest, new_rest, autojunk=False).get_opcodes()
    return [_Range(*(front + line for line in lines)) for tag, *lines in opcodes if tag != "equal"]


def _grow_to_units(
    change: _Range, changes: Sequence[_Range], old: _Lines, new: _Lines, unit: UnitKind
) -> _Range | None:
    """Return the lines around `change` that are whole units on both sides; None if they grow beyond bounds."""
    area = change
    mirrored = [other.mirror() for other in changes]
    for _ in range(_MAX_ROUNDS):
        larger = _grow(area, *old.around(area.start, area.end, unit), changes)
        larger = _grow(larger.mirror(), *new.around(larger.new_start, larger.new_end, unit), mirrored).mirror()
        if max(larger.end - larger.start, larger.new_end - larger.new_start) > MAX_LINES:
            return None
        if larger == area:
            return area if unit == "statement" or (area.start, area.end) != (change.start, change.end) else None
        area = larger
    return None


def _grow(area: _Range, start: int, end: int, changes: Sequence[_Range]) -> _Range:
    """Return `area` with lines `start` to `end` before, and the lines after that they belong to."""
    start, end = min(start, area.start), max(end, area.end)
    inside = [
        change
        for change in changes
        if (change.start < end and start < change.end) or start < change.start == change.end < end
    ]
    start = min([start, *(change.start for change in inside)])
    end = max([end, *(change.end for change in inside)])
    first, last = min((*inside, area), key=lambda part: part[:2]), max((*inside, area), key=lambda part: part[:2])
    return _Range(start, end, first.new_start - (first.start - start), last.new_end + (end - last.end))


def _make_hunk(area: _Range, changes: Sequence[_Range], old: _Lines, new: _Lines) -> Hunk | None:
    changed = sum(
        change.end - change.start + change.new_end - change.new_start
        for change in changes
        if area.start <= change.start and change.end <= area.end
    )
    if changed > 2 * MAX_CHANGED_LINES:
        return None
    before, after = _dedent(old.lines[area.start : area.end], new.lines[area.new_start : area.new_end])
    if not before.strip() or not after.strip() or normalize_whitespace(before) == normalize_whitespace(after):
        return None
    language = old.tree.language
    if language != "python" and old.is_in_class(area.start, area.end):
        before, after = _wrap_in_class(before), _wrap_in_class(after)
    try:
        is_clean = parse(before, language).is_clean and parse(after, language).is_clean
    except DataError:
        return None
    return Hunk(before, after, area.start + 1) if is_clean else None


def _wrap_in_class(members: str) -> str:
    return f"class Example {{\n{members}}}\n"


def _dedent(old: Sequence[str], new: Sequence[str]) -> tuple[str, str]:
    filled = [line for line in (*old, *new) if line.strip()]
    first, last = min(filled, default=""), max(filled, default="")
    # what the first and the last in order have in common, all have
    margin = first[: common_length(first[: len(first) - len(first.lstrip())], last)]
    before, after = (
        "".join(f"{line.removeprefix(margin) if line.strip() else line.lstrip(' ')}\n" for line in lines)
        for lines in (old, new)
    )
    return before, after
