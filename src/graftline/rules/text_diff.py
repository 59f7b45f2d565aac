"""Differences of texts as people read them."""

import re
from collections.abc import Iterator
from difflib import unified_diff
from io import StringIO

# what moves the cursor, changes colours, or has text read in another order than it stands
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def unified(before: str, after: str, name: str) -> Iterator[str]:
    """Yield the lines of a unified difference of a file, without line feeds; none where nothing changed."""
    for line in unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}"):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def visible(text: str) -> str:
    """Return `text` with what a terminal would not show as a character spelled out; tabs stay."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _lines(text: str) -> list[str]:
    # at line feeds only, as diff has it
    return list(StringIO(text, newline="\n"))
