"""The difference of two texts."""

import difflib
from collections.abc import Iterator


def unified_diff(before: str, after: str, old_name: str, new_name: str) -> Iterator[str]:
    """Yield the difference as `diff -u` has it, line by line; nothing where there is none.

    A last line without an end comes together with the remark that says so.
    """
    for line in difflib.unified_diff(_lines(before), _lines(after), old_name, new_name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    # splitlines would also split at form feeds and their like, which belong to a line
    pieces = text.split("\n")
    return [piece + "\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
