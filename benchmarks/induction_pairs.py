"""The texts that induction is measured on: pairs of before and after from three sources, and files that no pair is of.

The commits are those of the half of repositories that `is_judged` names; the other half is free to be looked at while
the inducer is made better. A pair is read in the language in which both of its sides parse, a member of a class that
stands alone inside an enclosing class, both as the datasets are normalized.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, Literal

from graftline.astgrep.binding import Language
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_text
from graftline.datasets.language import confirm_language, language_of_path, wrap_excerpt

MAX_CHANGED_LINES = 20
"""Lines taken away and lines added, together."""
FIXTURES = Path("edit_pairs_dev.jsonl.gz")
COMMITS = Path("mirror/commitpackft/data")
RELEASES = Path("release_pairs.jsonl.gz")
_FILE_CHARACTERS = range(400, 12_000)

Source = Literal["fixtures", "commits", "releases"]
Half = Literal["judged", "tuning"]
SOURCES: tuple[Source, ...] = ("fixtures", "commits", "releases")


@dataclass(frozen=True, slots=True)
class Pair:
    """A text before and after one change."""

    id: str
    source: Source
    origin: str
    """The collection of fixtures; empty for other sources."""
    group: str
    """Repository or package."""
    rule: str
    """What the change is called in its collection of fixtures."""
    language: Language
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class File:
    """A file of the mirror, as it was before some commit."""

    repository: str
    path: str
    language: Language
    text: str


def pairs_of(data: Path, source: Source, half: Half = "judged") -> list[Pair]:
    """Return the pairs of `source` with few enough changed lines, in an order that depends on their ids alone.

    `half` is that of the commits; other sources have no halves.

    Raises:
        DataError: the files of that source are not there.
    """
    if source == "commits":
        made: Iterable[Pair] = (pair for pair in _commits(data) if is_judged(pair.group) == (half == "judged"))
    else:
        made = _fixtures(data) if source == "fixtures" else _releases(data)
    return sorted(made, key=lambda pair: sha256_text(pair.id))


def files_of(data: Path) -> list[File]:
    """Return the files of the mirror that are neither tiny nor long, one version of each, in the order of a digest.

    Raises:
        DataError: the mirror is not there.
    """
    found: dict[tuple[str, str], File] = {}
    for row in _commit_rows(data):
        language = language_of_path(row["old_file"])
        repository = _repository(row)
        if language is not None and len(row["old_contents"]) in _FILE_CHARACTERS:
            found.setdefault(
                (repository, row["old_file"]), File(repository, row["old_file"], language, row["old_contents"])
            )
    return sorted(found.values(), key=lambda file: sha256_text(f"{file.repository}/{file.path}"))


def is_judged(repository: str) -> bool:
    """Return whether commits of `repository` are kept for measuring; those of the others may be tuned to."""
    return int(sha256_text(repository)[0], 16) % 2 == 0


def _fixtures(data: Path) -> Iterator[Pair]:
    for row in _rows(data / FIXTURES):
        if row["changed_lines"] <= MAX_CHANGED_LINES:
            language = confirm_language(row["pre"], row["post"], row["language"]) or row["language"]
            yield Pair(
                *(row["id"], "fixtures", row["source"], row["repo"], row["rule"], language, row["pre"], row["post"])
            )


def _commits(data: Path) -> Iterator[Pair]:
    for row in _commit_rows(data):
        before, after = row["old_contents"], row["new_contents"]
        named = language_of_path(row["new_file"])
        repository = _repository(row)
        if named is None or not 0 < changed_lines(before, after) <= MAX_CHANGED_LINES:
            continue
        language = confirm_language(before, after, named) or named
        yield Pair(f"{row['commit']}:{row['new_file']}", "commits", "", repository, "", language, before, after)


def _releases(data: Path) -> Iterator[Pair]:
    for row in _rows(data / RELEASES):
        if row["changed"] > MAX_CHANGED_LINES:
            continue
        before, after = row["pre"], row["post"]
        language = confirm_language(before, after, row["language"])
        if language is None:
            language = row["language"]
            enclosed = wrap_excerpt(before, after, row["language"])
            before, after = enclosed[:2] if enclosed else (before, after)
        yield Pair(row["id"], "releases", "", row["pkg"], "", language, before, after)


def changed_lines(before: str, after: str) -> int:
    """Return the number of lines taken away and added."""
    lines = unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return sum(line[:1] in ("+", "-") for line in list(lines)[2:])


def _commit_rows(data: Path) -> Iterator[dict[str, Any]]:
    paths = sorted((data / COMMITS).glob("*/data.jsonl.gz"))
    if not paths:
        raise DataError(f"{data / COMMITS}: holds no */data.jsonl.gz; give the folder of the data with --data")
    for path in paths:
        yield from _rows(path)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the folder of the data with --data")
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def _repository(row: Mapping[str, Any]) -> str:
    """Return the first of the repositories that hold the commit; the others are forks."""
    return str(row["repos"]).partition(",")[0]


def sampled(pairs: Sequence[Pair], count: int | None) -> Sequence[Pair]:
    """Return the first `count` of `pairs`; all for None. Their order is that of a digest, so that is a fair sample."""
    return pairs if count is None else pairs[:count]
