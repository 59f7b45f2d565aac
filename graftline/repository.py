"""The files of somebody's repository, as the commands about rules and the MCP server read, rewrite and write them.

Every function is bounded (`codemod.source_files`), and none prints. Where a path comes from somebody who may not read
everything, `mcp_server.boundary` judges it first.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from graftline.astgrep.binding import LANGUAGES, Language
from graftline.codemod.follow import FollowedEdit, follow_edit, rewrite_accepted
from graftline.codemod.git_command import run_git
from graftline.codemod.history import FileChange, list_ignored_by_git, read_commit, read_working_tree
from graftline.codemod.migration.generalize import Ask
from graftline.codemod.reach import Reach, list_locations, measure_reach
from graftline.codemod.review import Accepts, PlaceGroup, group_places, keep_accepted, reject
from graftline.codemod.rule_file import MAX_FILE_CHARACTERS, FileRule, read_rules
from graftline.codemod.source_files import (
    RewrittenFile,
    Search,
    SourceFile,
    describe_skipped,
    find_changed_pairs,
    read_source,
    rewrite_files,
)
from graftline.codemod.writes import FileWrite
from graftline.core.errors import BoundaryError, ConfigError, DataError
from graftline.core.processes import default_workers
from graftline.datasets.language import language_of_path
from graftline.sandbox.actions import SandboxConfig, open_sandbox
from graftline.sandbox.base import Sandbox

_ADDRESS = re.compile(r"(?:[\w+.-]+://)?(?:[^/]*@)?([^/:@]+)(?::\d+/|[:/])/*(.+)")
"""Of a repository somewhere else: its host and its path."""
UNSURE = 0.3
"""Confidence of a rule below which nothing is written unless somebody was asked, or does not want to be."""
_SAME_REACH = Reach()

Choose = Callable[[Sequence[PlaceGroup]], Sequence[str]]
"""Names the groups of places, or the rules, that are left out."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What becomes of files, and what there is to review."""

    files: tuple[RewrittenFile, ...]
    """Those that change, or that cannot be rewritten."""
    groups: tuple[PlaceGroup, ...]
    skipped: str
    """What was not looked at; empty if nothing."""
    rejected: tuple[str, ...]
    """Groups and rules that are left out."""
    reach: Reach = field(default_factory=Reach)
    """Of the rules by themselves, beside `files`."""

    def rules_of(self, rules: Iterable[FileRule]) -> list[FileRule]:
        """Return `rules` without those of which all places are left out."""
        remaining = {group.rule for group in self.groups}
        return [rule for rule in rules if rule.id in remaining or not rule.facts.get("places")]

    @property
    def writes(self) -> list[FileWrite]:
        """What is to be written, for `codemod.writes`."""
        writes = (FileWrite(item.file.path, item.file.content, item.file.with_text(item.text)) for item in self.files)
        return [write for write in writes if write.before != write.after]


@contextmanager
def open_workers(config: SandboxConfig) -> Iterator[Sandbox]:
    """Open the sandbox of actions, on all cores unless the configuration names a number."""
    if config.kind == "warm" and "workers" not in config.model_fields_set:
        config = config.model_copy(update={"workers": default_workers()})
    sandbox = open_sandbox(config)
    try:
        yield sandbox
    finally:
        sandbox.close()


def read_file(path: Path, language: Language | None = None) -> SourceFile:
    """Return the source file `path`; DataError if it is none."""
    language = language or language_of_path(path.name)
    if not path.exists():
        raise DataError(f"{path}: no such file; expected a source file such as a.py")
    if path.is_dir():
        raise DataError(f"{path}: is a folder; expected a file, or a folder on both sides")
    if language is None:
        covered = ", ".join(LANGUAGES)
        raise DataError(
            f"{path}: is in none of the languages that are covered, {covered}; if its name alone hides it, say --language"
        )
    return read_source(path, language)


def read_pairs(before: Path, after: Path, language: Language | None) -> list[tuple[SourceFile, SourceFile]]:
    """Return a file before and after, or those of two folders that have the same names and differ."""
    if before.is_dir() and after.is_dir():
        return list(find_changed_pairs(before, after, lambda name: language or language_of_path(name)))
    source = read_file(before, language)
    # what stands beside a.py may be a.py.new
    return [(source, read_file(after, language or language_of_path(after.name) or source.language))]


def read_unchanged(path: Path, language: Language, forced: Language | None) -> list[SourceFile]:
    """Return the file at `path`, in its language or in the `forced` one, or the files in `language` below it."""
    if not path.is_dir():
        return [read_file(path, forced)]
    return list(Search(language_of_path, frozenset((language,))).files(path))


def read_changes(folder: Path, commit: str | None, language: Language | None = None) -> list[FileChange]:
    """Return the changed files of a repository, those of `commit` or of the working tree."""
    languages = frozenset((language,) if language else LANGUAGES)
    if commit is None:
        return read_working_tree(folder, language_of_path, languages)
    return read_commit(folder, commit, language_of_path, languages)


def as_examples(changes: Iterable[FileChange]) -> Iterator[tuple[SourceFile, SourceFile]]:
    """Yield the two sides of changes as examples."""
    for change in changes:
        path = Path(change.path)
        yield (
            SourceFile(path, change.language, change.before),
            SourceFile(path, change.language, change.after),
        )


def read_rule_file(path: Path) -> tuple[FileRule, ...]:
    """Return the rules of a file; DataError if it is none."""
    try:
        with path.open("rb") as stream:
            content = stream.read(4 * MAX_FILE_CHARACTERS)
        return read_rules(content.decode(), str(path))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected a rule file") from None


def open_search(languages: Iterable[Language], paths: Sequence[Path]) -> Search:
    """Return what finds the files of `languages` below `paths`, without those that git ignores there."""
    ignored = (list_ignored_by_git(path) for path in paths if path.is_dir())
    return Search(language_of_path, frozenset(languages), frozenset().union(*ignored))


def find_files(search: Search, paths: Sequence[Path]) -> Iterator[SourceFile]:
    """Yield the files at `paths`, each once."""
    resolved_paths = set[Path]()
    for file in (file for path in paths for file in search.files(path)):
        # below one path no file is found twice, for links are not followed
        resolved = file.path.resolve() if len(paths) > 1 else file.path
        if resolved not in resolved_paths:
            resolved_paths.add(resolved)
            yield file


def find_rejected(groups: Sequence[PlaceGroup], names: Sequence[str]) -> Accepts:
    """Return what accepts all groups but those named; DataError where a name is no group."""
    try:
        return reject(groups, names)
    except KeyError as error:
        listed = ", ".join(group.id for group in groups) or "none"
        raise DataError(
            f"--reject {error}: is no rule that changes something, and no group; there are {listed}"
        ) from None


def rewrite(
    rules: Sequence[FileRule],
    paths: Sequence[Path],
    sandbox: Sandbox,
    choose: Choose = lambda groups: (),
    watch: Callable[[Iterator[SourceFile]], Iterator[SourceFile]] = lambda files: files,
) -> Rewrite:
    """Return what `rules`, one after the other, make of the files at `paths`.

    `watch` passes on the files as they are read, for whoever counts them.
    """
    search = open_search((rule.language for rule in rules), paths)
    files = list(rewrite_files(watch(find_files(search, paths)), rules, sandbox))
    groups = group_places((place for file in files for place in file.places), rules, "match")
    if names := tuple(choose(groups)):
        accepts = find_rejected(groups, names)
        files = list(rewrite_files([file.file for file in files], rules, sandbox, accepts))
        groups = keep_accepted(groups, accepts)
    return Rewrite(tuple(files), tuple(groups), describe_skipped(search.skipped), names)


def follow(
    folder: Path,
    changes: Sequence[FileChange],
    sandbox: Sandbox,
    ask: Ask | None = None,
    instruction: str = "",
    max_questions: int = 5,
    choose: Choose = lambda groups: (),
    watch: Callable[[Iterator[SourceFile]], Iterator[SourceFile]] = lambda files: files,
    keep: Sequence[Path] = (),
    needs_reach: bool = True,
    show: Callable[[Path], object] = str,
) -> tuple[FollowedEdit, Rewrite]:
    """Return what becomes of the files below `folder` if they follow the edit that `changes` show.

    Files and folders of `keep` stay, and rules that would change nothing in them go before others. How far the rules
    reach by themselves is found out where `needs_reach`. `show` is how sentences have the path of a file. Other arguments
    as in `generalize` and `rewrite`. DataError if there is no edit that is small enough.
    """
    search = open_search({change.language for change in changes}, [folder])
    files = list(watch(find_files(search, [folder])))
    protected = find_protected(files, keep)
    negatives = {path.relative_to(folder).as_posix(): text for path, text in protected.items()}
    open_files = [file for file in files if file.path not in protected]
    followed = follow_edit(changes, open_files, folder, sandbox, ask, instruction, max_questions, negatives, show)
    reach = measure_reach(followed.rules, files, followed.files, sandbox) if needs_reach else Reach()
    return followed, choose_places(followed.files, followed.rules, describe_skipped(search.skipped), choose, reach)


def find_protected(files: Iterable[SourceFile], keep: Sequence[Path]) -> dict[Path, str]:
    """Return the texts of those of `files`, by their paths, that are one of `keep`, or below one; DataError if one is
    not there.
    """
    for path in keep:
        if not path.exists():
            raise DataError(
                f"{path}: is to stay, but there is no such file or folder; say its path from the current folder"
            )
    tops = {path.resolve() for path in keep}
    return {
        file.path: file.text
        for file in (files if tops else ())
        if not tops.isdisjoint(((path := file.path.resolve()), *path.parents))
    }


def choose_places(
    files: Sequence[RewrittenFile], rules: Sequence[FileRule], skipped: str, choose: Choose = lambda groups: (),
    reach: Reach = _SAME_REACH,
) -> Rewrite:  # fmt: skip
    """Return files that `rules` change, without the groups of places that are left out; `reach` is that of the rules."""
    groups = group_places((place for file in files for place in file.places), rules)
    names = tuple(choose(groups))
    if names:
        accepts = find_rejected(groups, names)
        groups = keep_accepted(groups, accepts)
        proposed = list_locations(files, rules)
        chosen = (rewrite_accepted(file.file, file.text, rules, accepts) for file in files)
        files = [file for file in chosen if file.places]
        reach = reach.without(proposed - list_locations(files, rules))
    return Rewrite(tuple(files), tuple(groups), skipped, names, reach)


def is_unsure(rules: Iterable[FileRule]) -> bool:
    """Return whether an edit may well mean something else than the rules that were made of it; rules of no edit are
    sure.
    """
    return any(rule.facts.get("confidence", 1.0) < UNSURE for rule in rules)


def identify_repository(folder: Path) -> str:
    """Return what tells the repository of `folder` from others: where it was cloned from, else its top, else the
    folder.

    `https://user:password@host/a/b.git` and `git@host:a/b` are one, and it has no password.
    """
    try:
        address = run_git(folder, "config", "--get", "remote.origin.url", check=False)
        top = run_git(folder, "rev-parse", "--show-toplevel", check=False)
    except (BoundaryError, ConfigError):
        address = top = None
    name = os.fsdecode(address or top or b"").strip().rstrip("/").removesuffix(".git")
    if address and (parts := _ADDRESS.fullmatch(name)):
        return f"{parts[1].lower()}/{parts[2]}"
    return name or str(folder.resolve())
