"""Real mechanical commits, and how much of one comes out of a few edits of it (`graftline.codemod.change_places`).

A hunk is a changed region of lines. It counts as reproduced only if its text is that of the commit. A demonstration is
the function or statement (at most 60 lines) around a random hunk; demonstrated places are left out of the count. Every
change in a file that the commit left alone counts as wrong.
"""

import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from graftline.astgrep.binding import is_safe
from graftline.codemod.change_places import MultiFileChange
from graftline.codemod.diff import common_length
from graftline.codemod.place_score import PlaceScore, compare_lines
from graftline.core.errors import DataError

COMMITS = Path("migrations_dev.jsonl.xz")
_TOKEN = re.compile(r"\w+|[^\w\s]")


class Commit(MultiFileChange):
    """A mechanical commit, and files that it left alone."""

    def __init__(self, row: Mapping[str, object]) -> None:
        self.id, self.repository, self.sha = str(row["id"]), str(row["repo"]), str(row["commit"])
        self.subject = str(row["subject"])
        files, untouched = row["files"], row["untouched"]
        assert isinstance(files, list)
        assert isinstance(untouched, list)
        texts = {file["path"]: str(file["text"]) for file in untouched if is_safe(file["text"])}
        super().__init__([(file["path"], file["before"], file["after"]) for file in files], texts, self.sha)

    def agrees(self, path: str, start: int, end: int, replacement: str, text: str) -> bool:
        """Return whether replacing characters `start` to `end` of `text` is a part of what the commit does to `path`.

        It is if the text gets nearer to that of the commit by as many tokens as are edited. `text` may be the file with
        demonstrations in it.
        """
        file = self.by_path.get(path)
        if file is None:
            return False
        lines, edited = text.split("\n"), (text[:start] + replacement + text[end:]).split("\n")
        front = common_length(lines, edited)
        back = min(common_length(lines[::-1], edited[::-1]), min(len(lines), len(edited)) - front)
        first, last = front, len(lines) - back
        new_lines = file.after.split("\n")
        for change in compare_lines(lines, new_lines) or ():
            if change.start <= last and first <= change.end and (change.start < last or change.start == change.end):
                low, high = min(first, change.start), max(last, change.end)
                target = new_lines[change.new_start - (change.start - low) : change.new_end + (high - change.end)]
                old, new = lines[low:high], lines[low:first] + edited[front : len(edited) - back] + lines[last:high]
                a, b, c = (_TOKEN.findall("\n".join(side)) for side in (old, new, target))
                if a != b and _distance(a, b) + _distance(b, c) <= _distance(a, c):
                    return True
        return False


def counts_of(score: PlaceScore) -> dict[str, int]:
    """Return a score as rows have it: hunks of the commit, and of the run outside and inside of untouched files."""
    return {
        "gold": score.gold, "hit": score.reproduced, "made": score.edited - score.false, "good": score.right,
        "false": score.false, "untouched": score.untouched,
    }  # fmt: skip


def score_of(row: Mapping[str, int]) -> PlaceScore:
    """Return the score of a row."""
    edited = row["made"] + row["false"]
    return PlaceScore(row["gold"], row["hit"], edited, row["good"], row["false"], row["untouched"])


def read_commits(data: Path) -> Iterator[Commit]:
    """Yield the commits of the file in the folder `data`; DataError if it is not there."""
    path = data / COMMITS
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the folder of the data with --data")
    with lzma.open(path) as stream:
        for line in stream:
            yield Commit(orjson.loads(line))


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
