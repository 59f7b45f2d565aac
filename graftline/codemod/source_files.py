"""Source files of whoever uses the rules: found below folders, read within bounds, rewritten by rules, written whole.

Never through a symbolic link. Which language a path is in is told by a function that the caller gives.
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from graftline.astgrep.binding import MAX_LINE_CHARACTERS, MAX_SOURCE_CHARACTERS, Language
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.migration.line_breaks import keep_line_breaks
from graftline.codemod.review import Accepts, ChangedPlace, accept_all, list_words, shape_of
from graftline.codemod.rule_file import FileRule
from graftline.core.errors import DataError
from graftline.core.record import sync
from graftline.sandbox.base import Match, Request, Sandbox, SandboxResult, Verdict, ensure_decided, replace_matches

MAX_FILES = 50_000
MAX_BYTES = 4 * MAX_SOURCE_CHARACTERS
_BATCH_FILES = 256
"""So many that one rule alone is work for several processes of a sandbox."""
VENDORED = frozenset((
    ".bzr", ".eggs", ".git", ".gradle", ".hg", ".jj", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".svn",
    ".tox", ".venv", "__pycache__", "__pypackages__", "bower_components", "build", "dist", "jspm_packages",
    "_vendor", "node_modules", "site-packages", "target", "third_party", "thirdparty", "vendor", "vendored", "venv",
))  # fmt: skip
"""Names of folders whose files are made by others or by programs."""

_OF_TOOLS = frozenset((
    ".bzr", ".git", ".hg", ".jj", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".svn", ".tox", "__pycache__",
))  # fmt: skip
"""Of them, those that nobody expects to be looked at."""

LanguageOf = Callable[[str], Language | None]
Skipped = Counter[str]
"""Numbers of files and folders that are left out, by the reason."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was read."""

    path: Path
    language: Language
    text: str
    """With the line ends of the file, without a byte order mark."""
    has_mark: bool = False
    """Whether a byte order mark stands before it."""

    @property
    def content(self) -> bytes:
        """The bytes that were read."""
        return self.with_text(self.text)

    def with_text(self, text: str) -> bytes:
        """Return the bytes of the file with another text."""
        return ("\ufeff" if self.has_mark else "").encode() + text.encode()


@dataclass(slots=True)
class Search:
    """Finds the files of some languages below a path."""

    language_of: LanguageOf
    languages: frozenset[Language]
    ignored: frozenset[Path] = frozenset()
    """Resolved paths of files and folders that are left out."""
    skipped: Skipped = field(default_factory=Counter)

    def files(self, path: Path) -> Iterator[SourceFile]:
        """Yield the files below `path` in the order of their names; a path that is a file is that file.

        DataError if `path` is not there, is a symbolic link, or is a file that cannot be one of a language asked for.
        """
        if path.is_symlink():
            raise DataError(f"{path}: is a symbolic link; name the file or folder that it leads to")
        if path.is_file():
            language = self.language_of(path.name)
            if language is None:
                raise DataError(f"{path}: its name does not say a language; expected a source file such as a.py")
            if language in self.languages:
                yield read_source(path, language)
            else:
                self.skipped["other language"] += 1
            return
        if not path.is_dir():
            raise DataError(f"{path}: no such file or folder")
        for count, (file, language) in enumerate(self._below(path), 1):
            if count > MAX_FILES:
                raise DataError(f"{path}: holds more than {MAX_FILES} files in the languages of the rules; name a part")
            try:
                yield read_source(file, language)
            except DataError as error:
                reasons = ("too large", "not UTF-8", "binary", "minified")
                self.skipped[next((reason for reason in reasons if reason in str(error)), "unreadable")] += 1

    def _below(self, folder: Path) -> Iterator[tuple[Path, Language]]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            self.skipped["unreadable"] += 1
            return
        for entry in entries:
            path = Path(entry.path)
            language = self.language_of(entry.name)
            if not is_text(entry.name):
                self.skipped["name not UTF-8"] += 1
                continue
            if entry.is_symlink():
                self.skipped["symbolic link"] += 1
            elif entry.is_dir(follow_symlinks=False):
                if entry.name in _OF_TOOLS:
                    continue
                if entry.name in VENDORED:
                    self.skipped["vendored folder"] += 1
                elif self._is_ignored(path):
                    self.skipped["ignored by git"] += 1
                else:
                    yield from self._below(path)
            elif entry.is_file(follow_symlinks=False) and language in self.languages and language is not None:
                if self._is_ignored(path):
                    self.skipped["ignored by git"] += 1
                else:
                    yield path, language

    def _is_ignored(self, path: Path) -> bool:
        return bool(self.ignored) and path.absolute() in self.ignored


def is_text(name: str) -> bool:
    """Return whether the name of a file, as Python reads it, is UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_source(path: Path, language: Language) -> SourceFile:
    """Return the file `path`; DataError if it is no plain file, too large, minified, binary or not UTF-8."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DataError(f"{path}: is no plain file; expected a source file")
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        is_link = path.is_symlink()
        reason = (
            "is a symbolic link; name the file that it leads to" if is_link else f"cannot be read ({error.strerror})"
        )
        raise DataError(f"{path}: {reason}") from None
    return source_of(content, path, language)


def source_of(content: bytes, path: Path, language: Language) -> SourceFile:
    """Return the bytes of a file as a text."""
    if len(content) > MAX_BYTES:
        raise DataError(f"{path}: is too large, more than {MAX_BYTES} bytes; leave it out")
    if b"\0" in content:
        raise DataError(f"{path}: is binary, it holds a zero byte; expected source code")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    has_mark = text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_SOURCE_CHARACTERS:
        raise DataError(f"{path}: is too large, {len(text)} characters; at most {MAX_SOURCE_CHARACTERS} are parsed")
    longest = max(map(len, text.split("\n")))
    if longest > MAX_LINE_CHARACTERS:
        raise DataError(
            f"{path}: is minified, it has a line of {longest} characters; at most {MAX_LINE_CHARACTERS} are parsed"
        )
    return SourceFile(path, language, text, has_mark)


def partial_path(path: Path, process: str) -> Path:
    """Return where a process writes what is to become the file `path`."""
    return path.with_name(f".{path.name[:200]}.partial-{process}")


def replace_file(path: Path, content: bytes, expected: bytes | None = None) -> None:
    """Write `content` to `path` at once: whoever reads sees the old file or the new one, after a crash too.

    The mode stays, and the owner where that is allowed. With `expected`, nothing is written over other bytes than
    those. DataError if `path` is a symbolic link or no plain file, or no longer holds what is expected.
    """
    status = None
    with suppress(FileNotFoundError):
        status = path.lstat()
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path}: is a symbolic link or no plain file; nothing is written through it")
    if expected is not None and (status is None or path.read_bytes() != expected):
        raise DataError(f"{path}: was changed by somebody else meanwhile; nothing is written, start again")
    partial = partial_path(path, str(os.getpid()))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, 0o666 if status is None else 0o600), "wb") as stream:
            stream.write(content)
            if status is not None:
                with suppress(OSError):
                    os.fchown(stream.fileno(), status.st_uid, status.st_gid)
                os.fchmod(stream.fileno(), stat.S_IMODE(status.st_mode))
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    with suppress(OSError):  # some file systems cannot
        sync(path.parent)


def describe_skipped(skipped: Skipped) -> str:
    """Return what was left out as words, empty if nothing was."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))


def find_changed_pairs(before: Path, after: Path, language_of: LanguageOf) -> Iterator[tuple[SourceFile, SourceFile]]:
    """Yield the files that two folders both have, by their paths below them, and whose texts differ."""
    paths: Iterable[Path] = sorted(path for path in before.rglob("*") if path.is_file() and not path.is_symlink())
    for path in paths:
        language, twin = language_of(path.name), after / path.relative_to(before)
        if language is not None and twin.is_file() and not twin.is_symlink():
            pair = read_source(path, language), read_source(twin, language)
            if pair[0].text != pair[1].text:
                yield pair


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """What the rules made of a file."""

    file: SourceFile
    text: str
    """As it was where there is a fault."""
    places: tuple[ChangedPlace, ...] = ()
    """What the rules changed, rule by rule."""
    fault: str = ""
    """Why it could not be rewritten."""


@dataclass(frozen=True, slots=True)
class FileMatches:
    """The places of a file that a rule would change."""

    rule: str
    file: SourceFile
    lines: tuple[int, ...]
    """Their lines, from 1."""


def rewrite_files(
    files: Iterable[SourceFile], rules: Sequence[FileRule], sandbox: Sandbox, accepts: Accepts = accept_all
) -> Iterator[RewrittenFile]:
    """Yield the files that some rule changes, or that cannot be rewritten; the rules follow one another.

    Places that are not accepted stay. DataError if ast-grep refuses a rule.
    """
    pending = _apply_rules(files, rules, sandbox)
    while batch := list(islice(pending, _BATCH_FILES)):
        matched = [
            (file, {id(rule): result for rule, result in answers})
            for file, answers in batch
            if any(result.verdict is not Verdict.NO_MATCH for _, result in answers)
        ]
        for rewritten in _rewrite(matched, rules, sandbox, accepts):
            if rewritten.fault or rewritten.text != rewritten.file.text:
                yield rewritten


def match_files(files: Iterable[SourceFile], rules: Sequence[FileRule], sandbox: Sandbox) -> Iterator[FileMatches]:
    """Yield what each rule, on its own, would change in every file; DataError if ast-grep refuses a rule."""
    for file, answers in _apply_rules(files, rules, sandbox):
        for rule, result in answers:
            if result.matches:
                lines = (file.text.count("\n", 0, match.start) + 1 for match in result.matches)
                yield FileMatches(rule.id, file, tuple(lines))


def _apply_rules(
    files: Iterable[SourceFile], rules: Sequence[FileRule], sandbox: Sandbox
) -> Iterator[tuple[SourceFile, list[tuple[FileRule, SandboxResult]]]]:
    """Yield every file with what the rules of its language do to it, each on its own."""
    pending = iter(files)
    while batch := list(islice(pending, _BATCH_FILES)):
        chosen = [[rule for rule in rules if rule.language == file.language] for file in batch]
        requests = [
            Request(file.text, file.language, tuple(rule.action for rule in own))
            for file, own in zip(batch, chosen, strict=True)
        ]
        for file, own, results in zip(batch, chosen, sandbox.apply_each(requests), strict=True):
            yield file, [(rule, _accept(rule, result)) for rule, result in zip(own, results, strict=True)]


def _rewrite(
    matched: Sequence[tuple[SourceFile, Mapping[int, SandboxResult]]],
    rules: Sequence[FileRule],
    sandbox: Sandbox,
    accepts: Accepts,
) -> list[RewrittenFile]:
    """Return what rules make of files, one after the other; beside each is what they do to it alone, by their `id`."""
    rewritten = [RewrittenFile(file, file.text) for file, _ in matched]
    for rule in rules:
        own = [n for n, item in enumerate(rewritten) if item.file.language == rule.language and not item.fault]
        # mostly no other rule was there before
        changed = [n for n in own if rewritten[n].text != rewritten[n].file.text]
        requests = [Request(rewritten[n].text, rule.language, (rule.action,)) for n in changed]
        later = {n: _accept(rule, result) for n, [result] in zip(changed, sandbox.apply_each(requests), strict=True)}
        for n in own:
            result = later[n] if n in later else matched[n][1][id(rule)]
            rewritten[n] = _follow_rule(rewritten[n], rule, result, accepts)
    return rewritten


def _follow_rule(item: RewrittenFile, rule: FileRule, result: SandboxResult, accepts: Accepts) -> RewrittenFile:
    file, text = item.file, item.text
    if result.verdict not in (Verdict.OK, Verdict.NO_MATCH):
        fault = f"{file.path}: rule {rule.id!r}: {result.verdict}{': ' + result.error if result.error else ''}"
        return RewrittenFile(file, file.text, fault=fault)
    words = list_words(rule.action)
    laid_out = [_keep_line_breaks(match, text, file.language) for match in result.matches]
    shapes = {match: shape_of(text[match.start : match.end], match.replacement, words) for match in laid_out}
    matches = [match for match in laid_out if accepts(rule.id, shapes[match])]
    if matches != [*result.matches]:
        result = replace_matches(text, matches, result.isolation)
    places = [_place_of(match, text, rule.id, file.path, shapes[match]) for match in matches]
    return RewrittenFile(file, normalize_blank_lines(text, result), (*item.places, *places))


def _keep_line_breaks(match: Match, text: str, language: Language) -> Match:
    """Return a match whose replacement is broken into lines as what it replaces; as the rule says where a comment goes with it."""
    column = match.start - text.rfind("\n", 0, match.start) - 1
    new = keep_line_breaks(text[match.start : match.end], match.replacement, column, language)
    return match if new is None else replace(match, replacement=new)


def _place_of(match: Match, text: str, rule: str, path: Path, shape: str) -> ChangedPlace:
    start = text.rfind("\n", 0, match.start) + 1
    end = text.find("\n", match.end)
    head, tail = text[start : match.start], text[match.end : len(text) if end < 0 else end]
    matched = text[match.start : match.end]
    line = text.count("\n", 0, match.start) + 1
    return ChangedPlace(rule, path, line, head + matched + tail, head + match.replacement + tail, shape)


def _accept(rule: FileRule, result: SandboxResult) -> SandboxResult:
    if ensure_decided(result).verdict is Verdict.ACTION_ERROR:
        raise DataError(f"rule {rule.id!r}: ast-grep refuses it: {result.error}")
    return result
