"""A frozen corpus of code that no example is about: a rule that changes it says less than its example did.

`background.jsonl.gz` holds functions of permissively licensed packages, each line with its package, release, path and
license. It never changes between releases of the library, so that the same example gives the same rules everywhere.
The texts are the library's own and so are the rules that are tried on them here; actions of others are tried on
`texts` in a sandbox.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from graftline.astgrep.binding import Language
from graftline.astgrep.expand import BeyondBindingError, InvalidActionError, Source, replacements
from graftline.codemod.canonical import words_of

_FILE = Path(__file__).with_name("background.jsonl.gz")
_TEXT_CHARACTERS = 6_000


@dataclass(frozen=True, slots=True)
class BackgroundRow:
    """A function of the corpus and where it comes from."""

    id: str
    source: str
    """Package and release."""
    path: str
    license: str
    language: Language
    text: str


@cache
def rows() -> tuple[BackgroundRow, ...]:
    """Return the corpus; Java's methods, which are no program alone, without the class around them."""
    with gzip.open(_FILE, "rt", encoding="utf-8") as stream:
        return tuple(BackgroundRow(**json.loads(line)) for line in stream)


@cache
def texts(language: Language) -> tuple[str, ...]:
    """Return the corpus of `language` as programs of some thousand characters; JavaScript's serves TypeScript too."""
    return tuple(_join_programs(language))


def size(language: Language) -> int:
    """Return the characters of the corpus of `language`."""
    return sum(map(len, texts(language)))


def hits(rule: dict[str, Any], language: Language, words: frozenset[str] = frozenset()) -> int:
    """Return the places of the corpus that a rule of this library's making (see `rule_of`) would change.

    `words` are words that a text must have for the rule to match in it; texts without them are not looked at.
    """
    number = 0
    for source, present in _parse_texts(language):
        if words <= present:
            try:
                edits = replacements(source, rule)
            except (InvalidActionError, BeyondBindingError):
                return 0
            number += sum(source.text[start:end] != new for start, end, new in edits)
    return number


def _join_programs(language: Language) -> Iterator[str]:
    source_language = language if language in ("python", "java") else "javascript"
    functions: list[str] = []
    for row in rows():
        if row.language == source_language:
            functions.append(row.text)
            if sum(map(len, functions)) > _TEXT_CHARACTERS:
                yield _program(functions, language)
                functions = []
    if functions:
        yield _program(functions, language)


def _program(functions: list[str], language: Language) -> str:
    body = "\n\n".join(functions)
    return f"class Background {{\n{body}\n}}\n" if language == "java" else body + "\n"


@cache
def _parse_texts(language: Language) -> tuple[tuple[Source, frozenset[str]], ...]:
    return tuple((Source.parse(text, language), words_of(text)) for text in texts(language))
