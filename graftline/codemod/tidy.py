"""The text after an action, without the blanks that ast-grep leaves on empty lines.

ast-grep indents every line of a rewrite but the first, empty ones too, and where it takes a whole line away it leaves
the blanks that the line started with, and at the two ends of a text empty lines. A formatter would take them off again,
and so would who wrote the example; a rule cannot.
"""

import re
from collections import Counter

from graftline.sandbox.base import SandboxResult

_LINES = ("\n", "\r\n")
_BLANK_LINE = re.compile(r"^[ \t]+(?=\r?$)", re.MULTILINE)


def tidied(before: str, result: SandboxResult) -> str:
    """Return the text after `result`; lines of blanks that an edit made are empty, unless what it replaced had one.

    A text that the sandbox did not change comes back as it was.
    """
    if result.after is None:
        return before
    edits = []
    shift = 0
    for match in result.matches:
        start = match.start + shift
        had = Counter(_BLANK_LINE.findall(before[match.start : match.end]))
        has = Counter(_BLANK_LINE.findall(match.replacement))
        kept = frozenset(line for line in had if has[line] <= had[line])
        edits.append((start, start + len(match.replacement), kept))
        shift += len(match.replacement) - (match.end - match.start)
    pieces, position, number = [], 0, 0
    for line in _BLANK_LINE.finditer(result.after):
        while number < len(edits) and edits[number][1] < line.start():
            number += 1
        if number < len(edits) and edits[number][0] <= line.end() and line[0] not in edits[number][2]:
            pieces.append(result.after[position : line.start()])
            position = line.end()
    text = "".join(pieces) + result.after[position:]
    if result.matches and not result.matches[0].replacement.strip() and not before[: result.matches[0].start].strip():
        text = text if before.startswith(_LINES) else text.lstrip("\r\n")
    if result.matches and not result.matches[-1].replacement.strip() and not before[result.matches[-1].end :].strip():
        end = before[len(before.rstrip("\r\n")) :]
        rest = text.rstrip("\r\n")
        text = rest + end if rest else text
    return text
