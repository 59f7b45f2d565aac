"""Where in a repository an instruction is likely to be about: its words and symbols, looked for in lines of code; no model.

What the instruction quotes or writes like code counts most, then its words, as parts of identifiers. Words that are rare in the
repository say more, and what it says is to go counts more than what is to come: a line that has that already is done.
Embeddings are not asked: those that are at hand compare the same words.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from graftline.astgrep.binding import Language
from graftline.codemod.hunks import MAX_LINES as _MAX_STATEMENT
from graftline.codemod.hunks import statement_lines
from graftline.codemod.migration.places import parses
from graftline.core.errors import DataError

MAX_BLOCK_LINES = 25
_WINDOW = 8
"""Lines on each side of a place whose statement is longer than a block."""
_MAX_TERMS, _MAX_LINES_OF_TERM = 24, 20_000
Role = Literal["old", "new", "any"]
_TOKEN = re.compile(
    r"`+(?P<code>[^`\n]{1,200})`+|(?P<arrow>->|=>|→)"
    r"|(?P<word>[@$]?[A-Za-z_][\w$]*(?:(?:\.|::|-(?=[a-z]))[A-Za-z_$][\w$]*)*(?:\(\))?)|(?P<end>[.;:!?\n])"
)
_SAYS_OLD = frozenset((
    "replace", "rename", "remove", "drop", "delete", "deprecated", "deprecate", "deprecation", "unused", "without", "instead",
    "from", "than", "over", "away",
))  # fmt: skip
_SAYS_NEW = frozenset(("with", "to", "into", "by", "use", "using", "prefer", "add", "adopt", "introduce"))
_REMOVES = frozenset(("remove", "drop", "delete"))
_KIND_OF_COMMIT = re.compile(r"^\s*[a-z]{2,10}(\([^)]*\))?!?:\s|\(#\d+\)")
_STOP = frozenset((
    "a", "an", "and", "all", "any", "are", "as", "at", "be", "been", "but", "call", "calls", "can", "change", "changes", "class",
    "convert", "do", "does", "each", "every", "everywhere", "file", "files", "fix", "fixes", "for", "function", "functions", "has",
    "have", "if", "in", "internal", "is", "it", "its", "make", "method", "methods", "migrate", "more", "move", "new", "no", "not",
    "now", "of", "old", "on", "one", "only", "or", "our", "place", "places", "project", "refactor", "repository", "same", "should",
    "so", "some", "switch", "that", "the", "their", "them", "then", "there", "these", "this", "those", "turn", "update", "updates",
    "upgrade", "usage", "usages", "version", "was", "we", "when", "where", "which", "while", "will", "would", "you",
))  # fmt: skip
_COMMENT = re.compile(r"\s*(#|//|/?\*|\"\"\"|''')")
_DEFINITION = re.compile(r"\s*(?:[\w@]+\s+)*(?:def|class|function|interface|enum)\s")
_PROSE = re.compile(r"\s*(?:[rRuUbBfF]?(?:\"\"\"|\'\'\')|(?:(?:#|//|/?\*)[^\n]*\s*)+\Z)")
"""A block that is a text, or comments alone."""
_IMPORT = re.compile(r"\s*(import|from|package|export \*)\b|.*\brequire\(")
_QUALIFIER = 0.3
_DOTTED = re.compile(r"(?P<name>[A-Za-z_$][\w$]*)(?P<dot>\.(?=\w))?")
_SUFFIX = re.compile(r"(ations?|ings?|ed|es|s|e)$")


@dataclass(frozen=True, slots=True)
class Term:
    """Something that the instruction names."""

    text: str
    role: Role
    weight: float
    is_code: bool
    """Whether it is a name as it stands in code, and not a word that may be a part of one."""
    is_qualifier: bool = False
    """Whether it stands before a dot: it may be called otherwise elsewhere."""
    is_shared: bool = False
    """Whether what is to go and what is to come both have it."""

    @property
    def pattern(self) -> str:
        """A regular expression that matches it."""
        escaped = re.escape(self.text)
        if self.is_code:
            return rf"(?<![\w$]){escaped}(?![\w$])"
        return rf"(?<![A-Za-z]){escaped}|(?<=[a-z_]){escaped[:1].upper()}{escaped[1:]}|{escaped[:1].upper()}{escaped[1:]}(?=[a-z]*\b|[A-Z_])"


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


def read_terms(instruction: str) -> list[Term]:
    """Return what an instruction names.

    "Use `fetch()` instead of `get()`"  ->  fetch (new), get (old)
    """
    role: Role = "any"
    terms: dict[str, Term] = {}

    def add(text: str, weight: float, is_code: bool, is_qualifier: bool = False) -> None:
        earlier = terms.get(text)
        is_shared = earlier is not None and (earlier.is_shared or {earlier.role, role} == {"old", "new"})
        if earlier is None or (earlier.role == "new" and role == "old"):
            terms[text] = Term(text, role, weight, is_code, is_qualifier, is_shared)
        elif is_shared:
            terms[text] = replace(earlier, is_shared=True)

    def add_code(code: str, weight: float) -> None:
        for name in _DOTTED.finditer(code):
            add(
                name["name"],
                weight * (_QUALIFIER if name["dot"] else 1.0),
                is_code=True,
                is_qualifier=bool(name["dot"]),
            )

    removes = False
    for match in _TOKEN.finditer(_KIND_OF_COMMIT.sub("", instruction[:4_000])):
        if match["end"]:
            role, removes = "any", False
        elif match["arrow"]:
            role = "new"
            for text, term in [*terms.items()]:
                terms[text] = replace(term, role="old" if term.role == "any" else term.role)
        elif match["code"]:
            add_code(match["code"], 4.0)
        else:
            word = match["word"]
            lower = word.lower()
            if removes and lower in ("from", "on", "in", "of"):
                role = "any"  # where it is removed from
                continue
            if lower in _SAYS_OLD or lower in _SAYS_NEW:
                removes = removes or lower in _REMOVES
                role = "old" if lower in _SAYS_OLD else "new"
                continue
            if lower in _STOP or len(word) < 2:
                continue
            looks_like_code = bool(re.search(r"[_$@.()]|[a-z][A-Z]|::|\d", word)) or word.isupper()
            if looks_like_code:
                add_code(word, 3.0)
            else:
                add(_SUFFIX.sub("", lower) if len(lower) > 4 else lower, 1.0, is_code=False)
    return [*terms.values()][:_MAX_TERMS]


def find_places(
    instruction: str, texts: Mapping[str, str], languages: Mapping[str, Language], count: int = 6
) -> PlacesByWords:
    """Return blocks of `texts` that the instruction may be about, at most `count`, of those alike the first alone.

    None is of a text that does not parse: no rule could come of its edit.
    """
    terms = read_terms(instruction)
    lines: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for number, term in enumerate(terms):
        expression, needle = re.compile(term.pattern), term.text.lower()
        for path, text in texts.items():
            if counts[term.text] >= _MAX_LINES_OF_TERM:
                break
            if path not in languages or needle not in text.lower():
                continue
            numbers = _lines_of(expression, text)
            counts[term.text] += len(numbers)
            for line in numbers:
                lines[path, line].add(number)
    has_old = any(term.role == "old" and counts[term.text] for term in terms)
    total = 1 + sum(text.count("\n") + 1 for text in texts.values())
    worth = [_worth(term, counts[term.text], total, has_old) for term in terms]
    renames = bool(re.search(r"\brename|->|→", instruction, re.IGNORECASE))
    lines_of = cache(lambda path: texts[path].split("\n"))
    # a change of a module is one of imports: they are a place of their own beside those that use it
    groups: defaultdict[tuple[frozenset[int], bool], list[tuple[float, str, int]]] = defaultdict(list)
    for (path, line), numbers in lines.items():
        score = sum(worth[number] for number in numbers)
        code = lines_of(path)[line]
        is_import = bool(_IMPORT.match(code))
        score *= 0.3 if _COMMENT.match(code) else 0.9 if is_import else 1.0
        # what is replaced where it is used stays defined, unless it is renamed
        score *= 0.4 if _DEFINITION.match(code) and not renames else 1.0
        if score > 0:
            groups[frozenset(numbers), is_import].append((score, path, line))
    ranked = []
    for members in groups.values():
        members.sort(key=lambda row: (-row[0], len(lines_of(row[1])[row[2]]), row[1:]))
        bonus = 1 + 0.2 * math.log(min(len(members), 100))
        ranked.append((members[0][0] * bonus, members))
    ranked.sort(key=lambda row: (-row[0], row[1][0][1:]))
    blocks: list[Block] = []
    for depth in range(count):  # the best of every group, then the second of every group
        for score, members in ranked[:count]:
            if len(blocks) < count and depth < len(members):
                _, path, line = members[depth]
                if not any(block.path == path and block.start <= line < block.end for block in blocks) and parses(
                    texts[path], languages[path]
                ):
                    block = make_block(path, texts[path], languages[path], line, score / (1 + depth))
                    blocks += [] if _PROSE.match(block.text) else [block]
    return PlacesByWords(tuple(terms), tuple(blocks), counts)


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


def _worth(term: Term, count: int, total: int, has_old: bool) -> float:
    if not count:
        return 0.0
    by_role = {"old": 2.0, "any": 1.0, "new": -0.5 if has_old and term.is_code else 0.3}
    # what a change is about is there more than once
    return term.weight * by_role[term.role] * math.log(1 + total / max(count, 5)) * min(1.0, (1 + count) / 4)


def _lines_of(expression: re.Pattern[str], text: str) -> set[int]:
    numbers, line, position = set[int](), 0, 0
    for match in expression.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        numbers.add(line)
    return numbers


def exclude_edited(blocks: Sequence[Block], edited: Sequence[Block]) -> list[Block]:
    """Return the blocks that share no line with those that were edited."""
    return [
        block
        for block in blocks
        if not any(b.path == block.path and b.start < block.end and block.start < b.end for b in edited)
    ]
