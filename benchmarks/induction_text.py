"""The text baseline: literal search and replace, learned from one pair with `difflib`.

What is searched for is what was taken away: words first, then whole lines, then lines with more and more unchanged
ones round them, until replacing it everywhere in the text before gives the text after.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

Replacements = tuple[tuple[str, str], ...]
"""What is searched for, and what stands there instead; in the order in which they are made."""

_TOKENS = re.compile(r"\w+|[^\S\n]+|\n|[^\w\s]")
_MOST_LINES_ROUND = 3
_MOST_TOKENS = 4000
"""`difflib` takes time in the square of the number of parts."""


def learned(before: str, after: str) -> Replacements | None:
    """Return replacements that make `after` from `before`; None where there are none of these forms."""
    for replacements in _candidates(before, after):
        if all(old for old, _ in replacements) and replaced(before, replacements) == after:
            return replacements
    return None


def replaced(text: str, replacements: Replacements) -> str:
    """Return `text` with every occurrence replaced."""
    for old, new in replacements:
        text = text.replace(old, new)
    return text


def _candidates(before: str, after: str) -> Iterator[Replacements]:
    old_words, new_words = _TOKENS.findall(before), _TOKENS.findall(after)
    if max(len(old_words), len(new_words)) <= _MOST_TOKENS:
        yield _hunks(old_words, new_words, 0)
        yield _hunks(old_words, new_words, 1)
    old_lines, new_lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for around in range(_MOST_LINES_ROUND + 1):
        yield _hunks(old_lines, new_lines, around)


def _hunks(old: Sequence[str], new: Sequence[str], around: int) -> Replacements:
    """Return what changed, each place with `around` unchanged parts on both sides; equal ones once."""
    changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return tuple(
        dict.fromkeys(
            (
                "".join(old[max(0, start - around) : end + around]),
                "".join((*old[max(0, start - around) : start], *new[new_start:new_end], *old[end : end + around])),
            )
            for tag, start, end, new_start, new_end in changes
            if tag != "equal"
        )
    )
