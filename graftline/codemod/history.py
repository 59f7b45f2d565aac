"""The history of a git repository, read as data: nothing of it is run (`codemod.git_command`), and objects are of
bounded size.
"""

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from graftline.astgrep.binding import Language
from graftline.codemod.git_command import MAX_OUTPUT_BYTES, GitLimitError, run_git
from graftline.codemod.source_files import VENDORED, LanguageOf, Skipped, SourceFile, source_of
from graftline.core.errors import DataError

MAX_BLOB_BYTES = 512 << 10
MAX_FILES_OF_COMMIT = 300
"""A commit that changes more is a reformatting or an import of foreign code."""
MAX_COMMIT_BYTES = 16 << 20
"""Of both sides of all files of a commit that is read as a whole."""
MAX_MESSAGE_BYTES = 32 << 10
"""Of a commit object, which holds the message."""
_MAX_BATCH_BYTES = 32 << 20
_BATCH_COMMITS, _BATCH_FILES = 100, 200
_MAX_LISTING_BYTES = 8 << 20
"""Of what one commit changes; that of several may be as long as git is read."""
_MAX_TREE_BYTES = 32 << 20
"""Of the list of all files of a commit."""
_OR_RANGE = ", or a range such as v1..v2"
_RANGE = re.compile(r"(?P<first>.*?)\.\.(?P<last>(?!\.).*)")
_PLAIN_FILES = ("100644", "100755")
_SHA1_DIGITS = 40
_OTHER_MODES = {"120000": "symbolic link", "160000": "submodule"}
_STATUSES = {"A": "added", "D": "deleted", "R": "renamed", "T": "of another type"}


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a commit made of one file."""

    commit: str
    path: str
    """Of the file after it, from the top of the repository; from a folder, where the changes of a folder are read."""
    language: Language
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class CommitChange:
    """What a commit made of the files that it edits where they are."""

    commit: str
    parent: str
    message: str
    files: tuple[FileChange, ...]
    other_files: int
    """Files that it changes beside them: in other languages, added, deleted, renamed, or such as cannot be read."""
    moved_files: int
    """Of the other files, those in one of the languages that are added, deleted or renamed."""


class _Entry(NamedTuple):
    """A line of a raw difference."""

    status: str
    modes: tuple[str, str]
    old: str
    new: str
    path: str

    @property
    def is_edit(self) -> bool:
        """Whether a plain file is edited, renamed perhaps."""
        return self.status in "MR" and set(self.modes) <= {*_PLAIN_FILES} and self.old != self.new


@dataclass(slots=True)
class History:
    """The commits of one repository, newest first."""

    folder: Path
    commits: tuple[str, ...]
    """Without merges: what they merge is there as it was made."""
    is_shallow: bool
    """Whether older commits than these were never fetched."""
    only: str = ""
    """The folder below the top whose files are looked at; all if empty."""
    skipped: Skipped = field(default_factory=Counter)

    @classmethod
    def read(
        cls, folder: Path, span: str = "", limit: int = 1_000, is_top: bool = False, takes_range: bool = True
    ) -> "History":
        """Return the newest `limit` commits of `span` (`A..B`, or a commit for all up to it; the current one if empty).

        Without `takes_range`, `A..B` names no commit. Only those count that change files below `folder`; with `is_top`, it must be the top of a working tree, or a
        bare repository. DataError if `folder` is in no repository, or `span` names no commits of it. ConfigError if git
        is not installed. BoundaryError if git cannot read it.
        """
        if folder.is_file():
            raise DataError(f"{folder}: is a file; name its folder")
        if not folder.is_dir():
            raise DataError(
                f"{folder}: no such folder; expected one in a git repository{_OR_RANGE if takes_range else ''}"
            )
        options = ("--is-shallow-repository", "--is-bare-repository", "--absolute-git-dir")
        answer = run_git(folder, "rev-parse", *options, check=False)
        if answer is None:
            raise DataError(f"{folder}: is in no git repository that can be read; name the folder of one")
        is_shallow, is_bare, git_folder = os.fsdecode(answer).split("\n")[:3]
        prefix = (
            ""
            if is_bare == "true"
            else os.fsdecode(run_git(folder, "rev-parse", "--show-prefix") or b"").removesuffix("\n")
        )
        # git goes upwards from a folder that is none, to the repository that holds it
        if is_top and (prefix or not ((folder / ".git").exists() or Path(git_folder) == folder.resolve())):
            raise DataError(f"{folder}: is not the top of a git repository; name the folder of one")
        match = _RANGE.fullmatch(span) if takes_range else None
        first, last = (match["first"] or "HEAD", match["last"] or "HEAD") if match else ("", span or "HEAD")
        ends = [_commit(folder, last, span, takes_range)] + ([f"^{_commit(folder, first, span)}"] if match else [])
        paths = ["--", "."] if prefix else ["--"]
        listed = run_git(folder, "rev-list", "--no-merges", "--topo-order", f"--max-count={limit}", *ends, *paths)
        return cls(folder, tuple((listed or b"").decode().split()), is_shallow == "true", prefix)

    def changes(self, language_of: LanguageOf, languages: frozenset[Language]) -> Iterator[FileChange]:
        """Yield the changed files of the commits whose texts can be read, commit by commit.

        BoundaryError if git cannot read the repository.
        """
        for start in range(0, len(self.commits), _BATCH_COMMITS):
            edits = [
                (commit, entry, language)
                for commit, entries in self._entries(self.commits[start : start + _BATCH_COMMITS])
                for entry, language in self._limit_files(_edits(entries, language_of, languages))
            ]
            texts = self.read_blobs(dict.fromkeys(blob for _, entry, _ in edits for blob in (entry.old, entry.new)))
            for commit, entry, language in edits:
                if change := self._read_change(commit, entry, language, texts):
                    yield change

    def newest_files(self, language_of: LanguageOf, languages: frozenset[Language]) -> Iterator[SourceFile]:
        """Yield the files of the newest commit that can be read, but for those in folders of foreign or made files."""
        if not self.commits:
            return
        listed = list_files(self.folder, self.commits[0], language_of, languages)
        files = [entry for entry in listed if not VENDORED & {*Path(entry[0]).parts}]
        for start in range(0, len(files), _BATCH_FILES):
            batch = files[start : start + _BATCH_FILES]
            texts = self.read_blobs(dict.fromkeys(blob for _, _, blob in batch))
            for path, language, blob in batch:
                with suppress(DataError):
                    if blob in texts:
                        yield source_of(texts[blob], Path(path), language)

    def commit_changes(
        self,
        language_of: LanguageOf,
        languages: frozenset[Language],
        min_files: int,
        is_excluded: Callable[[str], bool] = lambda path: False,
    ) -> Iterator[CommitChange]:
        """Yield the commits that edit at least `min_files` files where they are, each with its parent and message.

        Files whose path `is_excluded` are none of them. What of such commits cannot be read, is no edit of a file, or
        is too much, is counted in `skipped`. BoundaryError if git cannot read the repository.
        """
        for start in range(0, len(self.commits), _BATCH_COMMITS):
            for commit, entries in self._entries(self.commits[start : start + _BATCH_COMMITS]):
                edits = [
                    (entry, language)
                    for entry, language in _edits(entries, language_of, languages)
                    if entry.status == "M" and not is_excluded(entry.path)
                ]
                if len(edits) < min_files:
                    continue
                edits = self._limit_files(edits)
                self.skipped.update(reason for entry in entries if (reason := _reason_of(entry)))
                header = self._read_header(commit, edits) if edits else None
                files = tuple(self._read_edits(commit, edits)) if header else ()
                if header and len(files) >= min_files:
                    moved = sum(entry.status in "ADR" and language_of(entry.path) in languages for entry in entries)
                    yield CommitChange(commit, *header, files, len(entries) - len(files), moved)

    def _read_header(self, commit: str, edits: Sequence[tuple[_Entry, Language]]) -> tuple[str, str] | None:
        """Return parent and message of a commit; None where it, or what it edits, is too large, or it has no parent."""
        names = [blob for entry, _ in edits for blob in (entry.old, entry.new)]
        sizes = self._sizes([commit, *names])
        if sizes.get(commit, 0) > MAX_MESSAGE_BYTES:
            self.skipped["commit with a long message"] += 1
            return None
        if sum(size for name in names if (size := sizes.get(name, 0)) <= MAX_BLOB_BYTES) > MAX_COMMIT_BYTES:
            self.skipped["commit that is too large"] += 1
            return None
        head, _, message = self._contents([commit]).get(commit, b"").decode("utf-8", "replace").partition("\n\n")
        parents = [line.partition(" ")[2] for line in head.split("\n") if line.startswith("parent ")]
        if len(parents) != 1 or "\ufffd" in message:
            self.skipped["commit with an unreadable message" if len(parents) == 1 else "commit without a parent"] += 1
            return None
        return parents[0], message.strip()

    def _read_edits(self, commit: str, edits: Sequence[tuple[_Entry, Language]]) -> Iterator[FileChange]:
        texts = self.read_blobs(dict.fromkeys(blob for entry, _ in edits for blob in (entry.old, entry.new)))
        for entry, language in edits:
            if change := self._read_change(commit, entry, language, texts):
                yield change

    def _read_change(
        self, commit: str, entry: _Entry, language: Language, texts: Mapping[str, bytes]
    ) -> FileChange | None:
        if entry.old not in texts or entry.new not in texts:
            return None
        try:
            sides = [source_of(texts[blob], Path(entry.path), language).text for blob in (entry.old, entry.new)]
        except DataError:
            self.skipped["unreadable"] += 1
            return None
        return FileChange(commit, entry.path, language, *sides)

    def _entries(self, commits: Sequence[str]) -> Iterator[tuple[str, list[_Entry]]]:
        """Yield the commits that change something, each with what it changes."""
        options = ("--stdin", "-r", "-z", "--raw", "--no-abbrev", "--no-ext-diff", "--no-textconv", "-M", "-l100")
        paths = ("--", ".") if self.only else ("--",)
        text = "".join(f"{commit}\n" for commit in commits).encode()
        most_bytes = MAX_OUTPUT_BYTES if len(commits) > 1 else _MAX_LISTING_BYTES
        try:
            output = run_git(self.folder, "diff-tree", *options, *paths, stdin=text, most_bytes=most_bytes) or b""
        except GitLimitError:
            if len(commits) == 1:
                self.skipped["commit with too many files"] += 1
            for commit in commits if len(commits) > 1 else ():
                yield from self._entries([commit])
            return
        fields = iter(output.decode("utf-8", "replace").split("\0"))
        commit, entries = "", list[_Entry]()
        for name in fields:
            if name.startswith(":"):
                old_mode, mode, old, new, status = name[1:].split(" ")
                path = next(fields)
                path = next(fields) if status[0] in "RC" else path
                entries.append(_Entry(status[0], (old_mode, mode), old, new, path))
                continue
            if entries:
                yield commit, entries
            commit, entries = name.strip(), []
        if entries:
            yield commit, entries

    def _limit_files(self, edits: list[tuple[_Entry, Language]]) -> list[tuple[_Entry, Language]]:
        if len(edits) <= MAX_FILES_OF_COMMIT:
            return edits
        self.skipped["commit with too many files"] += 1
        return []

    def _sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes of the objects that are there, by their names; submodules, and what was never fetched, are
        not.
        """
        listed = "".join(f"{name}\n" for name in names).encode()
        output = run_git(self.folder, "cat-file", "--batch-check", "--buffer", stdin=listed) or b""
        lines = (line.split(" ") for line in output.decode().splitlines())
        return {name: int(more[0]) for name, kind, *more in lines if kind in ("blob", "commit")}

    def read_blobs(self, names: Mapping[str, None]) -> dict[str, bytes]:
        """Return the contents that are small enough, by their names."""
        sizes = self._sizes(names)
        self.skipped.update({"missing": len(names) - len(sizes)} if len(names) > len(sizes) else {})
        contents: dict[str, bytes] = {}
        batch, size = list[str](), 0
        for name, of_name in sizes.items():
            if of_name > MAX_BLOB_BYTES:
                self.skipped["too large"] += 1
                continue
            if size + of_name > _MAX_BATCH_BYTES:
                contents |= self._contents(batch)
                batch, size = [], 0
            batch.append(name)
            size += of_name
        return contents | self._contents(batch)

    def _contents(self, names: Sequence[str]) -> dict[str, bytes]:
        stdin = "".join(f"{name}\n" for name in names).encode()
        output = (run_git(self.folder, "cat-file", "--batch", "--buffer", stdin=stdin) or b"") if names else b""
        contents, position = dict[str, bytes](), 0
        while position < len(output):
            end = output.index(b"\n", position)
            name, _, size = output[position:end].decode().split(" ")
            contents[name] = output[end + 1 : end + 1 + int(size)]
            position = end + 2 + int(size)
        return contents


def _edits(
    entries: Iterable[_Entry], language_of: LanguageOf, languages: frozenset[Language]
) -> list[tuple[_Entry, Language]]:
    """Return what edits a file in one of `languages`, with its language."""
    pairs = ((entry, language_of(entry.path)) for entry in entries if entry.is_edit)
    return [(entry, language) for entry, language in pairs if language is not None and language in languages]


def _reason_of(entry: _Entry) -> str:
    """Return why an entry is no edit of a file where it is; empty if it is one."""
    modes = [_OTHER_MODES[mode] for mode in entry.modes if mode in _OTHER_MODES]
    return modes[0] if modes else _STATUSES.get(entry.status, "")


def list_ignored_by_git(folder: Path) -> frozenset[Path]:
    """Return the files and folders below `folder` that its repository ignores; none where there is no repository."""
    if shutil.which("git") is None:
        return frozenset()
    options = ("--others", "--ignored", "--exclude-standard", "--directory", "-z")
    output = run_git(folder, "ls-files", *options, "--", ".", check=False) or b""
    names = (os.fsdecode(name) for name in output.split(b"\0") if name)
    return frozenset(folder.absolute() / name for name in names)


def _commit(folder: Path, name: str, span: str, takes_range: bool = True) -> str:
    answer = run_git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
    if answer is None:
        if name == "HEAD":
            raise DataError(f"{folder}: its repository has no commits yet; commit something")
        named = f"{name!r}" if name == span else f"range {span!r}: {name!r}"
        more = _OR_RANGE if takes_range else ""
        raise DataError(f"{named} names no commit of {folder}; expected one such as HEAD or v1{more}")
    return answer.decode().split()[-1]


def read_commit(folder: Path, name: str, language_of: LanguageOf, languages: frozenset[Language]) -> list[FileChange]:
    """Return the files below `folder` that one commit changes, in `languages`, by their paths from there.

    DataError if `name` is no commit, is a merge, or changes none. BoundaryError if git cannot read it.
    """
    history = History.read(folder, name, limit=1, takes_range=False)
    commit = _commit(folder, name, name, takes_range=False)
    changes = list(history.changes(language_of, languages)) if history.commits == (commit,) else []
    changes = [replace(change, path=change.path.removeprefix(history.only)) for change in changes]
    if not changes:
        raise DataError(f"{name}: is a merge, or changes no file below {folder} in a language that is covered")
    return changes


def read_working_tree(folder: Path, language_of: LanguageOf, languages: frozenset[Language]) -> list[FileChange]:
    """Return the tracked files below `folder`, in `languages`, that differ from the current commit, by their paths from
    there.

    Files are compared here, not by git, which would run filters that the repository names. Files that are new or gone,
    or that cannot be read as source code, are none of them. DataError if there is no change. BoundaryError if git
    cannot read the repository.
    """
    History.read(folder, limit=1, takes_range=False)
    history = History(folder, (_commit(folder, "HEAD", ""),), is_shallow=False)
    changed = list[tuple[str, Language, str, bytes]]()
    for path, language, blob in list_files(folder, "HEAD", language_of, languages):
        # a folder of the commit may be a symbolic link now, to somewhere else
        content = _read_changed(folder / path, blob)
        if content is not None and (folder / path).resolve().is_relative_to(folder.resolve()):
            changed.append((path, language, blob, content))
    texts = history.read_blobs({blob: None for _, _, blob, _ in changed})
    changes = []
    for path, language, blob, content in changed:
        if blob not in texts:
            continue
        try:
            before, after = (source_of(side, Path(path), language).text for side in (texts[blob], content))
        except DataError:
            continue
        # a checkout may have other line ends than what is committed
        after = after if "\r\n" in before else after.replace("\r\n", "\n")
        if after != before:
            changes.append(FileChange(history.commits[0], path, language, before, after))
    if not changes:
        # any language stands for one that is not covered
        files = list_files(folder, "HEAD", lambda path: None if language_of(path) else "python", frozenset(("python",)))
        for path, _, blob in files:
            if _read_changed(folder / path, blob) is not None:
                covered = ", ".join(sorted(languages))
                raise DataError(
                    f"{folder / path}: is in none of the languages that are covered, {covered}; edit one in them"
                )
        raise DataError(f"{folder}: no tracked file differs from the current commit; edit a file that it has")
    return changes


def _read_changed(file: Path, blob: str) -> bytes | None:
    """Return what a file holds; None where that is what git names `blob`, or where it is none of a size that is read."""
    if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_BLOB_BYTES:
        return None
    content = file.read_bytes()
    algorithm = "sha1" if len(blob) == _SHA1_DIGITS else "sha256"
    name = hashlib.new(algorithm, b"blob %d\0" % len(content) + content).hexdigest()
    return content if name != blob else None


def list_files(
    folder: Path, commit: str, language_of: LanguageOf, languages: frozenset[Language]
) -> Iterator[tuple[str, Language, str]]:
    """Yield path, language and the name of the content of the files of `commit` below `folder`.

    BoundaryError if git cannot read them, or there are too many.
    """
    listed = run_git(folder, "ls-tree", "-r", "-z", commit, most_bytes=_MAX_TREE_BYTES) or b""
    for line in filter(None, listed.split(b"\0")):
        about, _, name = line.partition(b"\t")
        mode, _, blob = about.decode().split(" ")
        path = os.fsdecode(name)
        language = language_of(path)
        if mode in _PLAIN_FILES and language is not None and language in languages:
            yield path, language, blob
