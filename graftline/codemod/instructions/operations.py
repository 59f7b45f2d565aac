"""What an instruction asks for, as operations on a text: rename a word, rewrite by a pattern, replace, insert or remove lines.

An operation says all that a reader needs beside the text before. Quoted lines are found by what they say and not by their
indentation, and what is written takes the indentation of the place.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.sandbox.base import Sandbox, Verdict, ensure_decided

_WORD = re.compile(r"\w")
_INDENT = 4


@dataclass(frozen=True, slots=True)
class Rename:
    """Every word `old` becomes `new`."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Every match of an ast-grep pattern becomes what the rewrite says."""

    pattern: str
    rewrite: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Quoted code becomes other code; removed where that is empty."""

    old: str
    new: str
    number: int = 0
    """Which of its places, from 1; 0 for all of them, of which there is mostly one."""


@dataclass(frozen=True, slots=True)
class Insert:
    """Lines come after or before a line that is quoted."""

    code: str
    anchor: str
    side: Literal["after", "before"]
    number: int = 0
    """Which of the places of the line, from 1; 0 where there is one."""


Operation = Rename | Rewrite | Replace | Insert


def apply_operation(operation: Operation, text: str, language: Language, sandbox: Sandbox) -> str | None:
    """Return `text` with one operation done; None where the text does not hold what it is about."""
    match operation:
        case Rename(old, new):
            changed = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _: new, text)
            return changed if changed != text else None
        case Rewrite(pattern, rewrite):
            action = PatternAction(pattern=pattern, rewrite=rewrite)
            [result] = map(ensure_decided, sandbox.apply_many(text, language, [action]))
            return result.after if result.verdict is Verdict.OK and result.after != text else None
        case Replace(old, new, number):
            spans = find_code(text, old)
            chosen = spans if not number else spans[number - 1 : number]
            for start, end in reversed(chosen):
                text = _splice(text, start, end, new)
            return text if chosen else None
        case Insert(code, anchor, side, number):
            spans = [span for span in find_code(text, anchor) if _is_whole_lines(text, *span)]
            chosen = spans[max(number, 1) - 1 : max(number, 1)] if number or len(spans) == 1 else []
            return _insert(text, *chosen[0], code, side, language) if chosen else None


def find_code(text: str, code: str) -> list[tuple[int, int]]:
    """Return where quoted `code` stands: one line as it is, several by what each says, whatever their common indentation."""
    lines = [line for line in code.split("\n") if line.strip()]
    if not lines:
        return []
    if len(lines) == 1:
        quoted = lines[0].strip()
        pattern = re.escape(quoted)
        pattern = rf"(?<!\w){pattern}" if _WORD.match(quoted[0]) else pattern
        pattern = rf"{pattern}(?!\w)" if _WORD.match(quoted[-1]) else pattern
        return [match.span() for match in re.finditer(pattern, text)]
    return _find_lines(text, lines)


def _find_lines(text: str, lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return where `lines` follow one another, blank lines between them aside; a place is from the first sign to the last."""
    places, offset = [], 0
    for line in text.split("\n"):
        if line.strip():
            places.append((line, offset))
        offset += len(line) + 1
    spans = []
    margin = indent_of(lines[0])
    for first in range(len(places) - len(lines) + 1):
        window = places[first : first + len(lines)]
        shift = indent_of(window[0][0]) - margin
        if all(
            line.strip() == quoted.strip() and indent_of(line) - indent_of(quoted) == shift
            for (line, _), quoted in zip(window, lines, strict=True)
        ):
            (head, start), (tail, last) = window[0], window[-1]
            spans.append((start + indent_of(head), last + len(tail.rstrip())))
    return spans


def indent_of(line: str) -> int:
    """Return the blanks before a line, a tab as one."""
    return len(line) - len(line.lstrip())


def dedent(lines: Sequence[str]) -> list[str]:
    """Return lines without trailing blanks and the indentation that all have in common."""
    margin = min((indent_of(line) for line in lines if line.strip()), default=0)
    return [line[margin:].rstrip() for line in lines]


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _is_whole_lines(text: str, start: int, end: int) -> bool:
    line_end = text.find("\n", end)
    after = text[end : line_end if line_end >= 0 else None]
    return not text[_line_start(text, start) : start].strip() and not after.strip()


def _splice(text: str, start: int, end: int, code: str) -> str:
    """Return `text` with `code` in the place of a span, its lines indented as the first one of the span."""
    line_start = _line_start(text, start)
    if not code.strip() and _is_whole_lines(text, start, end):
        after = text.find("\n", end)
        return text[:line_start] + (text[after + 1 :] if after >= 0 else "")
    line = text[line_start:start]
    indent = line[: indent_of(line)] if line.strip() else line
    return text[:start] + _indent(code, indent)[len(indent) :] + text[end:]


def _indent(code: str, indent: str) -> str:
    return "\n".join(indent + line if line.strip() else "" for line in dedent(code.split("\n")))


def _insert(text: str, start: int, end: int, code: str, side: Literal["after", "before"], language: Language) -> str:
    line_start = _line_start(text, start)
    indent = text[line_start:start]
    if side == "before":
        return text[:line_start] + _indent(code, indent) + "\n" + text[line_start:]
    tail = text.find("\n", end)
    tail = len(text) if tail < 0 else tail
    return text[:tail] + "\n" + _indent(code, indent + _deeper(text, start, end, language)) + text[tail:]


def _deeper(text: str, start: int, end: int, language: Language) -> str:
    """Return what lines after a quoted one are indented more: a level where it opens a block."""
    opens = text[end - 1] in ((":",) if language == "python" else "{([")
    if not opens:
        return ""
    indent = text[_line_start(text, start) : start]
    # the block's own lines say how much a level is
    for line in text[end:].split("\n")[1:]:
        if line.strip():
            own = line[: indent_of(line)]
            return own[len(indent) :] if own.startswith(indent) and len(own) > len(indent) else " " * _INDENT
    return " " * _INDENT
