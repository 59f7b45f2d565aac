"""Real mechanical commits, and the measure of how much of one comes out of a few edits of it.

A hunk is a changed region of lines. It counts as reproduced only if its text is that of the commit. A demonstration is
the function or statement (at most 60 lines) around a random hunk; demonstrated places are left out of the count. Every
change in a file that the commit left alone counts as wrong.
"""

import lzma
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import orjson

from graftline.astgrep.binding import Language, is_safe
from graftline.codemod.diff import common_length
from graftline.codemod.hunks import Hunk, split_into_hunks
from graftline.core.errors import DataError
from graftline.sandbox.runner import LANGUAGE_OF

COMMITS = Path("migrations_dev.jsonl.xz")
_MAX_EXACT_LINES = 3_000
_CLASS = "class Example {\n"
_TOKEN = re.compile(r"\w+|[^\w\s]")


class LineChange(NamedTuple):
    """Lines `start` to `end` become lines `new_start` to `new_end`."""

    start: int
    end: int
    new_start: int
    new_end: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A place of a commit that is demonstrated."""

    path: str
    hunk: Hunk
    start: int
    end: int
    """Its lines before, from 0."""
    text: str
    """The file with this place alone as it is after the commit."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Hunks of one run; `gold` and `hit` are those of the commit, `made` and `good` those of the run."""

    gold: int
    hit: int
    made: int
    good: int
    false: int
    """Changes in untouched files."""
    untouched: int
    """Untouched files."""

    @property
    def recall(self) -> float | None:
        """Share of the commit's hunks that came out; None where all were demonstrated."""
        return self.hit / self.gold if self.gold else None

    @property
    def precision(self) -> float | None:
        """Share of the changes that are the commit's; None where there are none."""
        return self.good / (self.made + self.false) if self.made + self.false else None


class ChangedFile:
    """A file of a commit."""

    def __init__(self, path: str, before: str, after: str) -> None:
        self.path, self.before, self.after = path, before, after
        self.language = language_of(path)
        self.lines, self.new_lines = before.split("\n"), after.split("\n")

    @cached_property
    def changes(self) -> list[LineChange]:
        """The hunks."""
        return compare_lines(self.lines, self.new_lines)

    @cached_property
    def places(self) -> list[Shown]:
        """What may be demonstrated."""
        if self.language is None or not (is_safe(self.before) and is_safe(self.after)):
            return []
        hunks = split_into_hunks(self.before, self.after, self.language)
        return [place for hunk in hunks if (place := self._show(hunk)) is not None]

    def _show(self, hunk: Hunk) -> Shown | None:
        sides = [side.removeprefix(_CLASS) for side in (hunk.before, hunk.after)]
        wrapper = int(sides[0] != hunk.before)
        start, end = hunk.line - 1, hunk.line - 1 + sides[0].count("\n") - wrapper
        count = sides[1].count("\n") - wrapper
        target = [line.strip() for line in sides[1].split("\n")[:count]]
        shift = sum((c.new_end - c.new_start) - (c.end - c.start) for c in self.changes if c.end <= start)
        inserted = sum(c.new_end - c.new_start for c in self.changes if c.start == c.end == start)
        for new_start in (start + shift, start + shift - inserted):
            lines = self.new_lines[new_start : new_start + count]
            if [line.strip() for line in lines] == target:
                text = "\n".join([*self.lines[:start], *lines, *self.lines[end:]])
                return Shown(self.path, hunk, start, end, text)
        return None


class Commit:
    """A mechanical commit, and files that it left alone."""

    def __init__(self, row: Mapping[str, object]) -> None:
        self.id, self.repository, self.sha = str(row["id"]), str(row["repo"]), str(row["commit"])
        self.subject = str(row["subject"])
        files, untouched = row["files"], row["untouched"]
        assert isinstance(files, list)
        assert isinstance(untouched, list)
        self.files = [ChangedFile(file["path"], file["before"], file["after"]) for file in files]
        self.untouched = {file["path"]: str(file["text"]) for file in untouched if is_safe(file["text"])}
        self._by_path = {file.path: file for file in self.files}
        self._cache: dict[tuple[str, str], list[LineChange]] = {}

    def show(self, seed: int, count: int) -> list[Shown]:
        """Return `count` random places, of as many files as there are."""
        chance = random.Random(f"{self.sha}:{seed}")
        files = self.files[:]
        chance.shuffle(files)
        places: list[Shown] = []
        further: list[Shown] = []
        for file in files:
            own = file.places[:]
            chance.shuffle(own)
            places += own[:1]
            further += own[1:]
            if len(places) == count:
                return places
        chance.shuffle(further)
        return (places + further)[:count]

    def texts(self, shown: Sequence[Shown]) -> dict[str, str]:
        """Return all files as they are when the places are edited and nothing else."""
        texts = {file.path: file.before for file in self.files} | self.untouched
        for path in {place.path for place in shown}:
            file, lines = self._by_path[path], self._by_path[path].lines[:]
            for place in sorted((p for p in shown if p.path == path), key=lambda place: -place.start):
                new = place.text.split("\n")
                count = len(new) - len(file.lines) + place.end - place.start
                lines[place.start : place.end] = new[place.start : place.start + count]
            texts[path] = "\n".join(lines)
        return texts

    def score(self, produced: Mapping[str, str], shown: Sequence[Shown]) -> Counts:
        """Return what the texts in `produced` (others stay as they were) are worth."""
        gold = hit = made = good = 0
        for file in self.files:
            ranges = [(place.start, place.end) for place in shown if place.path == file.path]
            for area in self.areas(file, produced.get(file.path, file.before)):
                if any(start <= area.start and area.end <= end for start, end in ranges):
                    continue
                is_same = area.target == area.text
                gold, hit = gold + area.gold, hit + area.gold * is_same
                made, good = made + area.made, good + area.made * is_same
        false = sum(
            len(compare_lines(text.split("\n"), produced[path].split("\n")))
            for path, text in self.untouched.items()
            if produced.get(path, text) != text
        )
        return Counts(gold, hit, made, good, false, len(self.untouched))

    def areas(self, file: ChangedFile, text: str) -> Iterator["Area"]:
        """Yield the regions of lines in which the commit or `text` changes `file`."""
        if text == file.before:
            new_lines, changes = file.lines, []
        elif text == file.after:
            new_lines, changes = file.new_lines, file.changes
        else:
            key = file.path, text
            new_lines = text.split("\n")
            if key not in self._cache:
                self._cache[key] = compare_lines(file.lines, new_lines)
            changes = self._cache[key]
        events = sorted([(*c[:2], 0, c) for c in file.changes] + [(*c[:2], 1, c) for c in changes])
        groups: list[tuple[int, int, list[LineChange], list[LineChange]]] = []
        for start, end, side, change in events:
            touches = bool(groups) and (
                start < groups[-1][1] or (start == groups[-1][1] and (start == end or groups[-1][0] == groups[-1][1]))
            )
            if touches:
                first, last, *sides = groups[-1]
                sides[side].append(change)
                groups[-1] = (first, max(last, end), sides[0], sides[1])
            else:
                groups.append((start, end, [], []))
                groups[-1][2 + side].append(change)  # type: ignore[union-attr]
        for start, end, own, other in groups:
            target = _image(file.lines, start, end, own, file.new_lines)
            yield Area(start, end, len(own), len(other), target, _image(file.lines, start, end, other, new_lines))

    def agrees(self, path: str, start: int, end: int, replacement: str, text: str) -> bool:
        """Return whether replacing characters `start` to `end` of `text` is a part of what the commit does to `path`.

        It is if the text gets nearer to that of the commit by as many tokens as are edited. `text` may be the file with
        demonstrations in it.
        """
        file = self._by_path.get(path)
        if file is None:
            return False
        lines, edited = text.split("\n"), (text[:start] + replacement + text[end:]).split("\n")
        front = common_length(lines, edited)
        back = min(common_length(lines[::-1], edited[::-1]), min(len(lines), len(edited)) - front)
        first, last = front, len(lines) - back
        for change in compare_lines(lines, file.new_lines):
            if change.start <= last and first <= change.end and (change.start < last or change.start == change.end):
                low, high = min(first, change.start), max(last, change.end)
                target = file.new_lines[change.new_start - (change.start - low) : change.new_end + (high - change.end)]
                old, new = lines[low:high], lines[low:first] + edited[front : len(edited) - back] + lines[last:high]
                a, b, c = (_TOKEN.findall("\n".join(side)) for side in (old, new, target))
                if a != b and _distance(a, b) + _distance(b, c) <= _distance(a, c):
                    return True
        return False


@dataclass(frozen=True, slots=True)
class Area:
    """Lines `start` to `end` of a text, what the commit makes of them, and what a run made."""

    start: int
    end: int
    gold: int
    made: int
    target: list[str]
    text: list[str]


def read_commits(data: Path) -> Iterator[Commit]:
    """Yield the commits of the file in the folder `data`; DataError if it is not there."""
    path = data / COMMITS
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the folder of the data with --data")
    with lzma.open(path) as stream:
        for line in stream:
            yield Commit(orjson.loads(line))


def language_of(path: str) -> Language | None:
    """Return the language that the end of a path says."""
    return LANGUAGE_OF.get(PurePosixPath(path).suffix)


def compare_lines(old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """Return the hunks between two lists of lines."""
    front = common_length(old, new)
    back = min(common_length(old[::-1], new[::-1]), min(len(old), len(new)) - front)
    middle, new_middle = old[front : len(old) - back], new[front : len(new) - back]
    if not middle and not new_middle:
        return []
    matcher = SequenceMatcher(None, middle, new_middle, autojunk=len(middle) > _MAX_EXACT_LINES)
    return [LineChange(*(front + n for n in span)) for tag, *span in matcher.get_opcodes() if tag != "equal"]


def _image(lines: Sequence[str], start: int, end: int, changes: Sequence[LineChange], new: Sequence[str]) -> list[str]:
    image, position = list[str](), start
    for change in changes:
        image += [*lines[position : change.start], *new[change.new_start : change.new_end]]
        position = change.end
    return [*image, *lines[position:end]]


def _distance(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many tokens have to go and to come."""
    front = common_length(old, new)
    back = min(common_length(old[::-1], new[::-1]), min(len(old), len(new)) - front)
    old, new = old[front : len(old) - back], new[front : len(new) - back]
    # the longest common subsequence in bits, after Hyyrö (2004)
    places: dict[str, int] = {}
    for index, token in enumerate(old):
        places[token] = places.get(token, 0) | 1 << index
    everywhere = (1 << len(old)) - 1
    row = everywhere
    for token in new:
        common = row & places.get(token, 0)
        row = ((row + common) | (row - common)) & everywhere
    return len(old) + len(new) - 2 * (len(old) - row.bit_count())
