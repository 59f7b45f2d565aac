"""The history of a git repository, read by the command `git` as data.

The repository is not trusted, and neither is its configuration. Covered: nothing it says runs a program (hooks, pagers,
file system monitors, text converters, external differences, signature checks, credential helpers), nothing is fetched
from elsewhere, no configuration of the user or the system is read, and every call has a time limit and reads objects
of bounded size. With nothing of it run, the owner of the repository does not matter (`safe.directory`). Not covered: faults
in git's own reading of objects.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from graftline.astgrep.binding import Language
from graftline.codemod.source_files import VENDORED, LanguageOf, Skipped, SourceFile, source_of
from graftline.core.errors import BoundaryError, ConfigError, DataError

MAX_BLOB_BYTES = 512 << 10
MAX_FILES_OF_COMMIT = 300
"""A commit that changes more is a reformatting or an import of foreign code."""
_MAX_BATCH_BYTES = 32 << 20
_BATCH_COMMITS = 100
_TIMEOUT_S = 120.0
_HARDENING = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.untrackedCache": "false",
    "core.commitGraph": "false",
    "core.quotePath": "false",
    "credential.helper": "",
    "diff.external": "",
    "gc.auto": "0",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "safe.directory": "*",
    "submodule.recurse": "false",
}
_ENVIRONMENT = {
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "XDG_CONFIG_HOME": "/nonexistent",
}
_RANGE = re.compile(r"(?P<first>.*?)\.\.(?P<last>(?!\.).*)")
_PLAIN_FILES = ("100644", "100755")
_SHA1_DIGITS = 40


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a commit made of one file."""

    commit: str
    path: str
    """Of the file after it, from the top of the repository."""
    language: Language
    before: str
    after: str


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
    def read(cls, folder: Path, span: str = "", limit: int = 1_000) -> "History":
        """Return the newest `limit` commits of `span` (`A..B`, or a commit for all up to it; the current one if empty).

        Only those count that change files below `folder`. DataError if `folder` is in no repository, or `span` names
        no commits of it. ConfigError if git is not installed. BoundaryError if git cannot read it.
        """
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; expected one in a git repository, or a range such as v1..v2")
        answer = _git(folder, "rev-parse", "--is-shallow-repository", "--is-bare-repository", check=False)
        if answer is None:
            raise DataError(f"{folder}: is in no git repository that can be read; name the folder of one")
        is_shallow, is_bare = answer.decode().split()[:2]
        prefix = "" if is_bare == "true" else (_git(folder, "rev-parse", "--show-prefix") or b"").decode().strip()
        match = _RANGE.fullmatch(span)
        first, last = (match["first"] or "HEAD", match["last"] or "HEAD") if match else ("", span or "HEAD")
        ends = [_commit(folder, last, span)] + ([f"^{_commit(folder, first, span)}"] if match else [])
        paths = ["--", "."] if prefix else ["--"]
        listed = _git(folder, "rev-list", "--no-merges", "--topo-order", f"--max-count={limit}", *ends, *paths)
        return cls(folder, tuple((listed or b"").decode().split()), is_shallow == "true", prefix)

    def changes(self, language_of: LanguageOf, languages: frozenset[Language]) -> Iterator[FileChange]:
        """Yield the changed files of the commits whose texts can be read, commit by commit.

        BoundaryError if git cannot read the repository.
        """
        for start in range(0, len(self.commits), _BATCH_COMMITS):
            entries = list(self._entries(self.commits[start : start + _BATCH_COMMITS], language_of, languages))
            names = dict.fromkeys(blob for entry in entries for blob in entry[3:])
            texts = self.read_blobs(names)
            for commit, path, language, old, new in entries:
                if old in texts and new in texts:
                    try:
                        sides = [source_of(texts[blob], Path(path), language).text for blob in (old, new)]
                    except DataError:
                        self.skipped["unreadable"] += 1
                        continue
                    yield FileChange(commit, path, language, *sides)

    def newest_files(self, language_of: LanguageOf, languages: frozenset[Language]) -> Iterator[SourceFile]:
        """Yield the files of the newest commit that can be read, but for those in folders of foreign or made files."""
        if not self.commits:
            return
        listed = _list_files(self.folder, self.commits[0], language_of, languages)
        files = [entry for entry in listed if not VENDORED & {*Path(entry[0]).parts}]
        texts = self.read_blobs(dict.fromkeys(blob for _, _, blob in files))
        for path, language, blob in files:
            with suppress(DataError):
                if blob in texts:
                    yield source_of(texts[blob], Path(path), language)

    def _entries(
        self, commits: Sequence[str], language_of: LanguageOf, languages: frozenset[Language]
    ) -> Iterator[tuple[str, str, Language, str, str]]:
        """Yield commit, path, language, and the names of the two contents, of changed files."""
        options = ("--stdin", "-r", "-z", "--raw", "--no-abbrev", "--no-ext-diff", "--no-textconv")
        renames = ("-M", "-l100", "--diff-filter=MR")
        paths = ("--", ".") if self.only else ("--",)
        text = "".join(f"{commit}\n" for commit in commits).encode()
        output = _git(self.folder, "diff-tree", *options, *renames, *paths, stdin=text) or b""
        fields = iter(output.decode("utf-8", "replace").split("\0"))
        commit, of_commit = "", list[tuple[str, str, Language, str, str]]()
        for name in fields:
            if not name.startswith(":"):
                yield from self._of_bounded(of_commit)
                commit, of_commit = name.strip(), []
                continue
            old_mode, mode, old, new, status = name[1:].split(" ")
            path = next(fields)
            path = next(fields) if status.startswith("R") else path
            language = language_of(path)
            is_plain = old_mode in _PLAIN_FILES and mode in _PLAIN_FILES and old != new
            if is_plain and language is not None and language in languages:
                of_commit.append((commit, path, language, old, new))
        yield from self._of_bounded(of_commit)

    def _of_bounded(
        self, entries: list[tuple[str, str, Language, str, str]]
    ) -> Iterator[tuple[str, str, Language, str, str]]:
        if len(entries) > MAX_FILES_OF_COMMIT:
            self.skipped["commit with too many files"] += 1
        else:
            yield from entries

    def read_blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the contents that are small enough, by their names."""
        listed = "".join(f"{name}\n" for name in names).encode()
        sizes = _git(self.folder, "cat-file", "--batch-check", "--buffer", stdin=listed) or b""
        contents: dict[str, bytes] = {}
        batch, size = list[str](), 0
        for line in sizes.decode().splitlines():
            name, kind, *more = line.split(" ")
            if kind != "blob" or int(more[0]) > MAX_BLOB_BYTES:
                self.skipped["missing" if kind == "missing" else "too large"] += 1
                continue
            if size + int(more[0]) > _MAX_BATCH_BYTES:
                contents |= self._contents(batch)
                batch, size = [], 0
            batch.append(name)
            size += int(more[0])
        return contents | self._contents(batch)

    def _contents(self, names: Sequence[str]) -> dict[str, bytes]:
        stdin = "".join(f"{name}\n" for name in names).encode()
        output = (_git(self.folder, "cat-file", "--batch", "--buffer", stdin=stdin) or b"") if names else b""
        contents, position = dict[str, bytes](), 0
        while position < len(output):
            end = output.index(b"\n", position)
            name, _, size = output[position:end].decode().split(" ")
            contents[name] = output[end + 1 : end + 1 + int(size)]
            position = end + 2 + int(size)
        return contents


def read_commit(folder: Path, name: str, language_of: LanguageOf, languages: frozenset[Language]) -> list[FileChange]:
    """Return the files below `folder` that one commit changes, in `languages`.

    DataError if `name` is no commit, is a merge, or changes none. BoundaryError if git cannot read it.
    """
    history = History.read(folder, name, limit=1)
    commit = _commit(folder, name, name)
    changes = list(history.changes(language_of, languages)) if history.commits == (commit,) else []
    if not changes:
        raise DataError(f"{name}: is a merge, or changes no file below {folder} in a language that is covered")
    return changes


def read_working_tree(folder: Path, language_of: LanguageOf, languages: frozenset[Language]) -> list[FileChange]:
    """Return the tracked files below `folder`, in `languages`, that differ from the current commit.

    Files are compared here, not by git, which would run filters that the repository names. Files that are new or gone are
    none of them. DataError if there is no change. BoundaryError if git cannot read the repository.
    """
    history = History.read(folder, limit=1)
    changed = list[tuple[str, Language, str, bytes]]()
    for path, language, blob in _list_files(folder, "HEAD", language_of, languages):
        file = folder / path
        if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_BLOB_BYTES:
            continue
        content = file.read_bytes()
        algorithm = "sha1" if len(blob) == _SHA1_DIGITS else "sha256"
        if hashlib.new(algorithm, b"blob %d\0" % len(content) + content).hexdigest() != blob:
            changed.append((path, language, blob, content))
    texts = history.read_blobs({blob: None for _, _, blob, _ in changed})
    changes = []
    for path, language, blob, content in changed:
        if blob not in texts:
            continue
        before = source_of(texts[blob], Path(path), language).text
        after = source_of(content, Path(path), language).text
        # a checkout may have other line ends than what is committed
        after = after if "\r\n" in before else after.replace("\r\n", "\n")
        if after != before:
            changes.append(FileChange(history.commits[0], path, language, before, after))
    if not changes:
        raise DataError(f"{folder}: no tracked file differs from the current commit; edit one, or name two files")
    return changes


def _list_files(
    folder: Path, commit: str, language_of: LanguageOf, languages: frozenset[Language]
) -> Iterator[tuple[str, Language, str]]:
    """Yield path, language and the name of the content of the files of `commit` below `folder`."""
    listed = _git(folder, "ls-tree", "-r", "-z", commit) or b""
    for line in filter(None, listed.split(b"\0")):
        about, _, name = line.partition(b"\t")
        mode, _, blob = about.decode().split(" ")
        path = os.fsdecode(name)
        language = language_of(path)
        if mode in _PLAIN_FILES and language is not None and language in languages:
            yield path, language, blob


def list_ignored_by_git(folder: Path) -> frozenset[Path]:
    """Return the files and folders below `folder` that its repository ignores; none where there is no repository."""
    if shutil.which("git") is None:
        return frozenset()
    options = ("--others", "--ignored", "--exclude-standard", "--directory", "-z")
    output = _git(folder, "ls-files", *options, "--", ".", check=False) or b""
    names = (os.fsdecode(name) for name in output.split(b"\0") if name)
    return frozenset(folder.absolute() / name for name in names)


def _commit(folder: Path, name: str, span: str) -> str:
    answer = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
    if answer is None:
        if name == "HEAD":
            raise DataError(f"{folder}: its repository has no commits yet; commit something, or name a range")
        raise DataError(f"range {span!r}: {name!r} names no commit of {folder}; expected a range such as v1..v2")
    return answer.decode().split()[-1]


def _git(folder: Path, command: str, *arguments: str, stdin: bytes = b"", check: bool = True) -> bytes | None:
    """Return what git prints; without `check`, None where it fails; BoundaryError if it takes too long, or fails with it."""
    program = shutil.which("git")
    if program is None:
        raise ConfigError("git: no such program; install git to read a history")
    settings = [part for key, value in _HARDENING.items() for part in ("-c", f"{key}={value}")]
    try:
        done = subprocess.run(
            [program, "--no-pager", *settings, "-C", str(folder), command, *arguments],
            input=stdin,
            capture_output=True,
            env=_environment(os.environ),
            timeout=_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise BoundaryError(
            f"git {command} in {folder}: took longer than {_TIMEOUT_S:g} s; name a shorter range"
        ) from None
    if done.returncode == 0:
        return done.stdout
    if not check:
        return None
    message = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0] or f"exit code {done.returncode}"
    raise BoundaryError(f"git {command} in {folder}: {message}; try `git fsck` there")


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": environment.get("PATH", os.defpath), **_ENVIRONMENT}
