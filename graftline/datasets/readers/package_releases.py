"""`package_releases`: one function in two releases of the same package, from the archives of the releases.

A row is made of every function that both releases have under one path and one qualified name, with different texts.
Functions of one name in one file (overloads) are told apart by their order, after those that did not change are left
out; where their numbers differ, nobody knows which became which, and there is no row. A function that changed in more
than `MAX_CHANGED_LINES` lines, or is longer than `MAX_FUNCTION_CHARACTERS`, is a drop: it was written anew. So is a
file that cannot be read.

Not read are declarations, minified and bundled files (`SKIPPED_FILES`), nor what lies in a folder whose name says that
it was built, comes from elsewhere, or is data of tests (`SKIPPED_FOLDERS`).
"""

import codecs
import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from graftline.astgrep.binding import MAX_SOURCE_CHARACTERS, Language
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.datasets.archives import archive_path, files_of
from graftline.datasets.catalog import NO_LICENCE, Dataset, PackageRelease
from graftline.datasets.edit import Drop, DropReason, Outcome
from graftline.datasets.extensions import language_of_path
from graftline.datasets.functions import Function, functions_in
from graftline.datasets.package_licences import both, licence_in_core_metadata, licence_in_package_json
from graftline.datasets.readers import release_pairs
from graftline.datasets.readers.base import RawRow, Source

MAX_CHANGED_LINES = 12
"""Removed and added ones together."""
MAX_FUNCTION_CHARACTERS = 6000

METADATA = {"pypi": "PKG-INFO", "npm": "package.json"}
"""What says the licence in an archive that is not a wheel, in its one folder."""
SKIPPED_FILES = ("*.pyi", "*.d.ts", "*.d.mts", "*.d.cts", "*.min.*", "*-min.js", "*.bundle.*", "*.umd.*")
SKIPPED_FOLDERS = frozenset({
    *("build", "bundle", "bundles", "dist", "min", "umd"),
    *("_vendor", "_vendored", "bower_components", "node_modules", "third_party", "vendor", "vendored"),
    *("__fixtures__", "__snapshots__", "fixtures", "snapshots", "test-data", "test_data", "testdata"),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a package."""

    sources: Mapping[str, bytes | None]
    """By path in the package; None for a file that is too large to read."""
    licence: str


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    for package in dataset.packages:
        name = archive_path(package.registry, package.name, package.new)
        for number, content in enumerate(changes(folder, package), 1):
            yield RawRow(name, number, content)


def _releases(folder: Path, dataset: Dataset, max_line_bytes: int) -> int:
    # the rows are a comparison of releases, which takes as long as all that comes after it
    return len(
        {
            (package.registry, package.name, version)
            for package in dataset.packages
            for version in (package.old, package.new)
        }
    )


def _outcomes(row: Mapping[str, Any], name: str, dataset: Dataset) -> Sequence[Outcome]:
    if row.get("licence") == NO_LICENCE:
        row = {**row, "licence": dataset.licence_of(f"{row.get('registry')}:{row.get('pkg')}")}
    return release_pairs.SOURCE.outcomes(row, name, dataset)


def changes(folder: Path, package: PackageRelease) -> Iterator[dict[str, Any] | Drop]:
    """Yield the rows of one package in the order of paths and of the old text, and what cannot be compared as drops.

    Raises:
        DataError: an archive of a release is missing, damaged or hostile.
    """
    old, new = (
        read_release(folder / archive_path(package.registry, package.name, version), package.registry)
        for version in (package.old, package.new)
    )
    label = f"{package.registry}:{package.name} {package.old}->{package.new}"
    paths = sorted(old.sources.keys() & new.sources.keys())
    if not paths:
        yield Drop(DropReason.UNKNOWN_LANGUAGE, f"{label}: no source file lies at the same path in both releases")
    licence = both(old.licence, new.licence)
    for path in paths:
        for pair in _changed(path, old.sources[path], new.sources[path]):
            yield pair if isinstance(pair, Drop) else _row(package, label, licence, path, *pair)


def read_release(path: Path, registry: str) -> Release:
    """Return what of the archive at `path` is compared.

    Raises:
        DataError: as `files_of`.
    """
    files = dict(files_of(path, _is_wanted))
    metadata = next((name for name in files if _is_wheel_metadata(name)), None)
    sources = {name: content for name, content in files.items() if language_of_path(name.name)}
    if metadata is not None:
        return Release({str(name): content for name, content in sources.items()}, _licence(files[metadata], registry))
    # the archives of sources have one folder round everything
    metadata = next(
        (name for name in files if len(name.parts) == 2 and name.name in ("PKG-INFO", "package.json")), None
    )
    inside = {_path_inside(name, registry): content for name, content in sources.items() if len(name.parts) > 1}
    return Release(inside, _licence(files[metadata], registry) if metadata else NO_LICENCE)


def _path_inside(name: PurePosixPath, registry: str) -> str:
    # where wheels have `package/…`, many source archives have `src/package/…`
    skipped = 2 if registry == "pypi" and len(name.parts) > 2 and name.parts[1] == "src" else 1
    return "/".join(name.parts[skipped:])


def _is_wanted(name: PurePosixPath) -> bool:
    if _is_wheel_metadata(name) or (len(name.parts) == 2 and name.name in METADATA.values()):
        return True
    is_skipped = any(part.lower() in SKIPPED_FOLDERS for part in name.parts[:-1]) or any(
        fnmatchcase(name.name.lower(), pattern) for pattern in SKIPPED_FILES
    )
    return not is_skipped and language_of_path(name.name) is not None


def _is_wheel_metadata(name: PurePosixPath) -> bool:
    return len(name.parts) == 2 and name.parts[0].endswith(".dist-info") and name.name == "METADATA"


def _licence(metadata: bytes | None, registry: str) -> str:
    return (licence_in_package_json if registry == "npm" else licence_in_core_metadata)(metadata or b"")


def _changed(path: str, old: bytes | None, new: bytes | None) -> Iterator[tuple[Function, Function] | Drop]:
    """Yield the functions of one file that changed, before and after."""
    language = language_of_path(path)
    if old == new or language is None:
        return
    before, after = _functions(path, old, language), _functions(path, new, language)
    if isinstance(before, Drop) or isinstance(after, Drop):
        yield from [side for side in (before, after) if isinstance(side, Drop)][:1]
        return
    for pair in _paired(before, after):
        fault = _fault(*pair)
        yield Drop(DropReason.TOO_LONG, f"{path}: {pair[0].qualified_name}: {fault}") if fault else pair


def _functions(path: str, content: bytes | None, language: Language) -> list[Function] | Drop:
    if content is None:
        return Drop(DropReason.TOO_LONG, f"{path}: more than {MAX_SOURCE_CHARACTERS} characters")
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        return Drop(DropReason.INVALID_UTF8, f"{path}: byte {error.start}")
    try:
        return functions_in(text.replace("\r\n", "\n"), language)
    except DataError as error:
        return Drop(DropReason.UNPARSABLE, f"{path}: {error}")


def _paired(old: Sequence[Function], new: Sequence[Function]) -> Iterator[tuple[Function, Function]]:
    unchanged = Counter(old) & Counter(new)
    before, after = _by_name(old, unchanged), _by_name(new, unchanged)
    partners = {
        name: iter(after[name]) for name, functions in before.items() if len(after.get(name, ())) == len(functions)
    }
    for function in _without(old, unchanged):
        if function.qualified_name in partners:
            yield function, next(partners[function.qualified_name])


def _by_name(functions: Iterable[Function], unchanged: Counter[Function]) -> dict[str, list[Function]]:
    named: dict[str, list[Function]] = defaultdict(list)
    for function in _without(functions, unchanged):
        named[function.qualified_name].append(function)
    return dict(named)


def _without(functions: Iterable[Function], unchanged: Counter[Function]) -> Iterator[Function]:
    left = Counter(unchanged)
    for function in functions:
        left[function] -= 1
        if left[function] < 0:
            yield function


def _fault(old: Function, new: Function) -> str:
    longest = max(len(old.text), len(new.text))
    if longest > MAX_FUNCTION_CHARACTERS:
        return f"{longest} characters; at most {MAX_FUNCTION_CHARACTERS} are compared"
    changed = changed_lines(old.text, new.text)
    return f"{changed} lines changed; at most {MAX_CHANGED_LINES} are an edit" if changed > MAX_CHANGED_LINES else ""


def changed_lines(old: str, new: str) -> int:
    """Return how many lines are removed and added from `old` to `new`."""
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    return sum(i2 - i1 + j2 - j1 for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


def _row(package: PackageRelease, label: str, licence: str, path: str, old: Function, new: Function) -> dict[str, Any]:
    return {
        "id": f"release:{digest([label, path, old.qualified_name, old.text, new.text])[:16]}",
        "source": label,
        "licence": licence,
        "language": language_of_path(path),
        "pre": old.text,
        "post": new.text,
        "registry": package.registry,
        "pkg": package.name,
        "old": package.old,
        "new": package.new,
        "path": path,
        "qual": old.qualified_name,
        "changed": changed_lines(old.text, new.text),
    }


SOURCE = Source(rows=_rows, outcomes=_outcomes, records=_releases, is_snippet=True)
