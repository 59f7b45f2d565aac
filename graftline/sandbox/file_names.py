"""Names of files that come from outside: which are taken, and which can stand beside each other.

How many there may be, how deep and how large, is for whoever takes them: `workspace_limits`, `served`, `test_spec`.
"""

import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

from graftline.core.errors import DataError
from graftline.core.paths import portable

_LONGEST, _SHOWN = 1024, 80
_PROJECT_FILES = frozenset({"sgconfig.yml", "sgconfig.yaml"})


def path_of(name: str) -> PurePosixPath:
    """Return `name` as the path that it is the only way to write of.

    Raises:
        DataError: it does not mean the same on every system, or there is a shorter way.
    """
    if len(name) > _LONGEST:
        raise DataError(f"file name {short(name)}: has {len(name)} characters; at most {_LONGEST} are accepted")
    path = portable(name)
    if str(path) != name:
        raise DataError(f"file name {name!r}: write it as {str(path)!r}")
    return path


def argument_path_of(name: str) -> PurePosixPath:
    """Return `name` as a path that no program takes for an option.

    Raises:
        DataError: as `path_of`, or it looks like one.
    """
    path = path_of(name)
    if name[0] in "-@":
        raise DataError(f"file name {name!r}: looks like an option; use a plain relative path such as 'src/a.py'")
    return path


def folders_of(paths: Iterable[PurePosixPath]) -> set[str]:
    """Return the folders that files are in, `.` among them.

    Raises:
        DataError: one of the files is a folder as well.
    """
    names: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        names.add(str(path))
        folders.update(map(str, path.parents))
    if both := sorted(names & folders):
        raise DataError(f"file name {both[0]!r}: is a folder too; rename one of them")
    return folders


def check_distinct(names: Iterable[str]) -> None:
    """Refuse names that a system takes for one.

    Raises:
        DataError: there are such names.
    """
    known: dict[str, str] = {}
    for name in names:
        if (other := known.setdefault(_folded(name), name)) != name:
            raise DataError(f"files {other!r} and {name!r}: are the same to some systems; rename one of them")


def is_project_file(path: PurePosixPath) -> bool:
    """Return whether ast-grep may read `path`, or what is below it, as settings of its own."""
    return not _PROJECT_FILES.isdisjoint(map(_folded, path.parts))


def short(name: str) -> str:
    """Return `name` as messages show it."""
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}..."


def _folded(path: str) -> str:
    """Return what is the same for paths that a system without case, or one that composes characters, confuses."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
