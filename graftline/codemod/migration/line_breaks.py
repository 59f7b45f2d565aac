"""What a rule writes over code of several lines, with the line breaks, blanks and comments of that code.

A rule says `f($A, $B)`; what stands between `$A` and `$B` in the code is no part of it. Tokens that are neighbors before and
after have the same between them again. An item that is new stands as the one before it does, in a line of its own or not; where
the closing bracket ends the line of the last item, so does what is new.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

from graftline.astgrep.binding import Language

_SCRIPT_COMMENT = r"//[^\n]*|/\*(?s:.*?)\*/"
_COMMENTS = {"python": r"#[^\n]*"}
_TEXTS = r"""'''(?s:\\.|.)*?'''|\"{3}(?s:\\.|.)*?\"{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"""
_STRING = re.compile(_TEXTS)
_TOKEN = _TEXTS + r"|[\w$]+|[^\w\s]"
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_BEFORE_ITEMS = _OPENING | {","}
_MAX_TOKENS = 2_000


class _Token(NamedTuple):
    gap: str
    """Blanks and comments before it."""
    text: str
    end: int
    """Its end in the text."""
    depth: int
    """Brackets that it stands in."""


@dataclass(slots=True)
class _Bracket:
    """An open bracket of what is written."""

    old_column: int
    """Where what stood behind it started; -1 of one that is new."""
    column: int
    item_gap: str
    """What stands before an item that is new."""
    takes_comma: bool = False
    """Whether a comma behind its last item changes nothing: round brackets that call nothing make a tuple with it."""
    is_hanging: bool = False
    """Whether it is closed in the line of the last item."""


def keep_line_breaks(old: str, new: str, column: int, language: Language) -> str | None:
    """Return `new`, which a rule writes over `old`, laid out as `old` is; None where a comment would be lost.

    `column` is where the first line of both starts.
    """
    if "\n" not in old or not new.strip():
        return new
    new = _restore_strings(old, new)
    comment = re.compile(_COMMENTS.get(language, _SCRIPT_COMMENT))
    before, after = list(_read(old, comment)), list(_read(new, comment))
    if max(len(before), len(after)) > _MAX_TOKENS:
        return new
    matcher = SequenceMatcher(None, [t.text for t in before], [t.text for t in after], autojunk=False)
    sources = {block.b + n: block.a + n for block in matcher.get_matching_blocks() for n in range(block.size)}
    lost = {number for number, token in enumerate(before) if token.gap.strip("\\ \t\r\n")}
    written, brackets = "", [_Bracket(-1, 0, "")]
    for number, token in enumerate(after):
        source, bracket = sources.get(number, -1), brackets[-1]
        is_item = number > 0 and after[number - 1].text in _BEFORE_ITEMS
        is_closing = token.text in _CLOSING and len(brackets) > 1
        former = before[source] if source > 0 and number > 0 else None
        gap = token.gap
        if former and (
            source in lost
            or sources.get(number - 1) == source - 1
            or (is_closing and bracket.old_column >= 0)
            or (is_item and before[source - 1].text in _BEFORE_ITEMS)
        ):
            # outside of brackets a line break ends a statement; what was the first item is now another one
            is_unfit = (token.depth == 0 < former.depth and "\n" in former.gap) or (is_item and not former.gap)
            gap = gap if is_unfit else former.gap
            lost -= {source} if gap == former.gap else set()
            if is_closing and "\n" in gap and before[source - 1].text == "," and not is_item and bracket.takes_comma:
                written += ","
        elif is_item and not is_closing:
            start = _start_of_item(before, after, sources, number)
            gap = (before[start].gap if start else "" if bracket.is_hanging else bracket.item_gap) or gap
            lost -= {start}
        if is_item:
            bracket.item_gap = _last_line(gap)
        head, line_break, indent = gap.rpartition("\n")
        if line_break and len(indent) == bracket.old_column and not indent.strip(" "):
            gap = head + line_break + " " * bracket.column
        written += gap + token.text
        if is_closing:
            brackets.pop()
        elif token.text in _OPENING:
            following = before[source + 1].gap if 0 <= source < len(before) - 1 else ""
            old_column = _column(old[: before[source].end], column) if source >= 0 else -1
            is_hanging = source >= 0 and _is_hanging(before, source)
            is_call = not token.gap and number > 0 and after[number - 1].text[-1:].isidentifier()
            takes_comma = token.text != "(" or is_call or (not token.gap and after[number - 1].text in (")", "]"))
            brackets.append(
                _Bracket(old_column, _column(written, column), _last_line(following), takes_comma, is_hanging)
            )
    return None if lost else written + new[after[-1].end if after else 0 :]


def _restore_strings(old: str, new: str) -> str:
    """Return `new` with the strings of several lines that `old` has: a fix moves their lines as if they were code."""
    for string in dict.fromkeys(_STRING.findall(old)):
        if "\n" in string and string not in new:
            lines = (re.escape(line.lstrip(" \t")) for line in string.split("\n"))
            if moved := re.search(r"\n[ \t]*".join(lines), new):
                new = new.replace(moved[0], string)
    return new


def _start_of_item(before: Sequence[_Token], after: Sequence[_Token], sources: Mapping[int, int], number: int) -> int:
    """Return the token that an item started with which something new stands before; 0 where all of the item is new."""
    for later in range(number, len(after)):
        source = sources.get(later, 0)
        if after[later].text in _BEFORE_ITEMS | _CLOSING:
            break
        if source:
            return source if before[source - 1].text in _BEFORE_ITEMS else 0
    return 0


def _is_hanging(tokens: Sequence[_Token], opening: int) -> bool:
    """Return whether the bracket that a token opens is closed in the line of what stands before its end."""
    depth = tokens[opening].depth
    closing = next((t for t in tokens[opening + 1 :] if t.depth == depth and t.text in _CLOSING), None)
    return closing is not None and "\n" not in closing.gap


def _last_line(gap: str) -> str:
    """Return the last line break and what follows it; nothing where there is none."""
    _, line_break, indent = gap.rpartition("\n")
    return line_break + indent if line_break else ""


def _column(text: str, first: int) -> int:
    """Return the column at the end of a text whose first line starts at column `first`."""
    line = text.rpartition("\n")[2]
    return len(line) + (first if line == text else 0)


def _read(text: str, comment: re.Pattern[str]) -> Iterator[_Token]:
    token = re.compile(rf"(?P<gap>(?:\s|\\\r?\n|{comment.pattern})*)(?P<text>{_TOKEN})")
    position, depth = 0, 0
    while match := token.match(text, position):
        position = match.end()
        depth -= match["text"] in _CLOSING
        yield _Token(match["gap"], match["text"], position, depth)
        depth += match["text"] in _OPENING
