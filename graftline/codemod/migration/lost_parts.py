"""Parts of a match that its rule does not name, and that what it writes would leave out.

A pattern matches code that has more than it says, at its end and of words without a name of their own: `assert not $A`
matches `assert not x, "why"` as well, and `private $A $B;` matches `private static int a;`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language, captures_of, outline_once
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.canonical import words_of
from graftline.codemod.grammar import KEYWORDS
from graftline.codemod.migration.option import Rule
from graftline.sandbox.base import Match

_TOKEN = re.compile(r"\w+|[^\w\s,;(){}\[\]]")
"""Commas and brackets say nothing by themselves."""
_ESCAPES = re.compile(r"\\+[A-Za-z]")
"""Of regular expressions, which are no words of code."""
_GLUED = re.compile(rf"\w(?:{VARIABLE.pattern})|(?:{VARIABLE.pattern})[a-z]")


class LostParts:
    """What one rule would lose of the matches in a text."""

    def __init__(self, text: str, action: Rule, language: Language) -> None:
        self._text, self._language, self._rule = text, language, rule_of(action)
        patterns, fix = [*_list_patterns(self._rule["rule"])], self._rule["fix"]
        self._template = fix if isinstance(fix, str) else ""
        self._quoted, self._dropped = Counter[str](), Counter[str]()
        for pattern in patterns:
            self._quoted |= _count_tokens(VARIABLE.sub(" ", pattern))
            self._dropped |= Counter(VARIABLE.findall(pattern))
        self._dropped -= Counter(VARIABLE.findall(self._template))
        # other rules say by kinds and expressions what they match, or write parts of words
        self._can_tell = (
            bool(patterns)
            and isinstance(fix, str)
            and not self._rule.get("transform")
            and not _GLUED.search(fix)
            and not any(name.startswith(("$$", "$_")) for name in self._dropped)
        )
        self._captures: Mapping[int, Mapping[str, tuple[str, str]]] | None = None

    def has_any(self, match: Match, is_shown: bool = False) -> bool:
        """Return whether `match` holds words or signs that the rule neither quotes nor has a variable for.

        Where it `is_shown` that such parts go, keywords alone count, of rules that do not say all that they match.
        """
        if not self._can_tell:
            return self._loses_keyword(match)
        if is_shown:
            return False
        written = _count_tokens(match.replacement) - _count_tokens(VARIABLE.sub(" ", self._template))
        lost = _count_tokens(self._text[match.start : match.end]) - written - self._quoted
        if lost and self._dropped:
            if self._captures is None:
                root, names = outline_once(self._text, self._language).root, [name[1:] for name in self._dropped]
                self._captures = captures_of(root, self._rule, names)
            for name, (_, capture) in self._captures.get(match.start, {}).items():
                for _ in range(self._dropped[f"${name}"]):
                    lost -= _count_tokens(capture)
        return bool(lost)

    def _loses_keyword(self, match: Match) -> bool:
        rule = str(self._rule["rule"])
        written = str((self._rule["fix"], self._rule.get("transform")))
        if {*VARIABLE.findall(rule)} - {*VARIABLE.findall(written)}:
            return False
        lost = words_of(self._text[match.start : match.end]) - words_of(match.replacement)
        return bool((lost & KEYWORDS[self._language]) - words_of(_ESCAPES.sub(" ", rule)))


def _list_patterns(rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield the patterns that the matched node itself has."""
    if pattern := rule.get("pattern"):
        yield pattern if isinstance(pattern, str) else pattern["context"]
    for part in rule.get("all") or ():
        yield from _list_patterns(part)


def _count_tokens(text: str) -> Counter[str]:
    return Counter(_TOKEN.findall(text))
