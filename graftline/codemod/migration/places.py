"""The places of a repository that rules would change."""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from symtable import symtable
from typing import NamedTuple

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language, is_safe, outline_once, parse
from graftline.codemod.canonical import words_within
from graftline.codemod.diff import common_ends
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.migration.assignments import is_assigned_again, loses_parameter
from graftline.codemod.migration.imports import is_importable, list_import_lines
from graftline.codemod.migration.line_breaks import keep_line_breaks
from graftline.codemod.migration.lost_parts import LostParts
from graftline.codemod.migration.option import Option, Rule
from graftline.codemod.migration.precedence import Precedence
from graftline.codemod.migration.traits import traits_of
from graftline.core.errors import DataError
from graftline.sandbox.base import (
    Match,
    Request,
    Sandbox,
    SandboxResult,
    Verdict,
    ensure_decided,
    replace_matches,
)

_MANY_FILES = 512
_SHORT_CHARACTERS = 64 * 1024
"""Of texts up to this length it is remembered of more whether they are programs."""
_CALLED = re.compile(r"(\.?)\b([^\W\d]\w*)")
_MAX_DEPTH = 8
"""So deep places may lie within each other."""


class Place(NamedTuple):
    """One change: characters `start` to `end` of a file, cut down to what differs, and their new text."""

    path: str
    start: int
    end: int
    text: str


class OptionPlaces(NamedTuple):
    """What an option would change."""

    places: frozenset[Place]
    broken: frozenset[Place]
    """Places that stay, for their files would not parse any more."""


class _Edit(NamedTuple):
    """A match with what is written for it, and why it cannot be."""

    match: Match
    fault: str


class _Answers(NamedTuple):
    """What each rule of an option does to a text, without the text that it makes of it."""

    text: str
    results: Sequence[SandboxResult]


class _Written(NamedTuple):
    """Characters `start` to `end` of a file, which a rule wrote over the text `old`."""

    start: int
    end: int
    old: str

    def has(self, words: frozenset[str], text: str) -> bool:
        """Return whether what is written there has all of `words`."""
        return all(has_word(word, text[self.start : self.end]) for word in words)

    def holds(self, match: Match, text: str) -> bool:
        """Return whether a match was a part of the old text already: what the rule itself wrote is not changed again."""
        matched = text[match.start : match.end]
        return self.start <= match.start and match.end <= self.end and matched != self.old and matched in self.old


@dataclass
class Repository:
    """Files in memory, as they are and as rules leave them."""

    texts: dict[str, str]
    languages: Mapping[str, Language]
    sandbox: Sandbox
    faults: dict[tuple[str, int], str] = field(default_factory=dict)
    """Why places, by path and line from 1, stay though a rule matches them."""
    _matched: dict[int, tuple[Option, dict[str, _Answers]]] = field(default_factory=dict)
    """What the rules of an option match, by its `id` and by path, until one is applied; no file is parsed again for that."""

    def __post_init__(self) -> None:
        """Leave out what is not parsed."""
        self.texts = {path: text for path, text in self.texts.items() if path in self.languages and is_safe(text)}

    def find_places(self, options: Sequence[Option], language: Language) -> list[OptionPlaces]:
        """Return the places that each of `options` would change in the files of a language."""
        places: list[set[Place]] = [set() for _ in options]
        matched: list[dict[str, _Answers]] = [{} for _ in options]
        words = frozenset[str]().union(*(option.words for option in options))
        parts = frozenset[str]().union(*(option.parts for option in options))
        batch: list[tuple[str, list[int]]] = []
        shared = frozenset.intersection(*(option.words for option in options)) if options else frozenset[str]()
        for path in self._list_paths(shared, language):
            text = self.texts[path]
            present = shared | {word for word in words - shared if has_word(word, text)}
            there = {part for part in parts if part in text}
            numbers = [n for n, option in enumerate(options) if option.words <= present and option.parts <= there]
            if numbers:
                batch.append((path, numbers))
        requests = [
            Request(self.texts[path], language, tuple(a for number in numbers for a in options[number].actions))
            for path, numbers in batch
        ]
        with closing(self.sandbox.apply_in_turn(requests)) as answers:
            for (path, numbers), results in zip(batch, answers, strict=True):
                remaining, text = iter(results), self.texts[path]
                for number in numbers:
                    pairs = [(action, ensure_decided(next(remaining))) for action in options[number].actions]
                    if any(result.verdict is Verdict.OK for _, result in pairs):
                        # the texts that each of many rules would make are not kept
                        matched[number][path] = _Answers(text, [replace(result, after=None) for _, result in pairs])
                    for action, result in pairs:
                        if result.verdict is Verdict.OK:
                            places[number] |= {
                                place
                                for edit in _list_edits(text, result, action, language, options[number].loses_parts)
                                if not edit.fault and (place := cut(path, text, edit.match))
                            }
        self._matched |= {id(option): (option, paths) for option, paths in zip(options, matched, strict=True)}
        broken = frozenset(self._list_broken(frozenset[Place]().union(*places)))
        rows = []
        for option, own in zip(options, places, strict=True):
            # half a renaming would be another program
            paths = {place.path for place in own & broken} if option.kind == "name" else frozenset[str]()
            own = own if len(option.actions) == 1 else set(_list_outermost(own))
            held = frozenset(place for place in own if place in broken or place.path in paths)
            rows.append(OptionPlaces(frozenset(own - held), held))
        return rows

    def _list_broken(self, places: Iterable[Place]) -> Iterator[Place]:
        """Yield the places after whose change their files would not parse any more."""
        by_path: dict[str, list[Place]] = {}
        for place in sorted(places):
            by_path.setdefault(place.path, []).append(place)
        for path, pending in by_path.items():
            text, language = self.texts[path], self.languages[path]
            while pending:
                # mostly nothing is broken: those that do not overlap are tried together
                layer, position = list[Place](), -1
                for place in pending:
                    if place.start > position:
                        layer.append(place)
                        position = place.end
                pending = [place for place in pending if place not in layer]
                if not parses(_change(text, layer), language):
                    if not parses(text, language):
                        break
                    yield from (place for place in layer if not parses(_change(text, [place]), language))

    def apply(
        self,
        option: Option,
        language: Language,
        refused: frozenset[Place] = frozenset(),
        broken: frozenset[Place] = frozenset(),
    ) -> int:
        """Change all files as `option` says but for places that are refused or broken; return how many files that were."""
        _, answers = self._matched.get(id(option), (option, None))
        matched = self.texts if answers is None else answers
        paths = [path for path in self._list_paths(option.words, language) if path in matched]
        self._matched.clear()
        answers = answers or {}
        before = {path: self.texts[path] for path in paths}
        partial = {place.path for place in refused | broken}
        for number, action in enumerate(option.actions):
            own_answers = {
                path: _Answers(text, results[number : number + 1]) for path, (text, results) in answers.items()
            }
            whole = dict.fromkeys(path for path in paths if path not in partial)
            written = self._apply_actions(option, [action], whole, own_answers)
            # a place that lies within another one is seen when that is made
            own = words_within(action, language)
            for _ in range(_MAX_DEPTH):
                nested = {path: [s for s in spans if s.has(own, self.texts[path])] for path, spans in written.items()}
                written = {path: spans for path, spans in nested.items() if spans}
                written = self._apply_actions(option, [action], written, {}) if written else {}
        # where a place stays, all rules see the same text, for it is what says where that is
        held = dict.fromkeys(path for path in paths if path in partial)
        self._apply_actions(option, option.actions, held, answers, refused, broken)
        return sum(self.texts[path] != before[path] for path in paths)

    def _list_paths(self, words: frozenset[str], language: Language) -> list[str]:
        """Return the files of a language that have all of `words`."""
        # of a long word there is less, and other files are left sooner
        ordered = sorted(words, key=lambda word: (-len(word), word))
        return [
            path
            for path, text in self.texts.items()
            if self.languages[path] == language and all(has_word(word, text) for word in ordered)
        ]

    def _apply_actions(
        self,
        option: Option,
        actions: Sequence[Rule],
        within: Mapping[str, Sequence[_Written] | None],
        answers: Mapping[str, _Answers],
        refused: frozenset[Place] = frozenset(),
        broken: frozenset[Place] = frozenset(),
    ) -> dict[str, Sequence[_Written]]:
        """Change files by some rules of `option`, of some only what lies within what was written before; return what is
        written, by file.

        `answers` are what the same rules matched in a text that a file had; it may have another one by now.
        """
        written, paths = dict[str, Sequence[_Written]](), [*within]
        for first in range(0, len(paths), _MANY_FILES):
            part = paths[first : first + _MANY_FILES]
            pending = [path for path in part if path not in answers or answers[path].text != self.texts[path]]
            requests = [Request(self.texts[path], self.languages[path], tuple(actions)) for path in pending]
            own = dict(zip(pending, self.sandbox.apply_each(requests) if requests else (), strict=True))
            for path in part:
                results = own[path] if path in own else answers[path].results
                if spans := self._rewrite(path, results, option, actions, refused, broken, within[path]):
                    written[path] = spans
        return written

    def traits_of(self, places: Iterable[Place]) -> dict[Place, Mapping[str, str]]:
        """Return the traits of places, each once."""
        return {
            place: traits_of(place.path, self.texts[place.path], place.start, place.end) for place in sorted({*places})
        }

    def _rewrite(
        self,
        path: str,
        results: Sequence[SandboxResult],
        option: Option,
        actions: Sequence[Rule],
        refused: frozenset[Place],
        broken: frozenset[Place],
        within: Sequence[_Written] | None,
    ) -> list[_Written]:
        """Change a file as rules say, but for places in `refused`, and those with a fault; return what is written.

        Of matches that overlap, the first is made. `within` is what the same rules wrote before, if only that is to be changed.
        """
        text, language, matches, position = self.texts[path], self.languages[path], list[Match](), 0
        pairs = zip(results, actions, strict=True)
        usable = [(result, action) for result, action in pairs if ensure_decided(result).verdict is Verdict.OK]
        edits = [
            edit
            for result, action in usable
            for edit in _list_edits(text, result, action, language, option.loses_parts)
        ]
        for match, fault in sorted(edits, key=lambda edit: edit.match.start):
            if match.start < position or not (within is None or any(span.holds(match, text) for span in within)):
                continue
            place = cut(path, text, match)
            if fault or place in broken:
                line = text.count("\n", 0, match.start) + 1
                self.faults[path, line] = fault or "would not parse any more"
            elif place not in refused:
                matches.append(match)
                position = match.end
        if not matches:
            return []
        result = replace_matches(text, matches, usable[0][0].isolation)
        self.texts[path] = normalize_blank_lines(text, result)
        spans, shift = [], 0
        for match in matches:
            start = match.start + shift
            spans.append(_Written(start, start + len(match.replacement), text[match.start : match.end]))
            shift += len(match.replacement) - (match.end - match.start)
        # where blank lines were taken out as well, nothing is where it was
        return spans if self.texts[path] == result.after else []


def has_word(word: str, text: str) -> bool:
    """Return whether `words_of(text)` has `word`; much sooner than all of them are read."""
    return word in text and _expression_of(word).search(text) is not None


@lru_cache(maxsize=1024)
def _expression_of(word: str) -> re.Pattern[str]:
    quoted = re.escape(word)
    return re.compile(rf"{quoted}(?<!\w{quoted})(?!\w)")  # what begins with plain letters is found sooner


def apply_rules(text: str, language: Language, actions: Sequence[Rule], sandbox: Sandbox) -> str:
    """Return `text` after the rules, one after the other."""
    for action in actions:
        [result] = sandbox.apply_many(text, language, [action])
        text = normalize_blank_lines(text, ensure_decided(result))
    return text


def apply_options(text: str, language: Language, options: Sequence[Option], sandbox: Sandbox) -> list[str]:
    """Return `text` after each of some options alone."""
    results = sandbox.apply_many(text, language, [option.actions[0] for option in options]) if options else []
    texts = [normalize_blank_lines(text, ensure_decided(result)) for result in results]
    return [apply_rules(own, language, option.actions[1:], sandbox) for own, option in zip(texts, options, strict=True)]


def _list_edits(
    text: str, result: SandboxResult, action: Rule, language: Language, loses_parts: bool
) -> Iterator[_Edit]:
    """Yield what a rule writes, with brackets where operators need them, in lines that are broken as they were.

    `loses_parts` is whether code may go that the rule neither quotes nor captures, as it does in the edits shown.
    """
    precedence, is_of_parameters = Precedence(text, action, language), "parameters" in str(rule_of(action)["rule"])
    lost_parts = LostParts(text, action, language)
    for match in _list_matches(text, result, language):
        safe = precedence.keep(match)
        column = match.start - text.rfind("\n", 0, match.start) - 1
        if safe is None:
            yield _Edit(match, "operators would bind otherwise")
        elif is_assigned_again(text, match, language):
            yield _Edit(match, "it is assigned to elsewhere, or never")
        elif is_of_parameters and loses_parameter(text, match, language):
            yield _Edit(match, "a parameter that goes is used")
        elif (new := keep_line_breaks(text[match.start : match.end], safe.replacement, column, language)) is None:
            yield _Edit(match, "a comment in it would be lost")
        elif lost_parts.has_any(match, loses_parts):
            yield _Edit(match, "a part of it that the rule does not name would be lost")
        else:
            yield _Edit(replace(match, replacement=new), "")


def _list_matches(text: str, result: SandboxResult, language: Language) -> Iterator[Match]:
    """Yield the matches of a rule that import nothing that cannot be, and do not call a function in itself."""
    imports: frozenset[int] | None = None
    for match in result.matches:
        if text[match.start : match.end].isidentifier() and not is_importable(match.replacement, language):
            imports = list_import_lines(text, language) if imports is None else imports
            if text.count("\n", 0, match.start) in imports:
                continue
        if text[match.start : match.end].isidentifier() or not _is_in_definition(text, match, language):
            yield match


def _is_in_definition(text: str, match: Match, language: Language) -> bool:
    """Return whether a match stands in the function that is to be called in its place, which would call itself for ever."""
    # a method is not the function of the same name
    names = {*_CALLED.findall(match.replacement)} - {*_CALLED.findall(text[match.start : match.end])}
    called = [name for _, name in names if 0 <= _find_definition(text, name) <= match.start]
    if not called:
        return False
    chain = [outline_once(text, language).root]
    while inner := next((child for child in chain[-1].children if child.start <= match.start < child.end), None):
        chain.append(inner)
    if "string" in chain[-1].kind or "comment" in chain[-1].kind:
        return False  # nothing is called there
    functions = [node for node in chain if node.kind in ("function_definition", "function_declaration")]
    return any(text[child.start : child.end] in called for node in functions for child in node.children)


@lru_cache(maxsize=1 << 10)  # it holds texts; matches come file by file
def _find_definition(text: str, name: str) -> int:
    """Return where the name ends that is first defined as a function `name`; -1 if there is none."""
    match = re.search(rf"\b(?:def|function)\s+{re.escape(name)}\b", text) if name in text else None
    return match.end() if match else -1


def parses(text: str, language: Language) -> bool:
    """Return whether `text` is a program; of Python also without what its compiler refuses, as two parameters of one name.

    What was said of a text is remembered, for it is asked for again: of a file with all its places changed, when it is
    finished, and when it is proposed.
    """
    return (_short_parses if len(text) <= _SHORT_CHARACTERS else _long_parses)(text, language)


def _parses(text: str, language: Language) -> bool:
    try:
        if language != "python":
            return parse(text, language).is_clean
        with warnings.catch_warnings(action="ignore"):  # of invalid escapes
            symtable(text.removeprefix("\ufeff"), "", "exec")
    except (DataError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


_short_parses, _long_parses = lru_cache(maxsize=512)(_parses), lru_cache(maxsize=16)(_parses)


def _list_outermost(places: Iterable[Place]) -> Iterator[Place]:
    """Yield the places that do not stand within others."""
    path, end = "", 0
    for place in sorted(places, key=lambda place: (place.path, place.start, -place.end)):
        if place.path != path or place.start >= end:
            yield place
            path, end = place.path, place.end


def _change(text: str, places: Sequence[Place]) -> str:
    """Return a text with `places` changed, which are in its order."""
    pieces, position = list[str](), 0
    for place in places:
        pieces += [text[position : place.start], place.text]
        position = place.end
    return "".join([*pieces, text[position:]])


def cut(path: str, text: str, match: Match) -> Place | None:
    """Return what a match changes; None if it writes what stands there.

    What puts something in or takes something out is the same at several places of equal text: it is at the first of them.
    """
    old, new = text[match.start : match.end], match.replacement
    if old == new:
        return None
    front, back = common_ends(old, new)
    start, end, new = match.start + front, match.end - back, new[front : len(new) - back]
    moved = new if start == end else text[start:end] if not new else ""
    count = 0
    while moved and count < start and text[start - count - 1] == moved[-1 - count % len(moved)]:
        count += 1
    if start == end and count:
        new = new[-(count % len(new)) :] + new[: -(count % len(new))] if count % len(new) else new
    return Place(path, start - count, end - count, new)
