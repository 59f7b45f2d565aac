"""Where in a repository an instruction is likely to be about: its terms, looked for in lines of code; no model."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from graftline.agent.ranking import Group, Line, LineRanking, SearchMemory, search_lines
from graftline.agent.terms import Term, add_similar, read_terms
from graftline.astgrep.binding import Language
from graftline.codemod.hunks import MAX_LINES as _MAX_STATEMENT
from graftline.codemod.hunks import statement_lines
from graftline.codemod.migration.places import parses
from graftline.codemod.source_files import VENDORED
from graftline.core.errors import DataError

MAX_BLOCK_LINES = 25
_WINDOW = 8
"""Lines on each side of a place whose statement is longer than a block."""
_MAX_TRIED = 5
"""Shapes of lines whose statements are compared in length."""
_PROSE = re.compile(r"\s*(?:[rRuUbBfF]?(?:\"\"\"|\'\'\')|(?:(?:#|//|/?\*)[^\n]*+\s*+)++\Z)")
"""A block that is a text, or comments alone; a line of many signs is read in one way, and not in each that there is."""


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file that a model is shown."""

    path: str
    language: Language
    start: int
    end: int
    """Lines from 0; the end is not one of them."""
    text: str
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class PlacesByWords:
    """What was looked for, and where it is."""

    terms: tuple[Term, ...]
    blocks: tuple[Block, ...]
    """The likeliest first."""
    counts: Mapping[str, int]
    """Lines that have a term."""

    @property
    def is_done(self) -> bool:
        """Whether the files have what the instruction says is to come, and nothing that it says is to go."""
        own = [term for term in self.terms if term.is_code and not term.is_qualifier and not term.is_shared]
        old, new = ([self.counts[term.text] for term in own if term.role == role] for role in ("old", "new"))
        return bool(old and new) and not any(old) and any(new)


def find_places(
    instruction: str,
    texts: Mapping[str, str],
    languages: Mapping[str, Language],
    count: int = 6,
    memory: SearchMemory | None = None,
) -> PlacesByWords:
    """Return blocks of `texts` that the instruction may be about, at most `count`, of those alike the first alone.

    None is of a text that does not parse: no rule could come of its edit. `memory` is that of earlier calls.
    """
    texts = {path: text for path, text in texts.items() if path in languages and not _is_vendored(path)}
    terms = add_similar(read_terms(instruction), texts)
    lines, counts = search_lines(terms, texts, memory)
    ranking = LineRanking(instruction, texts, terms, counts)
    is_program = cache(lambda path: parses(texts[path], languages[path]))

    def cut(line: Line, score: float = 0.0) -> Block:
        return make_block(line.path, texts[line.path], languages[line.path], line.number, score)

    def choose(groups: Sequence[Group]) -> list[Block]:
        for group in groups:
            _put_easiest_first(group.lines, ranking, cut)
        return _cut_blocks(groups, cut, is_program, count)

    blocks = choose(ranking.rank(lines)[:count])
    if not blocks:
        # files are parsed where it matters alone: those that do not parse may come before all others
        programs = {place: numbers for place, numbers in lines.items() if is_program(place[0])}
        blocks = choose(ranking.rank(programs)[:count]) if len(programs) < len(lines) else []
    return PlacesByWords(tuple(terms), tuple(blocks), counts)


def _put_easiest_first(lines: list[Line], ranking: LineRanking, cut: Callable[[Line], Block]) -> None:
    """Put one of the likeliest lines first: of a usual shape, in a short statement, which is the easiest to edit."""
    likeliest = [line for line in lines if line.score == lines[0].score]
    shapes = [ranking.shape_of(line) for line in likeliest]
    usual = Counter(shapes)
    ease: dict[str, tuple[float, int]] = {}
    for number, (line, shape) in enumerate(zip(likeliest, shapes, strict=True)):
        if shape not in ease and len(ease) < _MAX_TRIED:
            block = cut(line)
            ease[shape] = math.log(1 + usual[shape]) / math.sqrt(block.end - block.start), -number
    lines.insert(0, lines.pop(-max(ease.values())[1]))


def _cut_blocks(
    groups: Sequence[Group], cut: Callable[[Line, float], Block], is_program: Callable[[str], bool], count: int
) -> list[Block]:
    """Return at most `count` blocks: of the best line of every group, then of the second of every group."""
    blocks: list[Block] = []
    for depth in range(count):
        for group in groups:
            if len(blocks) == count or depth >= len(group.lines):
                continue
            line = group.lines[depth]
            is_there = any(block.path == line.path and block.start <= line.number < block.end for block in blocks)
            if not is_there and is_program(line.path):
                block = cut(line, group.score / (1 + depth))
                blocks += [] if _PROSE.match(block.text) else [block]
    return blocks


def _is_vendored(path: str) -> bool:
    return not VENDORED.isdisjoint(PurePosixPath(path).parts[:-1])


def make_block(path: str, text: str, language: Language, line: int, score: float = 0.0) -> Block:
    """Return the statement that has a line (from 0), or a window around it where the statement is too long."""
    lines = text.split("\n")
    try:
        start, end = statement_lines(text, language, line)
    except DataError:
        start, end = 0, _MAX_STATEMENT + 1
    if end - start > MAX_BLOCK_LINES:
        start, end = max(start, line - _WINDOW), min(end, line + _WINDOW + 1)
    return Block(path, language, start, end, "\n".join(lines[start:end]) + "\n", score)


def exclude_edited(blocks: Sequence[Block], edited: Sequence[Block]) -> list[Block]:
    """Return the blocks that share no line with those that were edited."""
    return [
        block
        for block in blocks
        if not any(b.path == block.path and b.start < block.end and block.start < b.end for b in edited)
    ]
