"""A change of many files, the places of it that can be shown to somebody, and what an attempt at the others is worth.

A place is the function or statement (at most 60 lines, see `codemod.hunks`) around a changed region of lines. The
measure is that of `codemod.place_score`; places that were shown are left out of it.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from graftline.astgrep.binding import is_safe
from graftline.codemod.hunks import Hunk, split_into_hunks
from graftline.codemod.place_score import LineChange, PlaceScore, compare_texts, score_places
from graftline.sandbox.runner import language_of

_CLASS = "class Example {\n"
# attempts by several solvers come to the same texts; a server that grades all day keeps the last ones alone
_compare = lru_cache(maxsize=256)(compare_texts)


@dataclass(frozen=True, slots=True)
class ShownPlace:
    """A place of a change that is shown."""

    path: str
    hunk: Hunk
    start: int
    end: int
    """Its lines before, from 0."""
    text: str
    """The file with this place alone as it is after the change."""


class ChangedText:
    """A file of a change."""

    def __init__(self, path: str, before: str, after: str) -> None:
        self.path, self.before, self.after = path, before, after
        self.language = language_of(path)

    @cached_property
    def changes(self) -> Sequence[LineChange]:
        """The regions of lines that differ; none where that takes too long to find out."""
        return compare_texts(self.before, self.after) or ()

    @cached_property
    def places(self) -> list[ShownPlace]:
        """What may be shown."""
        if self.language is None or not (is_safe(self.before) and is_safe(self.after)):
            return []
        hunks = split_into_hunks(self.before, self.after, self.language)
        return [place for hunk in hunks if (place := self._show(hunk)) is not None]

    def _show(self, hunk: Hunk) -> ShownPlace | None:
        lines, new_lines = self.before.split("\n"), self.after.split("\n")
        sides = [side.removeprefix(_CLASS) for side in (hunk.before, hunk.after)]
        wrapper = int(sides[0] != hunk.before)
        start, end = hunk.line - 1, hunk.line - 1 + sides[0].count("\n") - wrapper
        count = sides[1].count("\n") - wrapper
        target = [line.strip() for line in sides[1].split("\n")[:count]]
        shift = sum((c.new_end - c.new_start) - (c.end - c.start) for c in self.changes if c.end <= start)
        inserted = sum(c.new_end - c.new_start for c in self.changes if c.start == c.end == start)
        for new_start in (start + shift, start + shift - inserted):
            image = new_lines[new_start : new_start + count]
            if [line.strip() for line in image] == target:
                return ShownPlace(self.path, hunk, start, end, "\n".join([*lines[:start], *image, *lines[end:]]))
        return None


class MultiFileChange:
    """A change of files, and files that it leaves alone; `key` is what its places are drawn by."""

    def __init__(self, files: Sequence[tuple[str, str, str]], untouched: Mapping[str, str], key: str) -> None:
        """`files` are paths with the text before and after."""
        self.files = [ChangedText(*file) for file in files]
        self.untouched, self._key = dict(untouched), key
        self.by_path = {file.path: file for file in self.files}

    def show(self, seed: int, count: int) -> list[ShownPlace]:
        """Return `count` random places, of as many files as there are."""
        chance = random.Random(f"{self._key}:{seed}")
        files = self.files[:]
        chance.shuffle(files)
        places: list[ShownPlace] = []
        further: list[ShownPlace] = []
        for file in files:
            own = file.places[:]
            chance.shuffle(own)
            places += own[:1]
            further += own[1:]
            if len(places) == count:
                return places
        chance.shuffle(further)
        return (places + further)[:count]

    def texts(self, shown: Sequence[ShownPlace] = ()) -> dict[str, str]:
        """Return all files as they are when the places are edited and nothing else."""
        texts = {file.path: file.before for file in self.files} | self.untouched
        for path in {place.path for place in shown}:
            lines = self.by_path[path].before.split("\n")
            length = len(lines)
            for place in sorted((p for p in shown if p.path == path), key=lambda place: -place.start):
                new = place.text.split("\n")
                count = len(new) - length + place.end - place.start
                lines[place.start : place.end] = new[place.start : place.start + count]
            texts[path] = "\n".join(lines)
        return texts

    def score(self, produced: Mapping[str, str], shown: Sequence[ShownPlace] = ()) -> PlaceScore:
        """Return what the texts in `produced` (others stay as they were) are worth at the places that were not shown."""
        ranges = defaultdict(list)
        for place in shown:
            ranges[place.path].append((place.start, place.end))
        changed = {file.path: (file.before, file.after) for file in self.files}
        return score_places(changed, self.untouched, produced, ranges, _compare)
