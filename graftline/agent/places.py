"""Where in a repository an instruction is likely to be about: its words and symbols, looked for in lines of code; no model.

What the instruction quotes or writes like code counts most, then its words, as parts of identifiers. Words that are rare in the
repository say more, and what it says is to go counts more than what is to come: a line that has that already is done.
Embeddings are not asked: those that are at hand compare the same words.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache
from pathlib import PurePosixPath
from typing import Literal

from graftline.astgrep.binding import Language
from graftline.codemod.hunks import MAX_LINES as _MAX_STATEMENT
from graftline.codemod.hunks import statement_lines
from graftline.codemod.migration.places import has_word, parses
from graftline.codemod.source_files import VENDORED
from graftline.core.errors import DataError
from graftline.datasets.synthetic.candidates import parts_of

MAX_BLOCK_LINES = 25
_WINDOW = 8
"""Lines on each side of a place whose statement is longer than a block."""
_MAX_TERMS, _MAX_LINES_OF_TERM = 24, 20_000
Role = Literal["old", "new", "any"]
_TOKEN = re.compile(
    r"`+(?P<code>[^`\n]{1,200})`+|(?P<arrow>->|=>|→)"
    r"|(?P<word>[@$]?[A-Za-z_][\w$]*(?:(?:\.|::|-(?=[a-z]))[A-Za-z_$][\w$]*)*(?:\(\))?)|(?P<end>[.;:!?\n])"
)
_SAYS_OLD = re.compile(
    r"(?:replac|renam|remov|dropp?|delet|deprecat)(?:e|es|ed|ing|ion|ions|s)?|unused|without|instead|from|than|over|away"
)
_SAYS_NEW = re.compile(r"with|to|into|by|us(?:e|es|ed|ing)|prefer|add(?:s|ed|ing)?|adopt|introduce")
_SAYS_WHERE = frozenset(("for", "in", "on", "of", "where", "when", "if"))
_ADDS, _REMOVES = re.compile(r"add|introduce"), re.compile(r"remov|drop|delet")
_KINDS = frozenset((
    "annotation", "argument", "attribute", "decorator", "fixture", "flag", "keyword", "modifier", "operator", "option", "parameter",
    "statement",
))  # fmt: skip
"""What is said of the name before: that it stands so in code."""
_LIKE_CODE = re.compile(r"[_$@.()]|[a-z][A-Z]|::|^[a-z]+\d")
_FOLLOWER = re.compile(r"\s+([A-Za-z]+)")
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
_ABOUT_DEFINITIONS = re.compile(
    r"\b(?:definition|signature|annotation|modifier|inherit|lifecycle|fixture|class(?:es)?\b|renam|decorat)|->|→",
    re.IGNORECASE,
)
_DEFINITION = re.compile(r"\s*(?:[\w@]+\s+)*(?:def|class|function|interface|enum)\s")
_PROSE = re.compile(r"\s*(?:[rRuUbBfF]?(?:\"\"\"|\'\'\')|(?:(?:#|//|/?\*)[^\n]*+\s*+)++\Z)")
"""A block that is a text, or comments alone; a line of many signs is read in one way, and not in each that there is."""
_IMPORT = re.compile(r"\s*(import|from|package|export \*)\b|.*\brequire\(")
_QUALIFIER = 0.3
_DOTTED = re.compile(r"(?P<name>[A-Za-z_$][\w$]*)(?P<dot>\.(?=\w))?")
_NAME = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]{2,60}(?![\w$])")
_OTHER, _STRING = re.compile(r"[A-Za-z_$][\w$]*"), re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")
_MAX_SHAPES, _MAX_TRIED = 500, 5
_MAX_NAMES_READ, _MAX_SIMILAR, _LEAST_SIMILAR = 20_000_000, 3, 0.6
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
    def is_gone(self) -> bool:
        """Whether it is code that is not to be there afterwards."""
        return self.role == "old" and self.is_code and not (self.is_qualifier or self.is_shared)

    @property
    def pattern(self) -> str:
        """A regular expression that matches it."""
        escaped = re.escape(self.text)
        if self.is_qualifier:
            return (
                rf"(?<![\w$]){escaped}(?=\s*(?:\.|::))|(?m:^[ \t]*(?:from|import)\b[^\n]*?(?<![\w$]){escaped}(?![\w$]))"
            )
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
        if earlier is None or (earlier.role == "new" and role == "old") or (is_code and not earlier.is_code):
            terms[text] = Term(text, role, weight, is_code, is_qualifier, is_shared)
        elif is_shared:
            terms[text] = replace(earlier, is_shared=True)

    def add_code(code: str, weight: float) -> None:
        names = [*_DOTTED.finditer(code)]
        for name in names:
            if len(names) > 1 and len(name["name"]) == 1 and not name["dot"]:
                continue  # stands for any code
            add(
                name["name"],
                weight * (_QUALIFIER if name["dot"] else 1.0),
                is_code=True,
                is_qualifier=bool(name["dot"]),
            )

    verb = previous = ""
    text = _KIND_OF_COMMIT.sub("", instruction[:4_000])
    for match in _TOKEN.finditer(text):
        if match["end"]:
            role, verb = "any", ""
        elif match["arrow"]:
            role = "new"
            for name, term in [*terms.items()]:
                terms[name] = replace(term, role="old" if term.role == "any" else term.role)
        elif match["code"]:
            add_code(match["code"], 4.0)
        else:
            word = match["word"]
            lower = word.lower()
            is_code = bool(_LIKE_CODE.search(word)) or (word.isupper() and len(word) > 1)
            follower = _FOLLOWER.match(text, match.end())
            is_code |= text[match.end() : match.end() + 1] == "["
            is_code |= follower is not None and follower[1].lower().removesuffix("s") in _KINDS
            # "`unittest.mock` instead of mock"
            is_code |= (
                previous == "of"
                and role == "old"
                and any(term.role == "new" and term.text == word for term in terms.values())
            )
            previous, earlier = lower, previous
            if not is_code and (
                (_REMOVES.match(verb) and lower in ("from", "on", "in", "of"))
                or (_ADDS.match(verb) and lower in ("to", "into"))
                or (lower in _SAYS_WHERE and role == "new")
            ):
                role = "any"  # where it is done
            elif not is_code and lower == "from" and earlier.startswith("inherit"):
                role = "new"
            elif not is_code and lower in ("use", "uses", "using") and earlier in ("only", "that", "which"):
                role = "any"
            elif not is_code and (_SAYS_OLD.fullmatch(lower) or _SAYS_NEW.fullmatch(lower)):
                verb = lower if _ADDS.match(lower) or _REMOVES.match(lower) else verb
                role = "old" if _SAYS_OLD.fullmatch(lower) else "new"
            elif is_code:
                add_code(word, 3.0)
            elif lower not in _STOP and len(word) > 1 and lower.removesuffix("s") not in _KINDS:
                add(_SUFFIX.sub("", lower) if len(lower) > 4 else lower, 1.0, is_code=False)
    return [*terms.values()][:_MAX_TERMS]


def edit_by_words(instruction: str, terms: Sequence[Term], code: str) -> str | None:
    """Return `code` with the one name that is to come in place of the one that is to go; None where the words leave a choice.

    "Migrate to Node.findall() from Node.traverse()"  ->  `findall` for `traverse`
    """
    own = [term for term in terms if term.is_code and not term.is_qualifier and term.text in instruction]
    old, new = ([term for term in own if term.role == role] for role in ("old", "new"))
    if len(own) != 2 or len(old) != 1 or len(new) != 1 or any(term.is_shared for term in own):
        return None
    if any(f"{term.text}[" in instruction for term in own):
        return None  # what stands in the brackets is to change as well
    edited = re.sub(old[0].pattern, lambda _: new[0].text, code)
    return edited if edited != code else None


def find_places(
    instruction: str, texts: Mapping[str, str], languages: Mapping[str, Language], count: int = 6
) -> PlacesByWords:
    """Return blocks of `texts` that the instruction may be about, at most `count`, of those alike the first alone.

    None is of a text that does not parse: no rule could come of its edit.
    """
    texts = {path: text for path, text in texts.items() if path in languages and not _is_vendored(path)}
    terms = _add_similar(read_terms(instruction), texts)
    lines: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    counts: Counter[str] = Counter()
    searched = [(number, term, re.compile(term.pattern)) for number, term in enumerate(terms)]
    for path, text in texts.items():
        lower = text.lower()
        for number, term, expression in searched:
            if counts[term.text] < _MAX_LINES_OF_TERM and term.text.lower() in lower:
                numbers = _lines_of(term, expression, text, lower)
                counts[term.text] += len(numbers)
                for line in numbers:
                    lines[path, line].add(number)
    has_old = any(counts[term.text] for term in terms if term.is_code and not term.is_qualifier and term.role != "new")
    total = 1 + sum(text.count("\n") + 1 for text in texts.values())
    worth = [_worth(term, counts[term.text], total, has_old) for term in terms]
    is_of_definitions = bool(_ABOUT_DEFINITIONS.search(instruction))
    # "`unittest.mock` instead of mock": where a module is moved, imports say it
    modules = [re.escape(term.text) for term in terms if term.is_shared and f".{term.text}" in instruction]
    moved = re.compile(rf"\b(?:from|import)\W+(?:{'|'.join(modules)})(?![\w$])") if modules else None
    lines_of = cache(lambda path: texts[path].split("\n"))
    # a change of a module is one of imports: they are a place of their own beside those that use it
    groups: defaultdict[tuple[frozenset[int], bool], list[tuple[float, str, int]]] = defaultdict(list)
    for (path, line), numbers in lines.items():
        score = sum(worth[number] for number in numbers)
        code = lines_of(path)[line]
        is_import = bool(_IMPORT.match(code))
        score *= 0.3 if _COMMENT.match(code) else 1.5 if moved and moved.search(code) else 0.9 if is_import else 1.0
        # what is replaced where it is used stays defined, unless it is said to be of definitions
        score *= 0.4 if _DEFINITION.match(code) and not is_of_definitions else 1.0
        if score > 0:
            groups[frozenset(numbers), is_import].append((score, path, line))
    names = re.compile("|".join(term.pattern for term in terms) or r"(?!)")
    ranked = []
    for members in groups.values():
        members.sort(key=lambda row: (-row[0], row[1:]))
        # what is changed in many places looks alike in them: the most usual line first
        codes = [lines_of(path)[line] for _, path, line in members[:_MAX_SHAPES]]
        shapes = [_shape(code, names) for code in codes]
        usual = Counter(shapes)
        order = sorted(range(len(codes)), key=lambda n: (-members[n][0], -usual[shapes[n]], len(codes[n]), n))
        members = [members[n] for n in order]
        bonus = 1 + 0.2 * math.log(min(len(members), 100))
        ranked.append((members[0][0] * bonus, members))
    ranked.sort(key=lambda row: (-row[0], row[1][0][1:]))
    for _, members in ranked[:count]:
        # of each of the most usual shapes a line; a short statement is the easiest to edit
        usual = Counter(_shape(lines_of(path)[line], names) for score, path, line in members if score == members[0][0])
        ease: dict[str, tuple[float, int]] = {}
        for number, (_, path, line) in enumerate(members[: usual.total()]):
            shape = _shape(lines_of(path)[line], names)
            if shape not in ease and len(ease) < _MAX_TRIED:
                length = _length(path, texts[path], languages[path], line)
                ease[shape] = math.log(1 + usual[shape]) / math.sqrt(length), -number
        members.insert(0, members.pop(-max(ease.values())[1]))
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


def _length(path: str, text: str, language: Language, line: int) -> int:
    block = make_block(path, text, language, line)
    return block.end - block.start


def _shape(code: str, names: re.Pattern[str]) -> str:
    """Return a line with one word for each name that the instruction does not have, and one for each string."""
    return _OTHER.sub(lambda match: match[0] if names.fullmatch(match[0]) else "w", _STRING.sub("s", code)).strip()


def _is_vendored(path: str) -> bool:
    return not VENDORED.isdisjoint(PurePosixPath(path).parts[:-1])


def _add_similar(terms: Sequence[Term], texts: Mapping[str, str]) -> list[Term]:
    """Return the terms, and beside a new name that no file has those that are likest it: what it is for is often called alike.

    `rolldownOptions` where there is `rollupOptions`, `read_text()` where there is `text()`
    """
    similar = list(terms)
    if any(term.is_code and not term.is_qualifier and term.role == "old" for term in terms):
        return similar
    names: Counter[str] = Counter()
    for term in terms:
        if not term.is_code or term.is_qualifier or any(has_word(term.text, text) for text in texts.values()):
            continue
        if not names:
            size = 0
            for text in texts.values():
                names.update(_NAME.findall(text))
                size += len(text)
                if size > _MAX_NAMES_READ:
                    break
        parts = frozenset(parts_of(term.text))
        likeness = {
            name: SequenceMatcher(None, name.lower(), term.text.lower()).ratio()
            for name, count in names.items()
            if count > 1 and parts & frozenset(parts_of(name))
        }
        nearest = sorted(likeness, key=lambda name: (-likeness[name], -names[name], name))[:_MAX_SIMILAR]
        similar += [
            Term(name, "old", term.weight * likeness[name], is_code=True)
            for name in nearest
            if likeness[name] >= _LEAST_SIMILAR
        ]
    return similar


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


def exclude_edited(blocks: Sequence[Block], edited: Sequence[Block]) -> list[Block]:
    """Return the blocks that share no line with those that were edited."""
    return [
        block
        for block in blocks
        if not any(b.path == block.path and b.start < block.end and block.start < b.end for b in edited)
    ]
