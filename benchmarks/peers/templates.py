"""Templates with holes, as comby has them, made of one edit: what a careful person would type who has no rules.

A template is the smallest run of tokens around a change whose brackets are closed. What stays in it becomes holes; a hole
stands for any text with closed brackets, as short as possible, and blanks are all alike (comby.dev/docs/syntax-reference).
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from graftline.codemod.diff import common_ends

_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_MAX_HOLE = 200
"""Tokens in one hole."""
_MAX_PLACES = 2_000

Part = str | int
"""A token, or the number of a hole."""


class Template(NamedTuple):
    """What is searched, and what is written for it."""

    match: tuple[Part, ...]
    rewrite: tuple[Part, ...]


def make_templates(before: str, after: str) -> Iterator[Template]:
    """Yield a template for each run of changed lines."""
    old, new = before.split("\n"), after.split("\n")
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "replace":
            template = _make_template(_TOKENS.findall("\n".join(old[i:j])), _TOKENS.findall("\n".join(new[k:m])))
            if any(isinstance(part, str) and re.match(r"\w", part) for part in template.match):
                yield template


def _make_template(old: Sequence[str], new: Sequence[str]) -> Template:
    front, back = common_ends(old, new)
    if not any(re.match(r"\w", token) for token in old[front : len(old) - back]):
        # around an insertion, the call that it is in, else the word before it
        start = next((n for n in range(front - 1, 0, -1) if _count_open(old[n:front]) == (0, 1)), front)
        is_called = start < front and re.match(r"\w", old[start - 1])
        front = start - 1 if is_called else next((n for n in range(front - 1, -1, -1) if re.match(r"\w", old[n])), 0)
    while (open_ := _count_open(old[front : len(old) - back])) != (0, 0) and (front or back):
        missing_before, missing_after = open_
        if missing_before and front:
            front -= 1
        elif missing_after and back:
            back -= 1
        else:
            break
    sides = old[front : len(old) - back], new[front : len(new) - back]
    match, rewrite = list[Part](), list[Part]()
    holes = 0
    for tag, i, j, k, m in SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        if tag == "equal":
            # a name before a bracket that stays open is what is called; blanks and commas at the ends are no part of a hole
            start = next((n + 1 for n in range(j - 1, i - 1, -1) if _count_open(sides[0][n:j]) == (0, 1)), i)
            end = next((n for n in range(start, j) if _count_open(sides[0][start : n + 1])[0]), j)
            while start < end and not re.match(r"[\w(\[{]", sides[0][start]):
                start += 1
            while start < end and not re.match(r"[\w)\]}]", sides[0][end - 1]):
                end -= 1
            is_hole = start < end and _count_open(sides[0][start:end]) == (0, 0)
            middle: list[Part] = [holes] if is_hole else list(sides[0][start:end])
            holes += is_hole
            parts = [*sides[0][i:start], *middle, *sides[0][end:j]]
            match += parts
            rewrite += parts
        else:
            match += sides[0][i:j]
            rewrite += sides[1][k:m]
    if not any(isinstance(part, str) and re.match(r"\w", part) for part in match):
        return Template(tuple(sides[0]), tuple(sides[1]))
    return Template(tuple(match), tuple(rewrite))


def _count_open(tokens: Sequence[str]) -> tuple[int, int]:
    """Return how many brackets lack their opening, and how many their end."""
    missing, stack = 0, list[str]()
    for token in tokens:
        if token in _CLOSES:
            stack.append(_CLOSES[token])
        elif token in _CLOSES.values():
            if stack:
                stack.pop()
            else:
                missing += 1
    return missing, len(stack)


def rewrite_text(template: Template, text: str) -> str:
    """Return `text` with every place that the template matches rewritten, from its start to its end."""
    tokens = _TOKENS.findall(text)
    pieces, position, places = list[str](), 0, 0
    while position < len(tokens):
        holes: dict[int, str] = {}
        end = _match(template.match, tokens, position, holes) if places < _MAX_PLACES else None
        if end is None or end == position:
            pieces.append(tokens[position])
            position += 1
        else:
            pieces += [holes[part] if isinstance(part, int) else part for part in template.rewrite]
            position, places = end, places + 1
    return "".join(pieces)


def _match(parts: Sequence[Part], tokens: Sequence[str], position: int, holes: dict[int, str]) -> int | None:
    """Return where a match that starts at `position` ends, and fill `holes`; None if there is none."""
    for number, part in enumerate(parts):
        if isinstance(part, int):
            return _match_hole(parts[number:], tokens, position, holes)
        if position >= len(tokens) or not (tokens[position] == part or (part.isspace() and tokens[position].isspace())):
            return None
        position += 1
    return position


def _match_hole(parts: Sequence[Part], tokens: Sequence[str], start: int, holes: dict[int, str]) -> int | None:
    stack, position = list[str](), start
    while position < min(len(tokens), start + _MAX_HOLE):
        token = tokens[position]
        if token in _CLOSES:
            stack.append(_CLOSES[token])
        elif token in _CLOSES.values() and (not stack or stack.pop() != token):
            return None
        if "\n" in token and not stack:
            return None
        position += 1
        if not stack:
            end = _match(parts[1:], tokens, position, holes)
            if end is not None:
                holes[int(parts[0])] = "".join(tokens[start:position])
                return end
    return None
