"""The entries of a dataset against what its home holds: patterns resolved, sizes and checksums compared."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graftline.core.errors import DownloadError
from graftline.core.paths import portable
from graftline.datasets.catalog import Dataset, DatasetFile

MAX_LISTED = 100_000
"""So many files are looked at in one home."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a home says of a file; None where it does not say."""

    size_bytes: int | None = None
    sha256: str | None = None


def entries(dataset: Dataset) -> Sequence[DatasetFile]:
    """Return the entries of `dataset` with the pins that hold: none where it follows its home."""
    return [DatasetFile(path=file.path) for file in dataset.files] if dataset.follow else dataset.files


def matches(pattern: str, path: str) -> bool:
    """Return whether `path` fits `pattern`, in which `*` is any part of one name; hidden files only fit by name."""
    patterns, parts = pattern.split("/"), path.split("/")
    return len(patterns) == len(parts) and all(map(_fits, patterns, parts))


def _fits(pattern: str, part: str) -> bool:
    if part.startswith(".") and part != ".." and not pattern.startswith("."):
        return False
    # a listing may hold anything, and a name with ".." or a line break has to be refused, not passed over
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), part, re.DOTALL) is not None


def resolved(home: str, dataset: Dataset, listed: Mapping[str, Facts]) -> list[DatasetFile]:
    """Return the files of `dataset` among those `listed` in `home`, in the order of their paths.

    Raises:
        DataError: the name of one would lead out of its folder, or means something else on another system.
        DownloadError: there is no file for an entry, or one differs from its pins.
    """
    found: dict[str, DatasetFile] = {}
    # those with a pattern first, so that an entry of its own, which may be pinned, stands
    for entry in sorted(entries(dataset), key=lambda entry: not entry.is_pattern):
        paths = _paths(entry, listed)
        if not paths:
            known = ", ".join(sorted(listed)[:5]) or "nothing"
            raise DownloadError(f"{home}/{entry.path}: no such file; mend `files` of the dataset; found: {known}")
        for path in paths:
            found[path] = _pinned(home, entry, path, listed[path])
    return [found[path] for path in sorted(found)]


def _paths(entry: DatasetFile, listed: Mapping[str, Facts]) -> list[str]:
    if not entry.is_pattern:
        return [entry.path] if entry.path in listed else []
    return [str(portable(path)) for path in listed if matches(entry.path, path)]


def _pinned(home: str, entry: DatasetFile, path: str, facts: Facts) -> DatasetFile:
    pairs = (("size_bytes", facts.size_bytes, entry.size_bytes), ("sha256", facts.sha256, entry.sha256))
    for what, found, expected in pairs:
        if found is not None and expected is not None and found != expected:
            raise DownloadError(
                f"{home}/{path}: {what} is {found}, but {expected} is expected; restore the file in its home,"
                " or pin the new version below configs/ if you mean to change it"
            )
    size = facts.size_bytes if entry.size_bytes is None else entry.size_bytes
    return DatasetFile(path=path, sha256=entry.sha256 or facts.sha256, size_bytes=size)
