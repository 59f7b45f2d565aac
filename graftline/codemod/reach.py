"""How far rules reach by themselves, as `graftline apply` and `ast-grep scan` run them, beside a change that they were
made for.

A change holds back places that its rules match: those that were rejected, that stay, or have no word of an instruction.
And it may have places that its rules do not match by themselves.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from graftline.astgrep.action import rule_of
from graftline.codemod.canonical import list_required_words, words_of
from graftline.codemod.line_changes import list_changed_lines
from graftline.codemod.migration.places import has_word
from graftline.codemod.rule_file import FileRule
from graftline.codemod.source_files import RewrittenFile, SourceFile, rewrite_files
from graftline.core.text_diff import pluralize
from graftline.sandbox.base import Sandbox

_LISTED = 3
_PLAIN, _ESCAPE = re.compile(r"\^((?:\w|\\[^\w\s])+)\$"), re.compile(r"\\(.)")
_LAYOUT = re.compile(r"\s+|,(?=\s*[)\]}])")
Location = tuple[Path, int]
"""A file and a line of it, from 1."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where rules by themselves do another thing than the change that they were made for."""

    beyond: tuple[Location, ...] = ()
    """Lines that they change, and the change does not."""
    short_of: tuple[Location, ...] = ()
    """Lines of the change that they leave as they are, or of which they make another text."""

    def without(self, rejected: Set[Location]) -> "Reach":
        """Return what it is where places of the change are left out."""
        beyond = tuple(sorted({*self.beyond, *(rejected - {*self.short_of})}))
        return Reach(beyond, tuple(location for location in self.short_of if location not in rejected))

    def describe(self, name: str, show: Callable[[Path], object] = str) -> list[str]:
        """Return what there is to know of the rules called `name`, a sentence each; `show` is how paths are written."""
        sentences = []
        if self.beyond:
            more = f"{pluralize(len(self.beyond), 'place')} more than this, at {_list_locations(self.beyond, show)}"
            sentences.append(f"{name}: by itself, in `graftline apply` or `ast-grep scan`, it changes {more}")
        if self.short_of:
            places = pluralize(len(self.short_of), "place")
            sentences.append(
                f"{name}: by itself, it does not make {places} as shown here, at {_list_locations(self.short_of, show)}"
            )
        return sentences


def measure_reach(
    rules: Sequence[FileRule], files: Iterable[SourceFile], changed: Sequence[RewrittenFile], sandbox: Sandbox
) -> Reach:
    """Return what `rules` make of `files`, which are all that there are, beside `changed`, what is to become of some of
    them.

    Lines that only follow, such as imports, are no lines of the change here.
    """
    required = [
        (rule.language, list_required_words(rule.action, rule.language) | _list_plain_words(rule)) for rule in rules
    ]
    likely = (
        file
        for file in files
        if any(file.language == own and all(has_word(word, file.text) for word in words) for own, words in required)
    )
    ids = {rule.id for rule in rules}
    results = {file.file.path: file for file in rewrite_files(likely, rules, sandbox)}
    targets = {file.file.path: file for file in changed}
    short_of = _list_unmet(targets, results, ids)
    short_of |= {location: None for location in _list_unlike(targets, results, ids)}
    return Reach(tuple(_list_unmet(results, targets, ids)), tuple(sorted(short_of)))


def _list_plain_words(rule: FileRule) -> frozenset[str]:
    """Return the words of what a rule matches where that is one text, as `a.b` by `^a\\.b$`."""
    plain = _PLAIN.fullmatch(str(rule_of(rule.action)["rule"].get("regex")))
    return words_of(_ESCAPE.sub(r"\1", plain[1])) if plain else frozenset()


def _list_unmet(
    sides: Mapping[Path, RewrittenFile], counterparts: Mapping[Path, RewrittenFile], ids: Collection[str]
) -> dict[Location, None]:
    """Return where places of rules in `sides` are of which no line changes in `counterparts`."""
    unmet: dict[Location, None] = {}
    for path, file in sorted(sides.items()):
        ranges = _list_ranges(counterparts[path]) if path in counterparts else []
        for place in file.places:
            start = place.line - 1
            end = start + 1 + place.before.count("\n")
            if place.rule in ids and not any(_shares_line(start, end, *span) for span in ranges):
                unmet[path, place.line] = None
    return unmet


def _list_unlike(
    targets: Mapping[Path, RewrittenFile], results: Mapping[Path, RewrittenFile], ids: Collection[str]
) -> Iterator[Location]:
    """Yield where lines of `targets` are that `results` do not have, but for how they are laid out."""
    for path in targets.keys() & results.keys():
        if targets[path].text == results[path].text:
            continue
        text = _squeeze(results[path].text)
        for place in targets[path].places:
            if place.rule in ids and _squeeze(place.after).rstrip(",") not in text:
                yield path, place.line


def _squeeze(code: str) -> str:
    """Return code without blanks, and without the commas that only an item on a line of its own has."""
    return _LAYOUT.sub("", code)


def list_locations(files: Iterable[RewrittenFile], rules: Iterable[FileRule]) -> set[Location]:
    """Return where the places of `rules` are."""
    ids = {rule.id for rule in rules}
    return {(place.path, place.line) for file in files for place in file.places if place.rule in ids}


def _list_ranges(file: RewrittenFile) -> list[tuple[int, int]]:
    """Return the lines of a file that change, from 0, each range with its end."""
    return [(start, end) for start, end, _, _ in list_changed_lines(file.file.text.split("\n"), file.text.split("\n"))]


def _shares_line(start: int, end: int, first: int, last: int) -> bool:
    """Return whether two ranges of lines have a line in common; lines that are put in are at those beside them."""
    return (start <= first <= end) if first == last else (first < end and start < last)


def _list_locations(locations: Sequence[Location], show: Callable[[Path], object]) -> str:
    more = f" and {len(locations) - _LISTED} more" if len(locations) > _LISTED else ""
    return ", ".join(f"{show(path)}:{line}" for path, line in locations[:_LISTED]) + more
