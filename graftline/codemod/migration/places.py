"""The places of a repository that rules would change."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language, is_safe
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.canonical import words_of
from graftline.codemod.diff import common_length
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.grammar import KEYWORDS
from graftline.codemod.migration.line_breaks import keep_line_breaks
from graftline.codemod.migration.options import Option, Rule
from graftline.codemod.migration.traits import traits_of
from graftline.sandbox.base import (
    Match,
    Request,
    Sandbox,
    SandboxResult,
    Verdict,
    ensure_decided,
    replace_matches,
)

_BATCH_FILES = 64
_MOST_DEPTH = 8
"""So deep places may lie within each other; a rule that its own text calls for again ends there."""
_ESCAPES = re.compile(r"\\+[A-Za-z]")
"""Of regular expressions, which are no words of code."""


class Place(NamedTuple):
    """One change: characters `start` to `end` of a file, cut down to what differs, and their new text."""

    path: str
    start: int
    end: int
    text: str


@dataclass
class Repository:
    """Files in memory, as they are and as rules leave them."""

    texts: dict[str, str]
    languages: Mapping[str, Language]
    sandbox: Sandbox
    commented: set[tuple[str, int]] = field(default_factory=set)
    """Places, by path and line from 1, that stay, for a rule would remove a comment with them."""
    _words: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Leave out what is not parsed."""
        self.texts = {path: text for path, text in self.texts.items() if path in self.languages and is_safe(text)}

    def find_places(self, options: Sequence[Option], language: Language) -> list[frozenset[Place]]:
        """Return the places that each of `options` would change in the files of a language."""
        places: list[set[Place]] = [set() for _ in options]
        batch: list[tuple[str, list[int]]] = []
        for path in self.texts:
            if self.languages[path] == language:
                present = self.words(path)
                numbers = [number for number, option in enumerate(options) if option.words <= present]
                if numbers:
                    batch.append((path, numbers))
        for first in range(0, len(batch), _BATCH_FILES):
            part = batch[first : first + _BATCH_FILES]
            actions = [[action for number in numbers for action in options[number].actions] for _, numbers in part]
            requests = [
                Request(self.texts[path], language, tuple(own)) for (path, _), own in zip(part, actions, strict=True)
            ]
            for (path, numbers), results in zip(part, self.sandbox.apply_each(requests), strict=True):
                remaining = iter(results)
                for number in numbers:
                    for action in options[number].actions:
                        result = ensure_decided(next(remaining))
                        if result.verdict is Verdict.OK:
                            text = self.texts[path]
                            places[number] |= {
                                place
                                for match in _list_matches(text, result, action, language)
                                if (laid_out := _lay_out(text, match, language))
                                and (place := cut(path, text, laid_out))
                            }
        return [frozenset(group) for group in places]

    def apply(self, option: Option, language: Language, refused: frozenset[Place] = frozenset()) -> int:
        """Change all files as `option` says but for the places in `refused`; return how many files that were."""
        paths = [path for path in self.texts if self.languages[path] == language and option.words <= self.words(path)]
        before = {path: self.texts[path] for path in paths}
        # where places are refused, all rules see the same text: it is what says where they are
        steps = [option.actions] if refused else [(action,) for action in option.actions]
        for actions in steps:
            # a place that lies within another one is seen when that is made; of those that are refused the position would be lost
            unfinished, turns = paths, 1 if refused else _MOST_DEPTH
            while unfinished and turns:
                unfinished = self._apply_actions(actions, unfinished, refused)
                turns -= 1
        changed = [path for path in paths if self.texts[path] != before[path]]
        for path in changed:
            self._words.pop(path, None)
        return len(changed)

    def _apply_actions(self, actions: Sequence[Rule], paths: Sequence[str], refused: frozenset[Place]) -> list[str]:
        """Change files, and return those that it changed."""
        changed = []
        for first in range(0, len(paths), _BATCH_FILES):
            part = paths[first : first + _BATCH_FILES]
            requests = [Request(self.texts[path], self.languages[path], tuple(actions)) for path in part]
            for path, results in zip(part, self.sandbox.apply_each(requests), strict=True):
                before = self.texts[path]
                self.texts[path] = self._rewrite(path, results, actions, refused)
                if self.texts[path] != before:
                    changed.append(path)
        return changed

    def traits_of(self, places: Iterable[Place]) -> dict[Place, Mapping[str, str]]:
        """Return the traits of places, each once."""
        return {
            place: traits_of(place.path, self.texts[place.path], place.start, place.end) for place in frozenset(places)
        }

    def _rewrite(
        self, path: str, results: Sequence[SandboxResult], actions: Sequence[Rule], refused: frozenset[Place]
    ) -> str:
        """Return the text of a file as rules leave it, but for places in `refused`, and those that would lose a comment.

        Of matches that overlap, the first is made.
        """
        text, language, matches, position = self.texts[path], self.languages[path], list[Match](), 0
        pairs = zip(results, actions, strict=True)
        usable = [(result, action) for result, action in pairs if ensure_decided(result).verdict is Verdict.OK]
        candidates = [match for result, action in usable for match in _list_matches(text, result, action, language)]
        for match in sorted(candidates, key=lambda match: match.start):
            laid_out = _lay_out(text, match, language) if match.start >= position else match
            if laid_out is None:
                self.commented.add((path, text.count("\n", 0, match.start) + 1))
            elif match.start >= position and cut(path, text, laid_out) not in refused:
                matches.append(laid_out)
                position = match.end
        return normalize_blank_lines(text, replace_matches(text, matches, usable[0][0].isolation)) if matches else text

    def words(self, path: str) -> frozenset[str]:
        """Return the words of a file."""
        if path not in self._words:
            self._words[path] = words_of(self.texts[path])
        return self._words[path]


def apply_rules(text: str, language: Language, actions: Sequence[Rule], sandbox: Sandbox) -> str:
    """Return `text` after the rules, one after the other."""
    for action in actions:
        [result] = sandbox.apply_many(text, language, [action])
        text = normalize_blank_lines(text, ensure_decided(result))
    return text


def _list_matches(text: str, result: SandboxResult, action: Rule, language: Language) -> Iterator[Match]:
    """Yield the matches of a rule that take no keyword away which it does not quote.

    A pattern matches code that has more words without a name of their own than it has: `private $A $B;` matches
    `private static int a;` as well, and what is written for it would not be static.
    """
    rule = rule_of(action)
    quoted, written = str(rule["rule"]), str((rule["fix"], rule.get("transform")))
    is_free = bool({*VARIABLE.findall(quoted)} - {*VARIABLE.findall(written)})
    own = words_of(_ESCAPES.sub(" ", quoted))
    for match in result.matches:
        lost = words_of(text[match.start : match.end]) - words_of(match.replacement)
        if is_free or not (lost & KEYWORDS[language]) - own:
            yield match


def _lay_out(text: str, match: Match, language: Language) -> Match | None:
    """Return a match whose replacement is broken into lines as what it replaces is; None if it would lose a comment."""
    column = match.start - text.rfind("\n", 0, match.start) - 1
    new = keep_line_breaks(text[match.start : match.end], match.replacement, column, language)
    return None if new is None else replace(match, replacement=new)


def cut(path: str, text: str, match: Match) -> Place | None:
    """Return what a match changes; None if it writes what stands there."""
    old, new = text[match.start : match.end], match.replacement
    if old == new:
        return None
    front = common_length(old, new)
    back = min(common_length(old[::-1], new[::-1]), min(len(old), len(new)) - front)
    return Place(path, match.start + front, match.end - back, new[front : len(new) - back])
