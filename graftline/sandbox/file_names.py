"""Names of files that come from outside: which are taken, and which can stand beside each other.

`WorkspaceLimits` says how many there may be in a workspace, how deep and how large.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.paths import portable

_LONGEST, _SHOWN = 1024, 80
_PROJECT_FILES = frozenset({"sgconfig.yml", "sgconfig.yaml"})


def path_of(name: str) -> PurePosixPath:
    """Return `name` as a path; DataError unless it means the same on every system, and is its only spelling."""
    if len(name) > _LONGEST:
        raise DataError(f"file name {short(name)}: has {len(name)} characters; at most {_LONGEST} are accepted")
    path = portable(name)
    if str(path) != name:
        raise DataError(f"file name {name!r}: write it as {str(path)!r}")
    return path


def argument_path_of(name: str) -> PurePosixPath:
    """Return `name` as a path that no program takes for an option; DataError as `path_of`, or if it looks like one."""
    path = path_of(name)
    if name[0] in "-@":
        raise DataError(f"file name {name!r}: looks like an option; use a plain relative path such as 'src/a.py'")
    return path


def folders_of(paths: Iterable[PurePosixPath]) -> set[str]:
    """Return the folders that files are in, `.` among them; DataError if one of the files is a folder as well."""
    names: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        names.add(str(path))
        folders.update(map(str, path.parents))
    if both := sorted(names & folders):
        raise DataError(f"file name {both[0]!r}: is a folder too; rename one of them")
    return folders


def check_distinct(names: Iterable[str]) -> None:
    """Raise DataError for names that some system takes for one."""
    first: dict[str, str] = {}
    for name in names:
        if (other := first.setdefault(_fold(name), name)) != name:
            raise DataError(f"files {other!r} and {name!r}: are the same to some systems; rename one of them")


def is_project_file(path: PurePosixPath) -> bool:
    """Return whether ast-grep may read `path`, or what is below it, as settings of its own."""
    return not _PROJECT_FILES.isdisjoint(map(_fold, path.parts))


def short(name: str) -> str:
    """Return `name` as messages show it."""
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}..."


def _fold(path: str) -> str:
    """Return the same text for paths that a system without case, or one that composes characters, confuses."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


class WorkspaceLimits(Config):
    """What one workspace may hold."""

    files: int = Field(default=2000, ge=1, le=100_000)
    """Files, and as many folders."""
    file_kb: int = Field(default=1024, ge=1, le=1 << 20)
    total_mb: int = Field(default=64, ge=1, le=1 << 14)
    depth: int = Field(default=32, ge=1, le=100)
    """Names in a path: `src/a.py` has two."""


def check_files(sizes: Mapping[str, int], limits: WorkspaceLimits) -> None:
    """Raise DataError for files that may not be in a workspace together; `sizes` counts bytes by path."""
    check_count(len(sizes), limits)
    total = 0
    paths = []
    for name, size in sizes.items():
        paths.append(_check_path(name, limits))
        total += size
        check_size(name, size, total, limits)
    folders = folders_of(paths) - {"."}
    check_distinct([*sizes, *sorted(folders)])
    if len(folders) > limits.files:
        raise DataError(f"workspace of {len(folders)} folders; at most {limits.files} are accepted")


def check_count(count: int, limits: WorkspaceLimits) -> None:
    """Raise DataError for too many files."""
    if count > limits.files:
        raise DataError(f"workspace of {count} files; at most {limits.files} are accepted")


def check_size(name: str, size: int, total: int, limits: WorkspaceLimits) -> None:
    """Raise DataError for a file of `size` bytes, with which there are `total` in the workspace, if either is too much."""
    if size > limits.file_kb << 10:
        raise DataError(f"file {short(name)}: is larger than {limits.file_kb} KB; leave it out")
    if total > limits.total_mb << 20:
        raise DataError(f"file {short(name)}: with it, the workspace is larger than {limits.total_mb} MB")


def _check_path(name: str, limits: WorkspaceLimits) -> PurePosixPath:
    path = path_of(name)
    if len(path.parts) > limits.depth:
        raise DataError(f"file {name!r}: is nested deeper than {limits.depth} levels")
    if is_project_file(path):
        raise DataError(
            f"file {name!r}: is a project file of ast-grep, which can name native code to load; leave it out"
        )
    return path
