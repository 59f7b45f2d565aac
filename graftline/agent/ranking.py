"""Lines that have terms of an instruction, by how likely it is about them; lines that have the same terms make a group.

Terms that are rare in the repository say more, and what is to go says more than what is to come: a line that has that already is
done. Embeddings are not asked: those that are at hand compare the same words.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from graftline.agent.terms import Term

_MAX_LINES_OF_TERM, _MAX_SHAPES = 20_000, 500
_COMMENT = re.compile(r"\s*(#|//|/?\*|\"\"\"|''')")
_ABOUT_DEFINITIONS = re.compile(
    r"\b(?:definition|signature|annotation|modifier|inherit|lifecycle|fixture|class(?:es)?\b|renam|decorat)|->|→",
    re.IGNORECASE,
)
_DEFINITION = re.compile(r"\s*(?:[\w@]+\s+)*(?:def|class|function|interface|enum)\s")
_IMPORT = re.compile(r"\s*(import|from|package|export \*)\b|.*\brequire\(")
_OTHER, _STRING = re.compile(r"[A-Za-z_$][\w$]*"), re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")


SearchMemory = dict[str, tuple[str, dict[Term, Collection[int]]]]
"""What was looked for in texts: the text, and the lines of each term, by path."""


class Line(NamedTuple):
    """A line of a file, from 0, and how likely it is."""

    score: float
    path: str
    number: int


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that have the same terms, the likeliest first."""

    score: float
    lines: list[Line]


def search_lines(
    terms: Sequence[Term], texts: Mapping[str, str], memory: SearchMemory | None = None
) -> tuple[dict[tuple[str, int], set[int]], Counter[str]]:
    """Return the numbers of the terms that a line has, by its path and number, and how many lines have a term.

    Of a text that is in `memory`, only new terms are looked for.
    """
    memory = {} if memory is None else memory
    lines: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    counts: Counter[str] = Counter()
    expressions = [re.compile(term.pattern) for term in terms]
    for path, text in texts.items():
        earlier, own = memory.get(path, ("", {}))
        if earlier != text:
            own = {}
            memory[path] = text, own
        lower = "" if all(term in own for term in terms) else text.lower()
        for number, term in enumerate(terms):
            if counts[term.text] < _MAX_LINES_OF_TERM:
                if term not in own:
                    is_there = term.text.lower() in lower
                    own[term] = _lines_of(term, expressions[number], text, lower) if is_there else frozenset()
                counts[term.text] += len(own[term])
                for line in own[term]:
                    lines[path, line].add(number)
    return lines, counts


def _lines_of(term: Term, expression: re.Pattern[str], text: str, lower: str) -> set[int]:
    """Return the lines of `text` with a term; `lower` is the text in small letters."""
    if term.is_qualifier or len(lower) != len(text):
        starts: Iterator[int] = (match.start() for match in expression.finditer(text))
    else:  # a match starts with the term, which is found sooner than by an expression
        starts = (match.start() for match in re.finditer(re.escape(term.text.lower()), lower))
        starts = (start for start in starts if expression.match(text, start))
    numbers, line, position = set[int](), 0, 0
    for start in starts:
        line += text.count("\n", position, start)
        position = start
        numbers.add(line)
    return numbers


class LineRanking:
    """How likely an instruction is about lines of `texts`; `counts` are the lines that have a term."""

    def __init__(
        self, instruction: str, texts: Mapping[str, str], terms: Sequence[Term], counts: Mapping[str, int]
    ) -> None:
        has_old = any(
            counts[term.text] for term in terms if term.is_code and not term.is_qualifier and term.role != "new"
        )
        total = 1 + sum(text.count("\n") + 1 for text in texts.values())
        self._worth = [_worth(term, counts[term.text], total, has_old) for term in terms]
        self._is_of_definitions = bool(_ABOUT_DEFINITIONS.search(instruction))
        # "`unittest.mock` instead of mock": where a module is moved, imports say it
        modules = [re.escape(term.text) for term in terms if term.is_shared and f".{term.text}" in instruction]
        self._moved = re.compile(rf"\b(?:from|import)\W+(?:{'|'.join(modules)})(?![\w$])") if modules else None
        self._names = re.compile("|".join(term.pattern for term in terms) or r"(?!)")
        self._split = cache(lambda path: texts[path].split("\n"))

    def rank(self, lines: Mapping[tuple[str, int], set[int]]) -> list[Group]:
        """Return groups of `lines`, which have the terms of these numbers, the likeliest first."""
        # a change of a module is one of imports: they are a place of their own beside those that use it
        groups: defaultdict[tuple[frozenset[int], bool], list[Line]] = defaultdict(list)
        # few sets of terms are those of many lines
        of_terms = cache(lambda terms: (frozenset(terms), sum(self._worth[number] for number in terms)))
        for (path, number), terms in lines.items():
            code = self._split(path)[number]
            members, worth = of_terms(tuple(terms))
            line = Line(self._score(code, worth), path, number)
            if line.score > 0:
                groups[members, _kinds_of(code)[1]].append(line)
        ranked = []
        for group in groups.values():
            bonus = 1 + 0.2 * math.log(min(len(group), 100))
            own = self._put_usual_first(group)
            ranked.append(Group(own[0].score * bonus, own))
        return sorted(ranked, key=lambda group: (-group.score, group.lines[0][1:]))

    def shape_of(self, line: Line) -> str:
        """Return a line with one word for each name that the instruction does not have, and one for each string."""
        return _shape_of(self._split(line.path)[line.number], self._names)

    def _score(self, code: str, score: float) -> float:
        is_moved = self._moved is not None and self._moved.search(code)
        is_comment, is_import, is_definition = _kinds_of(code)
        score *= 0.3 if is_comment else 1.5 if is_moved else 0.9 if is_import else 1.0
        # what is replaced where it is used stays defined, unless it is said to be of definitions
        return score * (0.4 if is_definition and not self._is_of_definitions else 1.0)

    def _put_usual_first(self, lines: Sequence[Line]) -> list[Line]:
        """Return the likeliest lines; what is changed in many places looks alike in them, so the most usual line is the first."""
        likeliest = sorted(lines, key=lambda line: (-line.score, line[1:]))[:_MAX_SHAPES]
        shapes = {line: self.shape_of(line) for line in likeliest}
        usual = Counter(shapes.values())
        return sorted(
            likeliest,
            key=lambda line: (-line.score, -usual[shapes[line]], len(self._split(line.path)[line.number])),
        )


# the lines of a repository are ranked again after each edit, and most are as they were
@lru_cache(maxsize=1 << 16)
def _kinds_of(code: str) -> tuple[bool, bool, bool]:
    """Return whether a line is a comment, an import, or begins a definition."""
    return bool(_COMMENT.match(code)), bool(_IMPORT.match(code)), bool(_DEFINITION.match(code))


@lru_cache(maxsize=1 << 14)
def _shape_of(code: str, names: re.Pattern[str]) -> str:
    return _OTHER.sub(lambda match: match[0] if names.fullmatch(match[0]) else "w", _STRING.sub("s", code)).strip()


def _worth(term: Term, count: int, total: int, has_old: bool) -> float:
    if not count:
        return 0.0
    by_role = {"old": 2.0, "any": 1.0, "new": -0.5 if has_old and term.is_code else 0.3}
    # what a change is about is there more than once
    return term.weight * by_role[term.role] * math.log(1 + total / max(count, 5)) * min(1.0, (1 + count) / 4)
