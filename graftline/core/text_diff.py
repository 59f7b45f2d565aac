"""The difference of two texts, and texts as people are shown them."""

import difflib
import re
from collections.abc import Iterator

# what moves the cursor, changes colors, or has text read in another order than it stands
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def pluralize(number: int, noun: str) -> str:
    """Return `number` with its noun: 1 place, 2 places, 2 matches."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def unified_diff(before: str, after: str, old_name: str, new_name: str) -> Iterator[str]:
    """Yield the difference as `diff -u` has it, line by line; nothing where there is none.

    A last line without an end comes together with the remark that says so.
    """
    for line in difflib.unified_diff(_split_lines(before), _split_lines(after), old_name, new_name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


_WHOLE_LINES = 12
"""Texts of so many lines are shown whole; of longer ones what changes, with one line before it and one after."""


def summarize_change(before: str, after: str) -> str:
    """Return what becomes of `before`: its lines, each after `-`, `+` or a blank; `...` stands for lines left out.

    "a\nb\n", "a\nc\n"  ->  " a\n-b\n+c"
    """
    old, new = before.rstrip("\n").split("\n"), after.rstrip("\n").split("\n")
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(1 if len(old) > _WHOLE_LINES else _WHOLE_LINES):
        lines += ["..."] if lines else []
        for tag, first, last, new_first, new_last in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[first:last]]
                continue
            lines += [f"-{line}" for line in old[first:last]]
            lines += [f"+{line}" for line in new[new_first:new_last]]
    return "\n".join(lines)


def keep_end(text: str, limit: int) -> str:
    """Return the last whole lines of `text`, of `limit` characters together, after `...` where lines are left out; of a
    longer last line its last words.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    tail = text[-limit - 1 :]
    return "...\n" + (tail.partition("\n")[2] or tail.partition(" ")[2] or tail[1:])


def escape_controls(text: str) -> str:
    """Return `text` with what a terminal would not show as a character spelled out; tabs and line feeds stay."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _split_lines(text: str) -> list[str]:
    # splitlines would also split at form feeds and their like, which belong to a line
    pieces = text.split("\n")
    return [piece + "\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
