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
from textwrap import dedent
from typing import Any

from graftline.astgrep.binding import MAX_SOURCE_CHARACTERS, Language, Node, Tree, parse
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.datasets.archives import archive_path, files_of
from graftline.datasets.catalog import NO_LICENSE, Dataset, PackageRelease
from graftline.datasets.edit import Rejection, RejectReason, RowResult
from graftline.datasets.language import language_of_path
from graftline.datasets.licenses import combine_licenses, license_in_core_metadata, license_in_package_json
from graftline.datasets.readers.base import RawRow, Source
from graftline.datasets.readers.release_pairs import ReleasePair, edit_of

MAX_CHANGED_LINES = 12
"""Removed and added ones together."""
MAX_FUNCTION_CHARACTERS = 6000

METADATA = {"pypi": "PKG-INFO", "npm": "package.json"}
"""What says the license in an archive that is not a wheel, in its one folder."""
SKIPPED_FILES = ("*.pyi", "*.d.ts", "*.d.mts", "*.d.cts", "*.min.*", "*-min.js", "*.bundle.*", "*.umd.*")
SKIPPED_FOLDERS = frozenset({
    *("build", "bundle", "bundles", "dist", "min", "umd"),
    *("_vendor", "_vendored", "bower_components", "node_modules", "third_party", "vendor", "vendored"),
    *("__fixtures__", "__snapshots__", "fixtures", "snapshots", "test-data", "test_data", "testdata"),
})  # fmt: skip


_JAVASCRIPT_FUNCTIONS = (
    *("function_declaration", "generator_function_declaration", "function_expression", "generator_function"),
    *("method_definition", "pair"),
)
_FUNCTIONS: Mapping[Language, tuple[str, ...]] = {
    "python": ("function_definition",),
    "javascript": _JAVASCRIPT_FUNCTIONS,
    "typescript": _JAVASCRIPT_FUNCTIONS,
    "tsx": _JAVASCRIPT_FUNCTIONS,
    "java": ("method_declaration", "constructor_declaration", "compact_constructor_declaration"),
}
_TYPES: Mapping[Language, tuple[str, ...]] = {
    "python": ("class_definition",),
    "javascript": ("class_declaration",),
    "typescript": ("class_declaration", "abstract_class_declaration", "internal_module"),
    "tsx": ("class_declaration", "abstract_class_declaration", "internal_module"),
    "java": (
        *("class_declaration", "interface_declaration", "enum_declaration", "record_declaration"),
        "annotation_type_declaration",
    ),
}
_FUNCTION_VALUES = ("function_expression", "generator_function", "arrow_function")


@dataclass(frozen=True, slots=True)
class Function:
    """A function as it stands in its file."""

    qualified_name: str
    """Names of the types and functions round it and its own, joined by dots."""
    text: str
    """Whole, and as far to the left as it goes; a Python one ends with a line break, as its file would."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a package."""

    sources: Mapping[str, bytes | None]
    """By path in the package; None for a file that is too large to read."""
    license: str


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


def _edits(pair: ReleasePair, name: str, dataset: Dataset) -> Sequence[RowResult]:
    if pair.license == NO_LICENSE:
        pair = pair.model_copy(update={"license": dataset.license_of(f"{pair.registry}:{pair.pkg}")})
    return [edit_of(pair, name)]


def changes(folder: Path, package: PackageRelease) -> Iterator[dict[str, Any] | Rejection]:
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
        yield Rejection(
            RejectReason.UNKNOWN_LANGUAGE, f"{label}: no source file lies at the same path in both releases"
        )
    license = combine_licenses(old.license, new.license)
    for path in paths:
        for pair in _compare_functions(path, old.sources[path], new.sources[path]):
            yield pair if isinstance(pair, Rejection) else _row(package, label, license, path, *pair)


def read_release(path: Path, registry: str) -> Release:
    """Return what of the archive at `path` is compared; DataError as `files_of`."""
    files = dict(files_of(path, _is_compared))
    metadata = next((name for name in files if _is_wheel_metadata(name)), None)
    sources = {name: content for name, content in files.items() if language_of_path(name.name)}
    if metadata is not None:
        return Release({str(name): content for name, content in sources.items()}, _license(files[metadata], registry))
    # the archives of sources have one folder round everything
    metadata = next(
        (name for name in files if len(name.parts) == 2 and name.name in ("PKG-INFO", "package.json")), None
    )
    inside = {_path_inside(name, registry): content for name, content in sources.items() if len(name.parts) > 1}
    return Release(inside, _license(files[metadata], registry) if metadata else NO_LICENSE)


def _path_inside(name: PurePosixPath, registry: str) -> str:
    # where wheels have `package/…`, many source archives have `src/package/…`
    skipped = 2 if registry == "pypi" and len(name.parts) > 2 and name.parts[1] == "src" else 1
    return "/".join(name.parts[skipped:])


def _is_compared(name: PurePosixPath) -> bool:
    if _is_wheel_metadata(name) or (len(name.parts) == 2 and name.name in METADATA.values()):
        return True
    is_skipped = any(part.lower() in SKIPPED_FOLDERS for part in name.parts[:-1]) or any(
        fnmatchcase(name.name.lower(), pattern) for pattern in SKIPPED_FILES
    )
    return not is_skipped and language_of_path(name.name) is not None


def _is_wheel_metadata(name: PurePosixPath) -> bool:
    return len(name.parts) == 2 and name.parts[0].endswith(".dist-info") and name.name == "METADATA"


def _license(metadata: bytes | None, registry: str) -> str:
    return (license_in_package_json if registry == "npm" else license_in_core_metadata)(metadata or b"")


def _compare_functions(
    path: str, old: bytes | None, new: bytes | None
) -> Iterator[tuple[Function, Function] | Rejection]:
    """Yield the functions of one file that changed, before and after."""
    language = language_of_path(path)
    if old == new or language is None:
        return
    before, after = _functions(path, old, language), _functions(path, new, language)
    if isinstance(before, Rejection) or isinstance(after, Rejection):
        yield from [side for side in (before, after) if isinstance(side, Rejection)][:1]
        return
    for pair in _pair(before, after):
        fault = _fault(*pair)
        yield Rejection(RejectReason.TOO_LONG, f"{path}: {pair[0].qualified_name}: {fault}") if fault else pair


def _functions(path: str, content: bytes | None, language: Language) -> list[Function] | Rejection:
    if content is None:
        return Rejection(RejectReason.TOO_LONG, f"{path}: more than {MAX_SOURCE_CHARACTERS} characters")
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        return Rejection(RejectReason.INVALID_UTF8, f"{path}: byte {error.start}")
    try:
        return functions_in(text.replace("\r\n", "\n"), language)
    except DataError as error:
        return Rejection(RejectReason.UNPARSABLE, f"{path}: {error}")


def _pair(old: Sequence[Function], new: Sequence[Function]) -> Iterator[tuple[Function, Function]]:
    unchanged = Counter(old) & Counter(new)
    before, after = _by_name(old, unchanged), _by_name(new, unchanged)
    partners = {
        name: iter(after[name]) for name, functions in before.items() if len(after.get(name, ())) == len(functions)
    }
    for function in _exclude(old, unchanged):
        if function.qualified_name in partners:
            yield function, next(partners[function.qualified_name])


def _by_name(functions: Iterable[Function], unchanged: Counter[Function]) -> dict[str, list[Function]]:
    by_name: dict[str, list[Function]] = defaultdict(list)
    for function in _exclude(functions, unchanged):
        by_name[function.qualified_name].append(function)
    return dict(by_name)


def _exclude(functions: Iterable[Function], unchanged: Counter[Function]) -> Iterator[Function]:
    excluded = Counter(unchanged)
    for function in functions:
        excluded[function] -= 1
        if excluded[function] < 0:
            yield function


def _fault(old: Function, new: Function) -> str:
    longest = max(len(old.text), len(new.text))
    if longest > MAX_FUNCTION_CHARACTERS:
        return f"{longest} characters; at most {MAX_FUNCTION_CHARACTERS} are compared"
    changed = count_changed_lines(old.text, new.text)
    return f"{changed} lines changed; at most {MAX_CHANGED_LINES} are an edit" if changed > MAX_CHANGED_LINES else ""


def count_changed_lines(old: str, new: str) -> int:
    """Return how many lines are removed and added from `old` to `new`."""
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    return sum(i2 - i1 + j2 - j1 for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


def _row(package: PackageRelease, label: str, license: str, path: str, old: Function, new: Function) -> dict[str, Any]:
    return {
        "id": f"release:{digest([label, path, old.qualified_name, old.text, new.text])[:16]}",
        "source": label,
        "license": license,
        "language": language_of_path(path),
        "pre": old.text,
        "post": new.text,
        "registry": package.registry,
        "pkg": package.name,
        "old": package.old,
        "new": package.new,
        "path": path,
        "qual": old.qualified_name,
        "changed": count_changed_lines(old.text, new.text),
    }


def functions_in(text: str, language: Language) -> list[Function]:
    """Return the functions of a file in the order of the text, outer ones before those in them.

    A function has a name of its own or is the value of a key: declarations, methods, constructors, named function
    expressions, `key: function () {}` and `key: (…) => …`. Lambdas and functions that are only assigned to a variable
    have no name of their own and are part of the function round them. Of a Python function the decorators are part, of a
    Java method the annotations; a Java method need not have a body.

    Raises:
        DataError: the parser does not understand all of `text`, or it is larger or nested deeper than is safe.
    """
    tree = parse(text, language)
    if not tree.is_clean:
        raise DataError(f"source is not {language} that the parser understands")
    return list(_walk(tree, tree.root, ()))


def _walk(tree: Tree, node: Node, scope: tuple[str, ...]) -> Iterator[Function]:
    is_function = node.kind in _FUNCTIONS[tree.language] and _is_function(node)
    if (is_function or node.kind in _TYPES[tree.language]) and (name := _name(tree, node)):
        scope = (*scope, name)
        if is_function:
            yield Function(".".join(scope), _text(tree, node))
    for child in node.children:
        yield from _walk(tree, child, scope)


def _is_function(node: Node) -> bool:
    value = node.handle.field("value") if node.kind == "pair" else None
    return node.kind != "pair" or (value is not None and value.kind() in _FUNCTION_VALUES)


def _name(tree: Tree, node: Node) -> str:
    name = node.handle.field("key" if node.kind == "pair" else "name")
    # a named function that is the value of a key is that key's
    is_value = node.parent is not None and node.parent.kind == "pair" and node.kind in _FUNCTION_VALUES
    return "" if name is None or is_value else name.text()


def _text(tree: Tree, node: Node) -> str:
    whole = node.parent if node.parent is not None and node.parent.kind == "decorated_definition" else node
    line = tree.text[tree.text.rfind("\n", 0, whole.start) + 1 : whole.start]
    margin = line[: len(line) - len(line.lstrip())]
    return dedent(margin + tree.of(whole)) + ("\n" if tree.language == "python" else "")


SOURCE = Source(_rows, ReleasePair.model_validate, _edits, records=_releases, is_snippet=True)
