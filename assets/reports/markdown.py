"""Texts of others as Markdown that shows them and does nothing else.

Not here: tables (`graftline.core.markdown`), and what the pages say (`dataset_page`, `index_page`, `teacher_page`).
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import Any

Row = Mapping[str, Any]
Rows = Sequence[Row]

_MOST_DIFF_LINES = 160
_MOST_LINE_CHARACTERS = 400
_MARKUP = str.maketrans({character: f"&#{ord(character)};" for character in "&<>`*[]"})


def plain(text: str, most_characters: int = 160) -> str:
    """Return `text` as one line in which nothing is markup, cut where it is too long for a table."""
    line = " ".join(_visible(text).split())
    cut = line if len(line) <= most_characters else line[: most_characters - 1] + "…"
    return cut.translate(_MARKUP)


def fence_code(text: str, language: str = "text") -> str:
    """Return `text` as a block of code that no run of backticks in it can end."""
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * max([3, *(run + 1 for run in runs)])
    lines = [_cut_line(line) for line in _visible(text).rstrip("\n").split("\n")]
    return "\n".join([f"{fence}{language}", *lines, fence, ""])


def diff(pre: str, post: str) -> str:
    """Return the unified diff of two texts, cut after so many lines."""
    lines = list(unified_diff(pre.split("\n"), post.split("\n"), "before", "after", lineterm=""))
    remaining = len(lines) - _MOST_DIFF_LINES
    return "\n".join(lines if remaining <= 0 else [*lines[:_MOST_DIFF_LINES], f"… {remaining} more lines"])


def picture(name: str, caption: str) -> str:
    """Return a plot that lies beside the page."""
    return f"![{caption}]({name})\n"


def without_pictures(page: str) -> str:
    """Return `page` for a place that does not have the files beside it."""
    return re.sub(r"^!\[[^\]\n]*\]\([^)\n]*\)\n\n?", "", page, flags=re.M)


def without_dataset(rows: Rows) -> list[dict[str, Any]]:
    """Return the rows of one dataset without its name."""
    return [{key: value for key, value in row.items() if key != "dataset"} for row in rows]


def _cut_line(line: str) -> str:
    return line if len(line) <= _MOST_LINE_CHARACTERS else line[: _MOST_LINE_CHARACTERS - 1] + "…"


def _visible(text: str) -> str:
    """Return `text` with what cannot be seen, or turns the reading direction, in letters."""
    return "".join(character if _is_shown(character) else _spell_character(character) for character in text)


def _is_shown(character: str) -> bool:
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _spell_character(character: str) -> str:
    # the pictures of control characters
    return chr(0x2400 + ord(character)) if character < " " else f"\\u{{{ord(character):x}}}"
