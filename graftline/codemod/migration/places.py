"""The places of a repository that rules would change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from graftline.astgrep.binding import Language, is_safe
from graftline.codemod.canonical import words_of
from graftline.codemod.diff import common_length
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.migration.options import Option, Rule
from graftline.sandbox.base import Match, Request, Sandbox, SandboxResult, Verdict, ensure_decided

_BATCH_FILES = 64


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
                    for _ in options[number].actions:
                        result = ensure_decided(next(remaining))
                        if result.verdict is Verdict.OK:
                            places[number] |= {
                                place for match in result.matches if (place := cut(path, self.texts[path], match))
                            }
        return [frozenset(group) for group in places]

    def apply(self, option: Option, language: Language, refused: frozenset[Place] = frozenset()) -> int:
        """Change all files as `option` says but for the places in `refused`; return how many files that were."""
        paths = [path for path in self.texts if self.languages[path] == language and option.words <= self.words(path)]
        before = {path: self.texts[path] for path in paths}
        for action in option.actions:
            for first in range(0, len(paths), _BATCH_FILES):
                part = paths[first : first + _BATCH_FILES]
                requests = [Request(self.texts[path], language, (action,)) for path in part]
                for path, [result] in zip(part, self.sandbox.apply_each(requests), strict=True):
                    self.texts[path] = _rewrite(path, self.texts[path], result, refused)
        changed = [path for path in paths if self.texts[path] != before[path]]
        for path in changed:
            self._words.pop(path, None)
        return len(changed)

    def words(self, path: str) -> frozenset[str]:
        """Return the words of a file."""
        if path not in self._words:
            self._words[path] = words_of(self.texts[path])
        return self._words[path]


def apply_rules(text: str, language: Language, actions: Sequence[Rule], sandbox: Sandbox) -> str:
    """Return `text` after the rules, one after the other."""
    for action in actions:
        [result] = sandbox.apply_many(text, language, [action])
        text = _rewrite("", text, result, frozenset())
    return text


def _rewrite(path: str, text: str, result: SandboxResult, refused: frozenset[Place]) -> str:
    """Return `text` as a rule leaves it, but for places in `refused`."""
    if ensure_decided(result).verdict is not Verdict.OK:
        return text
    if not any(place.path == path for place in refused):
        return normalize_blank_lines(text, result)
    pieces: list[str] = []
    position = 0
    for match in result.matches:
        if cut(path, text, match) not in refused:
            pieces += [text[position : match.start], match.replacement]
            position = match.end
    return "".join(pieces) + text[position:]


def cut(path: str, text: str, match: Match) -> Place | None:
    """Return what a match changes; None if it writes what stands there."""
    old, new = text[match.start : match.end], match.replacement
    if old == new:
        return None
    front = common_length(old, new)
    back = min(common_length(old[::-1], new[::-1]), min(len(old), len(new)) - front)
    return Place(path, match.start + front, match.end - back, new[front : len(new) - back])
