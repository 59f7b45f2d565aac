"""Where the lines of two texts differ; fast for long texts that differ in many places."""

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from graftline.codemod.diff import common_ends, pick_ascending

LineRange = tuple[int, int, int, int]
"""First line and end of a range of the text before, and of what stands in its place in the text after; from 0."""


def list_changed_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[LineRange]:
    """Yield the ranges that differ, in order.

    Lines that each text has once are matched first, as in patience diff (https://bramcohen.livejournal.com/73318.html);
    `difflib`, which takes time in the square of the number of equal lines, sees only what lies between them.
    """
    front, back = common_ends(old, new)
    last, new_last = len(old) - back, len(new) - back
    counts, new_counts = Counter(old[front:last]), Counter(new[front:new_last])
    numbers = {new[number]: number for number in range(front, new_last)}
    once = (n for n in range(front, last) if counts[old[n]] == 1 == new_counts[old[n]])
    position = new_position = front
    for line, new_line in (*pick_ascending([(n, numbers[old[n]]) for n in once]), (last, new_last)):
        if position < line or new_position < new_line:
            part, new_part = old[position:line], new[new_position:new_line]
            if part == new_part:
                pass
            elif frozenset(part).isdisjoint(new_part):
                yield position, line, new_position, new_line
            else:
                yield from _compare(part, new_part, position, new_position)
        position, new_position = line + 1, new_line + 1


def _compare(old: Sequence[str], new: Sequence[str], line: int, new_line: int) -> Iterator[LineRange]:
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield line + i, line + j, new_line + k, new_line + m
